"""Published training runs, read as runs of the catalogue: network, batch, device, precision, seconds.

`training.csv.gz` holds all that was collected, one row a run, with its source; `training.toml` says how names
are read and which rows cannot be used. `single_device_runs` are those that one device did alone.
"""

from __future__ import annotations

import csv
import gzip
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import as_file
from pathlib import Path
from typing import Any

from planner.device.precision import Precision, precision_named
from planner.device.recompute import Recompute
from planner.files.folders import shipped_folder
from planner.hardware import Device
from planner.model import Model
from planner.model.catalog import load_model, model_names, model_paths
from planner.parallel.contention import ACCESSES, MEMORY_SHARE
from planner.parallel.data.joint import slowest_factor, usual_sigma
from planner.validation.figures import DATA, figures, table

LONGEST = 10**7  # tokens of a sequence
HOPPER_AND_LATER = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")


@dataclass(frozen=True)
class Run:
    """One published run of one device. `unexplained`: why no setting explains it, "" where one does."""

    id: str
    source: str
    series: str
    model: Model
    batch: int
    device: Device
    precision: Precision
    framework: str
    optimizer: str
    input: str
    channels_last: bool | None
    step_s: float
    note: str
    update_share: float = 1.0  # of an optimizer's pass that falls to one batch on one device
    communication_s: float = 0.0  # of one batch, between the devices of one machine, beside the computation
    taken: float = 0.0  # of the time of that communication, what computing loses to it
    recompute: Recompute = "none"
    flash: bool | None = None
    repeated: float = 1.0  # micro-batches of a step, and those that a pipeline's stage waits for
    exposed_s: float = 0.0  # of a step, that no computation hides
    slower: float = 1.0  # that the slowest of several devices is than their mean
    unexplained: str = ""

    @property
    def per_s(self) -> float:
        return self.batch / self.step_s


@cache
def training_rows() -> tuple[Mapping[str, str], ...]:
    """All rows, as collected."""
    with (
        (DATA / "training.csv.gz").open("rb") as packed,
        gzip.open(packed, "rt", encoding="utf-8", newline="") as file,
    ):
        return tuple(csv.DictReader(file))


@cache
def device_named(name: str) -> Device | None:
    """A device of the catalogue, or one of those beside it that runs were published of."""
    entry = _catalogue_devices().get(name) or figures("training")["other_devices"].get(name)
    if entry is None or "tflops" not in entry:
        return None
    return Device(
        name,
        "gpu",
        {format: value * 1e12 for format, value in entry["tflops"].items()},
        memory_bytes=float(entry.get("memory_bytes", entry.get("memory_gib", 0) * 2**30)),
        memory_bytes_per_s=entry["memory_gbyte_per_s"] * 1e9,
        memory_kind=entry.get("memory_kind"),
        matmul_flops={format: value * 1e12 for format, value in entry.get("matmul_tflops", {}).items()},
        matmul_source=entry.get("matmul_source", ""),
        year=entry.get("year"),
        vendor=entry.get("vendor", ""),
    )


@cache
def _catalogue_devices() -> dict[str, Any]:
    devices: dict[str, Any] = tomllib.loads((shipped_folder("hardware") / "devices.toml").read_text("utf-8"))[
        "devices"
    ]
    return devices


@cache
def network_named(name: str) -> Model | None:
    """A model of the catalogue, or one of `networks/`."""
    if name in model_names():
        return load_model(name)
    with as_file(DATA / "networks") as folder:
        path = folder / f"{name}.toml"
        return _read_network(path) if path.is_file() else None


def _read_network(path: Path) -> Model:
    from planner.model.netlist import read_model

    def base(name: str) -> Path | None:
        beside = path.with_name(f"{name}.toml")
        return beside if beside.is_file() else model_paths().get(name)

    return read_model(path, base)


def single_device_runs() -> tuple[Run, ...]:
    """Runs of one device that the catalogue's networks and devices can express."""
    return (*(run for run in _collected() if not run.communication_s), *_throughputs())


def one_machine_runs() -> tuple[Run, ...]:
    """Transformers that are sharded over the devices of one machine with a fast fabric, as nobody publishes
    large ones on one device."""
    return tuple(run for run in _collected() if run.communication_s)


@cache
def _collected() -> tuple[Run, ...]:
    return tuple(runs_of(training_rows()))


def runs_of(rows: Iterable[Mapping[str, str]]) -> Iterator[Run]:
    """The rows that one device, or the sharded devices of one machine, ran."""
    known = figures("training")
    for row in rows:
        devices = int(float(row["devices"] or 0))
        if row["model"] not in known["models"] or not row["samples_per_s_global"] or not row["micro_batch"]:
            continue
        if devices != 1 and not _sharded_in_a_machine(row):
            continue
        device = device_named(device_name(row, known["devices"]))
        model = model_of(row)
        if device is None or model is None:
            continue
        batch = int(float(row["micro_batch"]))
        rate = known["fabric_gbyte_per_s"].get(row["device"].split("-")[0], 0) * 1e9 if devices > 1 else None
        if rate == 0:
            continue
        yield Run(
            row["id"],
            row["source_id"],
            row["series"],
            model,
            batch,
            device,
            precision_named(row["precision_norm"]),
            framework_of(row),
            optimizer_of(row, model),
            input_of(row),
            channels_last_of(row),
            devices * batch / float(row["samples_per_s_global"]),
            row["note"],
            communication_s=0.0 if rate is None else communication_s(row, model, rate),
            taken=0.0 if rate is None else _taken(device, rate),
            recompute="full" if row["ckpt_norm"] == "full" else "none",
            update_share=_update_share(row, devices) if model.sequence_length else 1.0,
            flash=flash_of(row) if model.sequence_length else None,
            slower=_slower(row, devices),
            unexplained=known["unexplained"].get(row["id"]) or _unexplained(row),
        )


def _update_share(row: Mapping[str, str], devices: int) -> float:
    """Accumulated batches share an update; sharded devices do a part of it each."""
    known = figures("training")["accumulated"].get(row["series"].split("|")[0])
    return 1 / max(1.0, float(known["batches"] if known else row["grad_accum"] or 1)) / devices


def _slower(row: Mapping[str, str], devices: int) -> float:
    """Devices wait for the slowest once a step."""
    passes = max(1.0, float(row["grad_accum"] or 1))
    step_s = float(row["global_batch"] or 0) / float(row["samples_per_s_global"])
    return slowest_factor(usual_sigma(step_s, passes), devices) if devices > 1 else 1.0


def _sharded_in_a_machine(row: Mapping[str, str]) -> bool:
    return (
        row["arch"] == "llm"
        and row["nodes"] == "1"
        and row["strategy_norm"] in ("zero1", "zero3/fsdp")
        and row["dp"] == row["devices"]
    )


def _taken(device: Device, rate: float) -> float:
    """`planner.parallel.contention`, for a link of so many bytes a second."""
    return min(ACCESSES * rate / (MEMORY_SHARE * (device.memory_bytes_per_s or rate)), 1.0)


def communication_s(row: Mapping[str, str], model: Model, rate: float) -> float:
    """Seconds that parameters are gathered (forward, backward) and gradients reduced for one batch, in
    sixteen bits; with ZeRO-1 once an update instead."""
    devices = int(float(row["devices"]))
    passes = 3.0 if row["strategy_norm"] == "zero3/fsdp" else 2.0 / max(1.0, float(row["grad_accum"] or 1))
    return passes * 2 * model.parameters * (devices - 1) / devices / rate


def model_of(row: Mapping[str, str]) -> Model | None:
    """The network of a row. BERT's vocabulary head: fine-tuning has none, and pre-training by NVIDIA's and
    DeepSpeed's code applies it to the masked positions alone (15%, one percent of the arithmetic); Hugging
    Face's code applies it to all."""
    name = figures("training")["models"][row["model"]]
    model = network_named(name)
    if model is None or model.sequence_length is None:
        return model
    length = row["seq_or_image"]
    if not (length.isascii() and length.isdigit() and 0 < int(length) <= LONGEST):
        return None
    return _network_of_length(name, int(length), model.name.startswith("bert") and not _whole_head(row))


@lru_cache(maxsize=256)  # hundreds of rows ran tens of networks
def _network_of_length(name: str, tokens: int, headless: bool) -> Model:
    network = network_named(name)
    assert network is not None
    model = network.with_sequence_length(tokens)
    if not headless:
        return model
    kept = tuple(
        layer
        for layer in model.layers
        if not layer.name.startswith("cls.predictions") and layer.name != "loss"
    )
    return replace(model, layers=kept)


def _whole_head(row: Mapping[str, str]) -> bool:
    return row["framework"].startswith(("milabench", "HuggingFace"))


def _unexplained(row: Mapping[str, str]) -> str:
    if "LDDL" in row["note"]:
        return "sequences are sorted by length, so that fewer tokens are computed than counted"
    if "TF32 flag has no effect" in row["note"]:
        return "labelled tf32 and computed in fp32"
    return ""


def optimizer_of(row: Mapping[str, str], model: Model) -> str:
    if "no optimizer" in row["optimizer"]:
        return "none"
    return "adam" if model.sequence_length else "momentum"


def flash_of(row: Mapping[str, str]) -> bool:
    """Whether attention is one kernel: large models since 2022 and PyTorch since 2.0; BERT's code of 2020 and
    2021 did not."""
    return row["framework"].startswith("milabench") or row["arch"] == "llm"


def device_name(row: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The catalogue's name of a row's device."""
    device, memory = row["device"], row["device_mem_gb"]
    return names.get(f"{device}/{memory}", names.get(device, device))


def framework_of(row: Mapping[str, str]) -> str:
    """Which framework's factors a row has, by what its software is called; what NVIDIA trains language models
    with brings TransformerEngine on devices that it was written for."""
    found = _framework_of(row)
    engine = row["arch"] == "llm" and row["device"].startswith(HOPPER_AND_LATER)
    return "transformer-engine" if engine and found in ("megatron", "fused") else found


def _framework_of(row: Mapping[str, str]) -> str:
    text = row["framework"]
    if text.startswith("Megatron-DeepSpeed"):
        return "megatron-deepspeed"
    if "MXNet" in text or row["source_id"].startswith("mlperf") or "transformer kernel" in text:
        return "fused"
    if "TensorFlow" in text or "Paddle" in text:
        return "xla"
    if "Megatron" in text or "NeMo" in text or "Primus" in text:
        return "megatron"
    if "MaxText" in text:
        return "xla"
    if "InternEvo" in text:
        return "pytorch-reentrant"
    nvidia = row["source_id"] in ("nvidia-dle", "lambda") or text.startswith("NVIDIA BERT")
    return "ngc" if nvidia else "pytorch"


def input_of(row: Mapping[str, str]) -> str:
    if "reads JPEG" in row["note"]:
        return "files"
    return "synthetic" if "no input pipeline" in row["note"] else "dali"


def channels_last_of(row: Mapping[str, str]) -> bool:
    """What a row says of the layout of images; NVIDIA's examples have channels last in sixteen bits."""
    sixteen = row["precision_norm"] in ("fp16", "bf16")
    if row["source_id"] == "nvidia-dle" or row["source_id"].startswith("mlperf"):
        return sixteen
    return "NHWC" in row["flags"] or "channels_last" in row["note"]


def _throughputs() -> Iterator[Run]:
    """Rows of throughput.csv; those without a batch, of other image sizes or frameworks are left out."""
    known = figures("training")
    for at, row in enumerate(table("throughput.csv")):
        model = network_named(row["model"])
        device = device_named(known["devices"].get(row["device"], row["device"]))
        name = row["framework"]
        framework = "mxnet" if name in ("MXNet 1.2", "MXNet 0.9") else None
        if name.startswith("TensorFlow") and "NVIDIA" not in name:
            framework = "tensorflow-1.1" if name == "TensorFlow 1.1" else "tensorflow"
        if name == "Torch7":
            framework = "torch7"
        if model is None or device is None or framework is None or not row["batch"] or "256" in row["note"]:
            continue
        precision = precision_named(row["precision"])
        if precision.compute not in device.flops:  # half precision without units for it: numbers kept so
            continue
        batch = int(row["batch"])
        key = f"{row['device']}, {name}, {row['model']}, {row['precision']}"
        unexplained = known["unexplained_throughput"].get(key, "")
        if framework == "mxnet" and row["model"] == "alexnet" and row["role"] != "fit":
            unexplained = "AlexNet falls off at large batches on every device: limited by its input"
        yield Run(
            f"throughput.csv:{at + 2}",
            f"{row['source'].split(' ')[0]} {name if framework == 'mxnet' else ''}".strip(),
            f"{row['device']}|{name}|{row['model']}|{row['precision']}",
            model,
            batch,
            device,
            precision,
            framework,
            {"torch7": "none", "mxnet": "momentum"}.get(framework, "sgd"),
            "synthetic",
            None,
            batch / float(row["images_per_s"]),
            row["note"],
            unexplained=unexplained,
        )
