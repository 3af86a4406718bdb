"""Reads tables of runs, both the published ones and a user's own.

    runs, refused = read_rows(packed_table("training.csv.gz"))

A table has the columns of `data/training.csv.gz` (docs/accuracy.md lists them). Every row becomes a `Run`, or
an `UnreadableRow` with the reason; a run with an unknown network, device or layout says so in `unknown`,
because its scaling can still be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.device.activations import Recompute, find_recompute_mode
from planner.device.precision import find_precision
from planner.errors import BadInput
from planner.hardware.catalog import catalog_device_name
from planner.memoize import memoize
from planner.model import Model
from planner.parallel.mesh import Mesh
from planner.validation.networks import find_published_device, network_of
from planner.validation.row import (
    figure_problem,
    load_figures,
    parse_count,
    parse_number,
    read_packed_table,
    reading_of,
)
from planner.validation.run import (
    LANGUAGE,
    TENSORS,
    Layout,
    Links,
    Row,
    Run,
    other_tier,
    software_of,
    tier_of,
)

STAGES = {"zero3/fsdp": 3, "zero2": 2, "zero1": 1}
INTERLEAVED = re.compile(r"\bVP (?P<stages>\d+)")
# Frameworks whose pipelines are interleaved, and those from before positions were cut beside features (2022).
INTERLEAVES = re.compile(r"Megatron-LM(?!.*2020)|Megatron-Core|NeMo|NEMO|NVIDIA Release|Bridge")
WHOLE_POSITIONS = re.compile(r"Megatron-DeepSpeed|Megatron-LM.*(2020|2021)")
USUAL_BLOCKS = 2  # of an interleaved stage
IN_MACHINE = re.compile(r"group=[48]\b")  # devices that state is spread over
WHOLE_TENSORS = re.compile(r"InternEvo")  # hybrid_zero_optim.py of InternLM/InternEvo
TOKENS = re.compile(r"(\d{1,7}) tokens$")  # of a micro-batch, where its sequences are not stated
# Networks and NICs with which RDMA is usual, whatever Ethernet is named besides them for management.
RDMA = re.compile(r"ib|infiniband|roce|rdma|connectx|efa|omni-?path|slingshot")
USUAL_PASSES = 8  # micro-batches per step, where only that one is not stated
UNSTATED = "definition not stated"
MICRO_BATCH = "micro-batch x accumulation x replicas is not the global batch"


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row that cannot be read, with the reason."""

    id: str
    source: str
    reason: str


@memoize
def training_rows() -> tuple[Row, ...]:
    """Rows of `training.csv.gz`, as collected."""
    return tuple(read_packed_table("training.csv.gz"))


@memoize
def published_runs() -> tuple[tuple[Run, ...], tuple[UnreadableRow, ...]]:
    """Runs of `training.csv.gz`, and its rows that cannot be read."""
    runs, refused = read_rows(training_rows())
    return tuple(replace(run, fit_id=run.id) for run in runs), tuple(refused)


def read_rows(rows: Iterable[Row]) -> tuple[list[Run], list[UnreadableRow]]:
    """Converts complete rows into runs; also returns the rows that cannot be read."""
    runs: list[Run] = []
    refused: list[UnreadableRow] = []
    for row in rows:
        run = read_run(row)
        if isinstance(run, Run):
            runs.append(run)
        else:
            refused.append(UnreadableRow(row["id"], row["source_id"], run))
    return runs, refused


def read_run(row: Row) -> Run | str:
    """Run that a row describes, or the reason why it cannot be read."""
    if wrong := figure_problem(row):
        return wrong
    devices = parse_count(row["devices"])
    if devices is None:
        return "no number of devices is stated"
    try:
        precision = find_precision(row["precision_norm"])
    except BadInput:
        return f"the precision {row['precision_norm']} is not modelled"
    known = load_figures("reading")
    inferred: list[str] = []
    row = _as_single_sequences(row, inferred)
    network = network_of(row, inferred)
    model = None if isinstance(network, str) else network
    device_name = _device_name(row)
    device = find_published_device(device_name)
    layout = _parse_layout(row, model, devices, inferred)
    reasons = [reason for reason in (*_unmodelled_features(row), network, layout) if isinstance(reason, str)]
    if device is None:
        reasons.append(f"the device {row['device']} is not in the catalog")
    stated = known["stated"].get(row["series"], {}).get(row["model"], {})
    batch = _parse_micro_batch(row, stated, devices, inferred)
    placed = layout if isinstance(layout, Layout) else None
    accumulate = _micro_batches_per_step(row, model, batch, placed)
    if isinstance(accumulate, str):
        reasons.append(accumulate)
        accumulate = 1
    if batch is None:
        reasons.append("no micro-batch is stated")
    run = Run(
        id=row["id"],
        source=row["source_id"],
        series=row["series"],
        arch=row["arch"],
        network=row["model"],
        model=model,
        parameters=parse_number(row["params_total"])
        or load_figures("networks")["parameters"].get(row["model"]),
        tensors=len(model.tensors) if model is not None and row["arch"] in ("cnn", "bert") else TENSORS,
        device_name=device_name,
        device=device,
        devices=devices,
        machines=parse_count(row["nodes"])
        or -(-devices // (parse_count(row["devices_per_node"]) or devices)),
        devices_per_machine=parse_count(row["devices_per_node"]) or 8,
        links=_parse_links(row),
        layout=placed,
        batch=batch,
        accumulate=accumulate,
        precision=precision,
        recompute=_parse_recompute(row, inferred),
        software=software_of(row, model),
        memory_gib=parse_number(row["memory_gib"]),
        device_gib=parse_number(row["device_mem_gb"]),
        note=row["note"],
        doubtful=_doubt_reason(row),
        unknown=tuple(dict.fromkeys(reasons)),
        inferred=tuple(inferred),
    )
    step_s = _step_s(row, run)
    if step_s is None:
        run = replace(run, unknown=(*run.unknown, "no rate that can be turned into seconds"))
    recalled = not (row["samples_per_s_global"] and row["params_total"])
    run = replace(run, step_s=step_s, rate_per_s=_rate_per_s(row), recalled=recalled)
    return replace(run, readings=tuple(_alternative_readings(row, run)))


def _device_name(row: Row) -> str:
    """Name of a row's device in the catalog or among published runs' devices."""
    words = row["device"] + (" 450W" if "450W" in row["note"] else "")
    known = load_figures("reading")["variants"].get(words)
    return str(known or catalog_device_name(row["device"], row["device_mem_gb"]))


def _as_single_sequences(row: Row, inferred: list[str]) -> Row:
    """Copy of a row, in which a micro-batch stated in tokens becomes one sequence of that length."""
    stated = TOKENS.match(row["micro_batch"])
    if row["arch"] not in LANGUAGE or stated is None or row["seq_or_image"].isdecimal():
        return row
    tokens = int(stated[1])
    whole = TOKENS.match(row["global_batch"])
    inferred.append(f"sequences of {tokens:,} tokens")
    batch = str(int(whole[1]) // tokens) if whole else row["global_batch"]
    return {**row, "seq_or_image": stated[1], "micro_batch": "1", "global_batch": batch}


def _alternative_readings(row: Row, run: Run) -> Iterable[Run]:
    """Yields other readings of a run that does not state its recompute, batch, rate or compiler."""
    if row["ckpt_norm"] == "unknown" and row["arch"] in LANGUAGE and run.device is not None:
        yield run.read_as(recompute="full")
    if run.step_s and row["arch"] in LANGUAGE and not (row["global_batch"] or row["grad_accum"]):
        yield run.read_as(accumulate=USUAL_PASSES, step_s=run.step_s * USUAL_PASSES)
    if run.step_s and run.recompute == "full" and UNSTATED in row["metric_unit"]:
        yield run.read_as(step_s=run.step_s * 3 / 4)  # without the repeated forward pass
    if tier := other_tier(row):
        yield run.read_as(software=replace(run.software, tier=tier))


def _doubt_reason(row: Row) -> str:
    """Explains why no known settings reproduce a row; empty string if some do."""
    known = load_figures("reading")
    if reason := known["doubtful"].get(row["id"]):
        return str(reason)
    if row["arch"] == "llm" and (reason := known["doubtful_sources"].get(row["source_id"])):
        return str(reason)
    if "sum of fwd/bwd/step timers" in row["note"]:
        return "its rate leaves out what happens between the timers of a step"
    if "LDDL" in row["note"]:
        return "sequences are sorted by length, so that fewer tokens are computed than counted"
    if "TF32 flag has no effect" in row["note"]:
        return "labelled tf32 and computed in fp32"
    if row["arch"] in LANGUAGE and "not tuned" in row["note"]:
        return "its source says that the machines were not tuned yet"
    return ""


def _unmodelled_features(row: Row) -> Iterable[str]:
    """Reasons why we cannot model a row: features that we lack."""
    if row["precision_norm"] == "fp4":
        yield "four-bit training is not modelled"
    if row["cp"] not in ("", "1"):
        yield "sequences cut over devices (context parallelism) are not modelled"
    if row["ep"] not in ("", "1"):
        yield "experts spread over devices (expert parallelism) are not modelled"
    if row["arch"] == "llm-lora" and row["tp"] not in ("", "1"):
        yield "adapters (LoRA) on layers that ranks share are not modelled"
    if "ZeRO++" in row["strategy"] or "offload" in row["strategy"]:
        yield "compressed collectives and offloading are not modelled"


def _parse_layout(row: Row, model: Model | None, devices: int, inferred: list[str]) -> Layout | str:
    """Degrees of parallelism and sharding of a row, or the reason why they contradict each other."""
    tensor, pipeline = (parse_count(row[key]) or 1 for key in ("tp", "pp"))
    replicas = parse_count(row["dp"]) or devices // (tensor * pipeline)
    if tensor * pipeline * replicas != devices:
        return f"degrees {tensor} x {pipeline} x {replicas} are not its {devices} devices"
    if row["arch"] not in LANGUAGE and row["strategy_norm"] not in STAGES:
        return Layout(replicas=replicas, tensor=tensor, pipeline=pipeline)
    blocks = 0 if model is None else len(model.blocks)
    text = row["strategy"]
    stage = STAGES.get(row["strategy_norm"], 0)
    if not stage and ("zero1" in text or "dist-opt" in text or "param gather" in row["flags"]):
        stage = 1  # Megatron's distributed optimizer
    if not stage and text.startswith("fsdp"):
        stage = 3  # beside tensor parallelism
    return Layout(
        replicas=replicas,
        tensor=tensor,
        pipeline=pipeline,
        interleave=_virtual_stages(row, blocks, pipeline, inferred),
        stage=stage,
        within_machine=bool(IN_MACHINE.search(text)),
        whole_tensors=bool(WHOLE_TENSORS.search(row["framework"])),
        whole_positions=bool(WHOLE_POSITIONS.search(row["framework"])),
    )


def _virtual_stages(row: Row, blocks: int, pipeline: int, inferred: list[str]) -> int:
    """Virtual pipeline stages per device, as stated or usual. Megatron's own tables and NVIDIA's
    configurations interleave whenever there is a pipeline; those that state it have one to four blocks per
    stage, mostly two."""
    if not Mesh.of(pipeline=pipeline).stage_axes:
        return 1
    known = load_figures("reading")["stated"].get(row["series"], {}).get(row["model"], {})
    if "interleave" in known:
        return int(known["interleave"])
    if stated := INTERLEAVED.search(row["flags"]):
        return int(stated["stages"])
    if not INTERLEAVES.search(row["framework"]):
        return 1
    stages = max(1, blocks // pipeline // USUAL_BLOCKS)
    if stages > 1:
        inferred.append(f"{stages} virtual pipeline stages")
    return stages


def _parse_micro_batch(row: Row, stated: Mapping[str, Any], devices: int, inferred: list[str]) -> int | None:
    """Micro-batch of a row, stated, derived or inferred; None if unknown."""
    batch = parse_count(row["micro_batch"]) or stated.get("micro_batch")
    if batch is not None:
        return int(batch)
    if row["arch"] in LANGUAGE:
        if not row["micro_batch"]:
            inferred.append("micro-batch 1")
        return 1
    whole = parse_count(row["global_batch"])
    accumulate = parse_count(row["grad_accum"]) or 1
    return whole // (devices * accumulate) or None if whole else None


def _micro_batches_per_step(
    row: Row, model: Model | None, batch: int | None, layout: Layout | None
) -> int | str:
    """Micro-batches per step, or the reason why they are unknown. Image training on one device has one: such
    a table accumulates the batch of several devices."""
    if row["arch"] in LANGUAGE:
        whole = parse_count(row["global_batch"])
        if whole is None:
            return parse_count(row["grad_accum"]) or 1 if row["micro_batch"] else "no global batch is stated"
        if layout is None or batch is None:
            return 1
        return MICRO_BATCH if whole % (batch * layout.replicas) else whole // (batch * layout.replicas)
    if series := load_figures("reading")["accumulated"].get(row["series"].split("|")[0]):
        return int(series["batches"])
    text = model is not None and model.sequence_length is not None
    return parse_count(row["grad_accum"]) or 1 if text or row["devices"] != "1" else 1


def _parse_links(row: Row) -> Links:
    """Links between a row's devices and machines."""
    network = row["inter_net"].lower()
    rate = parse_number(row["inter_gbps_per_node"])
    if row["arch"] == "llm" and (known := load_figures("reading")["network_rates"].get(row["source_id"])):
        rate = float(known["gbit_per_s"])
    sockets = "tcp" in network or ("ethernet" in network and not RDMA.search(network))
    flows = load_figures("reading")["flow_rates"].get(row["source_id"], {})
    flow = flows.get("gbit_per_s") if sockets else None
    return Links(
        fabric=reading_of(row, "fabrics", row["device"])
        or row["intra_class"]
        or load_figures("reading")["usual_fabrics"].get(row["device"], ""),
        network_bytes_per_s=None if rate is None else rate * 1e9 / 8,
        basis=row["inter_basis"],
        sockets=sockets,
        flow_bytes_per_s=None if flow is None else flow * 1e9 / 8,
        meshed=row["device"] == "V100-SXM2",  # those of DGX-2, SXM3, have a switch
    )


def _parse_recompute(row: Row, inferred: list[str]) -> Recompute:
    """Recompute mode of a row; `none` if it does not state one."""
    mode = row["ckpt_norm"]
    if mode == "unknown":
        inferred.append("no recompute")
    return find_recompute_mode(mode, tier_of(row)) if mode in {"selective", "full"} else "none"


def _step_s(row: Row, run: Run) -> float | None:
    """Seconds per step, as printed or from a published rate; None if unknown. Published FLOP/s are the
    model's (6 per parameter and token, plus attention), or the hardware's, which include recomputation."""
    samples, tokens = parse_number(row["samples_per_s_global"]), parse_number(row["tokens_per_s_global"])
    counted = reading_of(row, "counted", row["model"]) or 1
    if samples and run.arch not in LANGUAGE:
        return counted * run.samples_per_step / samples
    if seconds := parse_number(row["step_time_s"]):
        return seconds
    if tokens and run.model is not None and run.model.sequence_length:
        return counted * run.tokens_per_step / tokens
    if samples:
        return run.samples_per_step / samples
    unit, value = row["metric_unit"], parse_number(row["metric_value"])
    if value is None or run.model is None:
        return None
    flops = 6.0 * run.model.macs * run.samples_per_step  # forward and twice backward, two a multiply-add
    if unit.startswith("TFLOP/s/GPU"):
        if ("hardware" in unit or UNSTATED in unit) and run.recompute == "full":
            flops *= 4 / 3
        return flops / (value * 1e12 * run.devices)
    if unit == "MFU %" and (peak := parse_number(row["peak_tflops"])):
        return flops / (value / 100 * peak * 1e12 * run.devices)
    return None


def _rate_per_s(row: Row) -> float | None:
    """Samples per second over all devices; None unless the rate can be converted to samples."""
    if rate := parse_number(row["samples_per_s_global"]):
        return rate
    value, unit = parse_number(row["tokens_per_s_global"]), "tokens/s"
    if value is None:
        value, unit = parse_number(row["metric_value"]), row["metric_unit"].partition(" (")[0]
    if value is None or not unit.endswith(("/s", "/ms", "/s/GPU")):
        return None
    if unit.endswith("/GPU"):
        value *= int(row["devices"])
    if unit.startswith(("samples", "sequences", "images", "volumes")):
        return value
    parts = parse_number(row["seq_or_image"]) if unit.startswith("tokens") else None
    parts = parts or load_figures("reading")["parts_of_a_sample"].get(row["model"])
    return value / parts if parts else None
