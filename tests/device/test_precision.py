from typing import get_args

import pytest

from planner.device.precision import PRECISIONS, find_precision
from planner.errors import BadInput
from planner.hardware import Format


def test_precision_is_found_by_its_name() -> None:
    assert [find_precision(name).name for name in get_args(Format)] == list(get_args(Format))


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="fp16"):
        find_precision("fp61")


def test_mixed_precision_keeps_sixteen_bytes_a_parameter_with_adam() -> None:
    # parameters, gradients, master copy and two states of four bytes each, as ZeRO counts them
    for name in ("fp16", "bf16"):
        kept = PRECISIONS[name]
        assert kept.parameter_bytes + kept.gradient_bytes + kept.master_bytes + 8 == 16
