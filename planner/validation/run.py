"""A measured training run: model, devices, parallelism, software and measurement.

`planner.validation.reader` makes runs from every table; the suites compare them with predictions. What a
source does not state is None, or named in `inferred` where a usual value is assumed.

Software is classified by its tier, which is what computes rather than the framework's name: TensorFlow with
and without XLA are two tiers; PyTorch from pip, compiled, in NVIDIA's containers with fused optimizers, and
under Megatron with TransformerEngine are four. Rules are tried in order; the first match decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from planner.device.activations import Recompute
    from planner.device.precision import Precision
    from planner.hardware import Device
    from planner.model import Model
    from planner.parallel.mesh import Mesh

Row = Mapping[str, str]
Kind = Literal["sharded", "model_parallel", "plain"]
LANGUAGE = ("llm", "llm-moe", "llm-lora")
TENSORS = 200  # of parameters, where the network is not known: most published ones have 160 to 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Software of a run. `tier` is the framework in `planner.device.rates`; `text` is the source's name
    for it. `gradient_bytes` is per exchanged element (None: not stated), `overlaps` whether gradients
    are sent during the backward pass, `cycle_s` Horovod's cycle time."""

    tier: str
    text: str = ""
    optimizer: str = "adam"
    input: str = "dali"
    channels_last: bool | None = None
    flash: bool | None = None
    gradient_bytes: int | None = None
    overlaps: bool = True
    cycle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links between devices: the class of fabric inside a machine, and the combined rate of its NICs.
    `basis` says how the network's rate is known; `sockets`: no RDMA, with connections of at most
    `flow_bytes_per_s` if that was measured; `meshed`: boards of eight V100
    without a switch, where some links lead to devices that do not take part."""

    fabric: str = ""
    network_bytes_per_s: float | None = None
    basis: str = ""
    sockets: bool = False
    flow_bytes_per_s: float | None = None
    meshed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of parallelism. `stage` is ZeRO's, 0 for plain replicas; `within_machine`: shards stay
    inside machines; `whole_tensors`: shards are whole tensors (InternEvo); `whole_positions`:
    tensor-parallel ranks do not split sequences (no sequence parallelism)."""

    replicas: int = 1
    tensor: int = 1
    pipeline: int = 1
    interleave: int = 1
    stage: int = 0
    within_machine: bool = False
    whole_tensors: bool = False
    whole_positions: bool = False

    @property
    def mesh(self) -> Mesh:
        """Mesh of one replica: its tensor and pipeline degrees."""
        from planner.parallel.mesh import Mesh
        from planner.parallel.pipeline import PipelineParallel
        from planner.parallel.tensor import TensorParallel

        tensor = TensorParallel(self.tensor, not self.whole_positions)
        return Mesh((tensor, PipelineParallel(self.pipeline, self.interleave)))

    @property
    def kind(self) -> Kind:
        """Kind of layout: model-parallel, sharded or plain replicas."""
        if self.mesh.is_sharded:
            return "model_parallel"
        return "sharded" if self.stage else "plain"


# eq=False: a run is one row of a table, told apart by identity
@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One measured run: model, devices, layout, software and time per step. `model` is None if nobody has
    described the network, `device` if the catalog lacks it, `layout` if the degrees are not stated or not
    modelled; `unknown` gives the reasons. `step_s` is the time of an optimizer step with `accumulate`
    micro-batches of `batch` on each replica, None if no published rate can be converted to seconds.
    `doubtful` explains why no settings reproduce the run, "" if some do. `recalled`: the table states no rate
    in samples or no number of parameters, which are filled in from `data/reading.toml` and
    `data/networks.toml`. Layouts to choose between share a `group`. `fit_id` is the run's id in the fit of
    kernel rates, None if the fit has not used it. `readings` are the same run with open settings interpreted
    differently."""

    id: str
    source: str
    series: str
    arch: str
    network: str
    model: Model | None = None
    parameters: float | None = None
    tensors: int = TENSORS
    device_name: str
    device: Device | None = None
    devices: int = 1
    machines: int = 1
    devices_per_machine: int = 8
    links: Links = Links()
    layout: Layout | None = Layout()
    batch: int | None = None
    accumulate: int = 1
    precision: Precision | None = None
    recompute: Recompute = "none"
    software: Software
    step_s: float | None = None
    rate_per_s: float | None = None
    memory_gib: float | None = None
    device_gib: float | None = None
    recalled: bool = False
    note: str = ""
    group: str = ""
    fit_id: str | None = None
    doubtful: str = ""
    unknown: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    readings: tuple[Run, ...] = field(default=(), repr=False)

    @cached_property
    def samples_per_step(self) -> int:
        """Samples per optimizer step over all replicas."""
        replicas = self.layout.replicas if self.layout else self.devices
        return replicas * self.accumulate * (self.batch or 1)

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step over all replicas; samples if there are no sequences."""
        length = None if self.model is None else self.model.sequence_length
        return self.samples_per_step * (length or 1)

    @property
    def samples_per_s(self) -> float:
        """Samples per second over all devices."""
        return self.samples_per_step / (self.step_s or float("inf"))

    def read_as(self, **changes: object) -> Self:
        """Copy of the run with other values for settings that are not published."""
        return replace(self, readings=(), **changes)  # type: ignore[arg-type]


class CompleteRun(Run):
    """Type of a run that states everything a prediction needs, as no reason against one was found."""

    model: Model
    device: Device
    layout: Layout
    batch: int
    precision: Precision


# the software of a row

HOPPER_AND_LATER = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")
BEFORE_AMPERE = ("V100", "P100", "T4")  # FlashAttention does not run on them
ELSEWHERE = "elsewhere"  # the source prints no software
# A container of NVIDIA by its year and month, or a year: "NGC 22.11", "(Feb 2022)".
CONTAINER = re.compile(r"(?<![\d.])([12]\d)\.(0[1-9]|1[0-2])(?!\d)")
YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")
FLASH_SINCE = 2023  # of software that writes its own attention
XLA = re.compile(r"\bXLA\b|MaxText|\bJAX\b|T5X")
TIERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("megatron-deepspeed", re.compile(r"^Megatron-DeepSpeed")),
    ("fused", re.compile(r"MXNet(?! \d\.\d+ from pip)|transformer kernel")),
    ("c", re.compile(r"llm\.c\b|\bC\+\+|\bCUDA C\b|ggml")),
    ("tensorflow", re.compile(r"TensorFlow")),
    ("ngc", re.compile(r"Paddle")),
    ("megatron", re.compile(r"Megatron|NeMo|NEMO|Primus")),
    ("pytorch-reentrant", re.compile(r"InternEvo")),
    ("ngc", re.compile(r"^NVIDIA BERT")),
)
COMPILED = re.compile(r"torch\.compile|\bcompiled?\b|inductor", re.IGNORECASE)
NVIDIA_EXAMPLES = ("nvidia-dle", "lambda")  # their own code, with fused norms and optimizers


def year_of(text: str) -> int | None:
    """Release year, as printed or from a container version ("22.11"); None if neither is given."""
    if match := YEAR.search(text):
        return int(match[1])
    container = CONTAINER.search(text)
    return 2000 + int(container[1]) if container else None


def tier_of(row: Row) -> str:
    """Framework tier of a row, such as `ngc` or `megatron`; kernel rates are fitted by tier."""
    tier = _framework_tier(row)
    engine = row["arch"] in LANGUAGE and row["device"].startswith(HOPPER_AND_LATER)
    return "transformer-engine" if engine and tier in ("megatron", "mlperf") else tier


def _framework_tier(row: Row) -> str:
    """Framework tier of a row, from the framework's name and flags."""
    text, flags = row["framework"], row.get("flags", "")
    if TIERS[0][1].search(text):
        return TIERS[0][0]
    if row["source_id"].startswith("mlperf"):
        return "mlperf"
    if XLA.search(text) or (XLA.search(flags) and "no XLA" not in flags):
        return "xla"
    for tier, pattern in TIERS[1:]:
        if pattern.search(text):
            return tier
    if COMPILED.search(flags) or COMPILED.search(text):
        return "pytorch-compiled"
    return "ngc" if row["source_id"] in NVIDIA_EXAMPLES else "pytorch"


def other_tier(row: Row) -> str | None:
    """Second possible tier: "xla" for TensorFlow without printed flags; None for other rows."""
    return "xla" if _framework_tier(row) == "tensorflow" and not row.get("flags") else None


def has_flash_attention(row: Row) -> bool:
    """Whether attention ran as one fused kernel. True for language models since 2023 on devices that support
    it, and MLPerf's BERT."""
    text = row["framework"]
    if row["arch"] not in LANGUAGE:
        return text.startswith("milabench") or row["source_id"].startswith("mlperf")
    old = (year_of(text) or FLASH_SINCE) < FLASH_SINCE
    return not (old or text.startswith("Megatron-DeepSpeed") or row["device"].startswith(BEFORE_AMPERE))


def software_of(row: Row, model: Model | None) -> Software:
    """Software that a row ran, with its settings."""
    return Software(
        tier=tier_of(row),
        text=row["framework"],
        optimizer=_optimizer_name(row, model),
        input=_input_source(row),
        channels_last=_is_channels_last(row),
        flash=has_flash_attention(row) if model is not None and model.sequence_length else None,
        gradient_bytes=_gradient_bytes(row),
        overlaps=_has_overlapped_exchange(row),
        cycle_s=_cycle_s(row),
    )


def _optimizer_name(row: Row, model: Model | None) -> str:
    """Name of a row's optimizer, stated or usual."""
    if "no optimizer" in row["optimizer"]:
        return "none"
    return "adam" if model is not None and model.sequence_length else "momentum"


def _input_source(row: Row) -> str:
    """Source of a row's samples: `files`, `synthetic` or `dali`."""
    if "reads JPEG" in row["note"]:
        return "files"
    return "synthetic" if "no input pipeline" in row["note"] else "dali"


def _is_channels_last(row: Row) -> bool:
    """Whether images are stored channels-last, as in NVIDIA's 16-bit examples."""
    if row["source_id"] == "nvidia-dle" or row["source_id"].startswith("mlperf"):
        return row["precision_norm"] in ("fp16", "bf16")
    return "NHWC" in row["flags"] or "channels_last" in row["note"]


def _has_overlapped_exchange(row: Row) -> bool:
    """Whether gradients are exchanged during the backward pass. DeepSpeed without ZeRO reduces them after it.
    XLA compiles the pass into one cluster, whose results appear at its end."""
    return "deepspeed" not in row["framework"].lower() and "XLA" not in row["flags"]


def _cycle_s(row: Row) -> float:
    """Seconds of Horovod's default cycle; 0 without Horovod. 5 ms, or 1 ms since 0.21 (November 2020;
    #2468)."""
    if row["strategy"] != "horovod":
        return 0.0
    container = CONTAINER.search(row["framework"])
    return 5e-3 if container and container.groups() < ("20", "12") else 1e-3


def _gradient_bytes(row: Row) -> int | None:
    """Bytes per exchanged gradient element; None if unknown. DeepSpeed and MXNet keep parameters and
    gradients in 16 bits when they compute in 16 bits; others differ by release and script."""
    if row["precision_norm"] not in ("fp16", "bf16", "fp8"):
        return 4
    return 2 if any(name in row["framework"].lower() for name in ("deepspeed", "mxnet")) else None
