"""What a recording tells at a glance: what ran, on what and how, where a step's time goes by kind of op, what
of it is exposed, and what should make one look twice; two of them side by side."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain

import numpy as np

from planner.device.recorded.rescale import seconds_by_kind
from planner.hardware.catalog import find_device
from planner.simulator.step import UPLINK, Profile
from planner.simulator.step.recorded import INPUT, Exposed, Facts, Recorded

OPTIMIZER, COMMUNICATION = "optimizer", "communication"
MEANING: dict[str, str] = tomllib.loads((files(__package__) / "kinds.toml").read_text("utf-8"))
COMPARED_SETTINGS = (
    "model", "device", "precision", "batch", "micro_steps", "strategy", "world_size", "compiled", "optimizer",
    "framework",
)  # fmt: skip
MUCH = 0.2  # of a step
TRACING = 0.15  # longer than an untraced step


@dataclass(frozen=True, slots=True)
class KindSeconds:
    """Seconds of one kind of op in a mean step."""

    kind: str
    time_s: float
    share: float
    flops_per_s: float | None  # of arithmetic, where there is any
    meaning: str


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """Summary of a recording: its settings, seconds by kind of op, and warnings. `device` is the catalog's
    name, "" if it holds none."""

    model: str
    samples: int
    facts: Facts
    device: str
    steps: int
    exposed: Exposed
    kinds: tuple[KindSeconds, ...]
    suspicious: tuple[str, ...]


def summarize_recording(profile: Profile) -> RecordingSummary | None:
    """Summary of a recording; None for a profile without recorded facts."""
    recorded = profile.recorded
    if recorded is None or recorded.exposed is None:
        return None
    spent = dict(seconds_by_kind(profile))
    if recorded.exposed.communication_s > 0:
        spent[COMMUNICATION] = recorded.exposed.communication_s
    step_s = sum(spent.values())
    flops: defaultdict[str, float] = defaultdict(float)
    for part in chain.from_iterable(recorded.work.values()):
        flops[part.kind] += part.flops
    kinds = tuple(
        KindSeconds(
            kind,
            spent[kind],
            spent[kind] / step_s if step_s else 0.0,
            flops[kind] / spent[kind] if flops.get(kind) and spent[kind] > 0 else None,
            MEANING[kind],
        )
        for kind in MEANING
        if spent.get(kind, 0.0) > 0
    )
    device = find_device(profile.hardware)
    shares = {kind.kind: kind.share for kind in kinds}
    return RecordingSummary(
        profile.model,
        profile.batch,
        recorded.facts,
        "" if device is None else device.name,
        profile.steps,
        recorded.exposed,
        kinds,
        tuple(_reliability_warnings(profile, recorded, recorded.exposed, shares)),
    )


def _reliability_warnings(
    profile: Profile, recorded: Recorded, exposed: Exposed, shares: dict[str, float]
) -> list[str]:
    """Sentences on reasons to distrust predictions from a recording, each with a remedy."""
    out, facts = [], recorded.facts
    whole_s = exposed.untraced_s or exposed.step_s
    if exposed.step_s > (1 + TRACING) * whole_s:
        longer = exposed.step_s / whole_s - 1
        out.append(
            f"steps took {longer:.0%} longer than without the profiler: the step's time is measured, its "
            "parts are estimated"
        )
    elif exposed.step_s * (1 + TRACING) < whole_s:
        out.append(
            "steps were slower without the profiler: was the loop still warming up, or the machine busy?"
        )
    if shares.get(INPUT, 0.0) > MUCH:
        out.append(
            f"the device waits for its input {shares[INPUT]:.0%} of the time: more loader processes would "
            "help on any device"
        )
    if facts.device_kind == "gpu" and exposed.idle_s > MUCH * whole_s:
        out.append(
            f"the device is idle {exposed.idle_s / whole_s:.0%} of the time between kernels: the host sets "
            "the pace, and a faster device would not help; larger batches or torch.compile would"
        )
    if shares.get(COMMUNICATION, 0.0) > MUCH:
        out.append(f"{shares[COMMUNICATION]:.0%} of a step are waits for collectives, no computation")
    elements = sum(size for _, size in facts.parameters)
    sent = int(profile.bytes[profile.resource == UPLINK].sum())
    if elements and sent not in (2 * elements, 4 * elements):
        out.append(
            f"gradients of {sent:,} bytes for {elements:,} parameters: some are frozen, shared, or of "
            "another width"
        )
    if facts.parameters and recorded.passes not in (None, facts.micro_steps):
        out.append(
            f"{facts.micro_steps} forward passes a step were noted and {recorded.passes} are in the trace"
        )
    if facts.device and not find_device(profile.hardware):
        out.append(f"{facts.device} is not in the catalog: the recording speaks for that device only")
    return out


@dataclass(frozen=True, slots=True)
class KindComparison:
    """Seconds of one kind of op in two recordings; `ratio` is second over first."""

    kind: str
    first_s: float
    second_s: float
    ratio: float | None


@dataclass(frozen=True, slots=True)
class RecordingComparison:
    """Comparison of two recordings; `settings` are those that differ."""

    first: RecordingSummary
    second: RecordingSummary
    settings: tuple[tuple[str, str, str], ...]
    kinds: tuple[KindComparison, ...]
    samples_per_s: tuple[float, float]


def compare_recordings(first: RecordingSummary, second: RecordingSummary) -> RecordingComparison:
    """Compares two recordings: seconds by kind of op, differing settings and samples per second."""
    spent = [{kind.kind: kind.time_s for kind in recording.kinds} for recording in (first, second)]
    kinds = [
        KindComparison(kind, one, other, other / one if one > 0 else None)
        for kind in MEANING
        if (one := spent[0].get(kind, 0.0)) + (other := spent[1].get(kind, 0.0)) > 0
    ]
    whole = [sum(each.values()) for each in spent]
    kinds.append(KindComparison("step", whole[0], whole[1], whole[1] / whole[0] if whole[0] > 0 else None))
    settings = tuple(
        (name, str(one), str(other))
        for name in COMPARED_SETTINGS
        if (one := getattr(first.facts, name)) != (other := getattr(second.facts, name))
    )
    rates = [float(np.divide(one.samples, s)) for one, s in zip((first, second), whole, strict=True)]
    return RecordingComparison(first, second, settings, tuple(kinds), (rates[0], rates[1]))
