"""Parameter-server plans are predicted to the last bit as the golden file says (benchmarks/golden.py)."""

from __future__ import annotations

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import golden

WAS = golden.stored()

# Durations vary by factors that numpy's exp gives. Its last bit depends on the release and on the processor,
# and a sample path may depend on that bit.
EXP = hashlib.sha256(np.exp(np.linspace(-1, 1, 4097)).tobytes()).hexdigest()
as_written = pytest.mark.skipif(
    not EXP.startswith("5226cd7df3833b14"),
    reason="numpy rounds exp otherwise than where the golden file was written",
)
REL = 0.0 if sys.version_info < (3, 12) else 1e-12  # of 3.12 and later: sum() keeps the bits that 3.11 loses


def test_there_are_plans_enough() -> None:
    figures = [key for name in golden.SPACES for key in WAS[name]["figures"]]
    assert len({key.split()[0] for key in figures}) >= 250
    assert sum(WAS[name]["plans"] for name in golden.SPACES) > 2000


@as_written
@pytest.mark.parametrize("name", golden.SPACES)
def test_plans_of_a_space(name: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        now = golden.space_figures(golden.request_of(golden.SPACES[name]), pool)
    assert golden.differences(WAS[name], json.loads(json.dumps(now)), rel=REL) == []


@as_written
def test_whole_answers() -> None:
    assert golden.differences(WAS["answers"], json.loads(json.dumps(golden.answers())), rel=REL) == []
