"""Published runs of large language models, read as plans: network, layout, batches, precision, seconds.

A row is read or refused with a reason. Where a source prints floating operations a second, the seconds follow
from its own way of counting: the model's (6 for each parameter and token, and attention), or the hardware's,
with the forward pass counted twice where it was computed twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.device.precision import Precision, precision_named
from planner.device.recompute import Recompute
from planner.model import Model
from planner.parallel.mesh import Mesh
from planner.parallel.pipeline import PipelineParallel
from planner.parallel.tensor import TensorParallel
from planner.validation.figures import figures
from planner.validation.shapes import Dimensions, transformer

Row = Mapping[str, str]
FLAGS = re.compile(r"hidden (?P<hidden>\d+) layers (?P<layers>\d*)(?: heads (?P<heads>\d*))?")
VOCABULARY = re.compile(r"vocab (?P<size>\d+)(?P<thousands>k?)")
INTERLEAVED = re.compile(r"\bVP (?P<stages>\d+)")
# Frameworks whose pipelines are interleaved, and those from before positions were cut beside features (2022).
INTERLEAVES = re.compile(r"Megatron-LM(?!.*2020)|Megatron-Core|NeMo|NEMO|NVIDIA Release|Bridge")
WHOLE_POSITIONS = re.compile(r"Megatron-DeepSpeed|Megatron-LM.*(2020|2021)")
USUAL_BLOCKS = 2  # of an interleaved stage
IN_MACHINE = re.compile(r"group=[48]\b")  # devices that state is spread over
# Sharding that deals out whole tensors (planner.parallel.data.owned): hybrid_zero_optim.py of
# InternLM/InternEvo.
OWNERS = re.compile(r"InternEvo")
# Attention that writes its scores: software of before 2023, and devices that FlashAttention does not run on.
NO_FLASH = re.compile(r"Megatron-DeepSpeed|20(1\d|2[012])(?!\d)")
BEFORE_AMPERE = ("V100", "P100", "T4")


@dataclass(frozen=True, slots=True)
class LargeRun:
    """One published run. `stage` is that of sharding, 0 for plain replicas. `inferred`: settings that the
    source leaves open and that were taken as most runs have them."""

    id: str
    source: str
    series: str
    model: Model
    device: str
    devices: int
    devices_per_machine: int
    network_bytes_per_s: float | None
    replicas: int
    tensor: int
    pipeline: int
    interleave: int
    stage: int
    micro_batch: int
    accumulate: int
    recompute: Recompute
    precision: Precision
    framework: str
    step_s: float
    memory_gib: float | None
    inferred: tuple[str, ...] = ()
    sequence: bool = True  # devices that share layers cut positions too
    within_machine: bool = False  # shards are those of one machine
    owners: bool = False  # shards are whole tensors

    @property
    def mesh(self) -> Mesh:
        """How a replica is spread over devices."""
        return Mesh(
            (TensorParallel(self.tensor, self.sequence), PipelineParallel(self.pipeline, self.interleave))
        )

    @property
    def tokens_per_step(self) -> int:
        return self.replicas * self.accumulate * self.micro_batch * (self.model.sequence_length or 1)

    @property
    def kind(self) -> str:
        """`sharded` for FSDP and ZeRO, `cut` for tensor and pipeline, `plain` for the rest."""
        if self.tensor * self.pipeline > 1:
            return "cut"
        return "sharded" if self.stage else "plain"


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that cannot be read as a plan, and why."""

    id: str
    source: str
    reason: str


def read_runs(rows: Iterable[Row]) -> tuple[list[LargeRun], list[Refused]]:
    """The runs of language models among rows, and what could not be read."""
    runs: list[LargeRun] = []
    refused: list[Refused] = []
    for row in rows:
        if row["arch"] != "llm":
            continue
        found = read_run(row)
        if isinstance(found, LargeRun):
            runs.append(found)
        else:
            refused.append(Refused(row["id"], row["source_id"], found))
    return runs, refused


def read_run(row: Row) -> LargeRun | str:
    """A row as a run, or the reason why not."""
    known = figures("large")
    if reason := known["unexplained"].get(row["id"]) or known["unexplained_sources"].get(row["source_id"]):
        return str(reason)
    for reason in _unmodelled(row):
        return reason
    inferred: list[str] = []
    dimensions = _dimensions(row, inferred)
    if dimensions is None:
        return f"the dimensions of {row['model']} are not known"
    device = known["devices"].get(f"{row['device']}/{row['device_mem_gb']}") or known["devices"].get(
        row["device"]
    )
    if device is None:
        return f"the device {row['device']} is not in the catalogue"
    if not row["seq_or_image"].isdigit():
        return "no sequence length is stated"
    tensor, pipeline, replicas, devices = (int(row[key] or 1) for key in ("tp", "pp", "dp", "devices"))
    if tensor * pipeline * replicas != devices:
        return f"degrees {tensor} x {pipeline} x {replicas} are not its {devices} devices"
    if not row["global_batch"].isdigit():
        return "no global batch is stated"
    batch = int(row["global_batch"])
    stated = known["stated"].get(row["series"], {}).get(row["model"], {})
    micro = int(row["micro_batch"]) if row["micro_batch"].isdigit() else stated.get("micro_batch", 1)
    if not row["micro_batch"] and not stated:
        inferred.append("micro-batch 1")
    if batch % (micro * replicas):
        return "micro-batch x accumulation x replicas is not the global batch"
    model = transformer(dimensions, int(row["seq_or_image"]), row["model"])
    recompute = _recompute(row, inferred)
    step_s = _step_s(row, model, batch, recompute)
    if step_s is None:
        return "no rate that can be turned into seconds"
    interleave = stated.get("interleave") or _interleave(row, model, pipeline, inferred)
    network = known["networks"].get(row["source_id"], {"gbit_per_s": row["inter_gbps_per_node"]})[
        "gbit_per_s"
    ]
    return LargeRun(
        row["id"],
        row["source_id"],
        row["series"],
        model,
        device,
        devices,
        int(row["devices_per_node"] or 8),
        float(network) / 8 * 1e9 if network else None,
        replicas,
        tensor,
        pipeline,
        interleave,
        _stage(row),
        micro,
        batch // (micro * replicas),
        recompute,
        precision_named(row["precision_norm"]),
        row["framework"],
        step_s,
        float(row["memory_gib"]) if row["memory_gib"] else None,
        tuple(inferred),
        sequence=not WHOLE_POSITIONS.search(row["framework"]),
        within_machine=bool(IN_MACHINE.search(row.get("strategy", ""))),
        owners=bool(OWNERS.search(row["framework"])),
    )


def untuned(row: Row) -> bool:
    """Whether the source says that the machines of this run were not set up well yet."""
    return "not tuned" in row.get("note", "")


def _unmodelled(row: Row) -> Iterator[str]:
    if row["precision_norm"] == "fp4":
        yield "four-bit training is not modelled"
    if row["cp"] not in ("", "1"):
        yield "sequences cut over devices (context parallelism) are not modelled"
    if "ZeRO++" in row.get("strategy", "") or "offload" in row.get("strategy", ""):
        yield "compressed collectives and offloading are not modelled"


def _dimensions(row: Row, inferred: list[str]) -> Dimensions | None:
    flash = not (NO_FLASH.search(row["framework"]) or row["device"].startswith(BEFORE_AMPERE))
    if stated := FLAGS.search(row["flags"]):
        hidden, size = int(stated["hidden"]), VOCABULARY.search(row["flags"])
        vocabulary = int(size["size"]) * (1000 if size["thousands"] else 1) if size else 51200
        vocabulary = -(-vocabulary // 128) * 128
        layers = int(stated["layers"] or 0)
        if not layers:  # from the size: a layer has twelve times the square of its width
            layers = round((float(row["params_total"]) - vocabulary * hidden) / (12 * hidden**2))
            inferred.append(f"{layers} layers")
        heads = int(stated["heads"] or 0) or _usual_heads(hidden)
        return Dimensions("gpt", hidden, layers, heads, vocabulary, flash=flash)
    found = _by_name().get(_plain(row["model"]))
    return None if found is None else Dimensions(**found, flash=flash)


@cache
def _by_name() -> dict[str, dict[str, Any]]:
    return {_plain(name): of for name, of in figures("large")["models"].items()}


def _plain(name: str) -> str:
    """A network's name however it is written: Llama-3-8B, LLAMA3_8B, llama3 8b."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _usual_heads(hidden: int) -> int:
    """So many that a head is as near to 128 features as can be."""
    return min((n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(hidden / n - 128))


def _interleave(row: Row, model: Model, pipeline: int, inferred: list[str]) -> int:
    """Stages a device has, as stated. Megatron's own tables and NVIDIA's configurations interleave wherever
    there is a pipeline; those that state how have one to four blocks a stage, most of them two."""
    if stated := INTERLEAVED.search(row["flags"]):
        return int(stated["stages"])
    if pipeline == 1 or not INTERLEAVES.search(row["framework"]):
        return 1
    stages = max(1, len(model.blocks) // pipeline // USUAL_BLOCKS)
    if stages > 1:
        inferred.append(f"{stages} stages a device")
    return stages


def _stage(row: Row) -> int:
    """Of sharding; Megatron's distributed optimizer is stage 1."""
    strategy = row["strategy_norm"]
    if strategy in ("zero3/fsdp", "zero2", "zero1"):
        return {"zero3/fsdp": 3, "zero2": 2, "zero1": 1}[strategy]
    text = row.get("strategy", "")
    return 1 if "zero1" in text or "dist-opt" in text or "param gather" in row["flags"] else 0


def _recompute(row: Row, inferred: list[str]) -> Recompute:
    said = row["ckpt_norm"]
    if said == "full":
        return "full"
    if said == "selective":
        return "selective"
    if said == "unknown":
        inferred.append("no recompute")
    return "none"


def _step_s(row: Row, model: Model, batch: int, recompute: Recompute) -> float | None:
    """Seconds of a step, as printed or from what was printed."""
    if row["step_time_s"]:
        return float(row["step_time_s"])
    if row["tokens_per_s_global"]:
        return batch * (model.sequence_length or 1) / float(row["tokens_per_s_global"])
    unit, value, devices = row["metric_unit"], float(row["metric_value"] or 0), int(row["devices"])
    flops = 6.0 * model.macs * batch  # forward and twice backward, two a multiply-add
    if unit.startswith("TFLOP/s/GPU"):
        if "hardware" in unit and recompute == "full":
            flops *= 4 / 3
        return flops / (value * 1e12 * devices)
    if unit == "MFU %" and row.get("peak_tflops"):
        return flops / (value / 100 * float(row["peak_tflops"]) * 1e12 * devices)
    return None
