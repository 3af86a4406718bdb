"""A user's table of measured runs, read as the published ones are.

Columns are those of `data/training.csv.gz` (docs/how-sure.md lists them); what is missing is empty or follows
from other columns, what is unknown is ignored. A row that cannot be expressed is counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.errors import BadInput
from planner.validation.evidence import Evidence
from planner.validation.figures import read_table

NEEDED = ("model", "device", "devices")
COLUMNS = [
    "id",
    "source_id",
    "series",
    "model",
    "arch",
    "seq_or_image",
    "micro_batch",
    "grad_accum",
    "global_batch",
    "precision_norm",
    "optimizer",
    "strategy",
    "strategy_norm",
    "dp",
    "tp",
    "pp",
    "cp",
    "ckpt_norm",
    "framework",
    "flags",
    "device",
    "device_mem_gb",
    "devices_per_node",
    "nodes",
    "devices",
    "intra_class",
    "inter_net",
    "inter_gbps_per_node",
    "inter_basis",
    "metric_value",
    "metric_unit",
    "memory_gib",
    "samples_per_s_global",
    "tokens_per_s_global",
    "step_time_s",
    "params_total",
    "peak_tflops",
    "note",
]
WHOLE = (
    *("micro_batch", "grad_accum", "global_batch", "dp", "tp", "pp", "cp"),
    *("devices_per_node", "nodes", "devices"),
)
NUMBERS = (
    *("inter_gbps_per_node", "memory_gib", "samples_per_s_global", "tokens_per_s_global"),
    *("step_time_s", "params_total", "peak_tflops"),
)
MAY_BE_OPEN = ("device_mem_gb",)  # "16/32": the table does not know which of both
MOST_WHOLE, MOST = 10**7, 1e15  # beyond these a figure is a slip of the pen
SHARDED = {
    "fsdp": "zero3/fsdp",
    "zero-3": "zero3/fsdp",
    "zero3": "zero3/fsdp",
    "zero-2": "zero2",
    "zero-1": "zero1",
}


def own_rows(path: Path) -> tuple[list[dict[str, str]], Counter[str]]:
    """The rows of a file with every column; those that have a figure which is none are counted by it."""
    rows = read_table(path)
    if not rows:
        raise BadInput(f"{path} has no rows; give a CSV file with a header and a run a line")
    for name in NEEDED:
        if name not in rows[0]:
            raise BadInput(f"{path} has no column {name}; it needs {', '.join(NEEDED)} and others by the run")
    found, refused = [], Counter[str]()
    for line, row in enumerate(rows, 2):
        read = _numbers(row)
        if isinstance(read, str):
            refused[read] += 1
        else:
            found.append(filled(read, line, path.stem))
    return found, refused


def _numbers(row: Mapping[str, str]) -> dict[str, str] | str:
    """A row whose counts and figures are such, or empty; or why it is none."""
    out = {key: value.strip() for key, value in row.items()}
    for name in (*WHOLE, *NUMBERS, *MAY_BE_OPEN):
        text = out.get(name, "")
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if name in WHOLE:
            if not (1 <= value <= MOST_WHOLE and value == int(value)):
                return f"{name} is {text[:40]!r}, not a whole number from 1 on"
            out[name] = str(int(value))
        elif not 1e-9 <= value <= MOST:
            if name not in MAY_BE_OPEN:
                return f"{name} is {text[:40]!r}, not a number above zero"
            out[name] = ""
    return out


def filled(row: Mapping[str, str], line: int, name: str) -> dict[str, str]:
    """A row with every column, those missing from others where they follow."""
    full = dict.fromkeys(COLUMNS, "") | {key: value.strip() for key, value in row.items()}
    full["id"] = full["id"] or f"line {line}"
    full["source_id"] = full["source_id"] or name
    full["arch"] = full["arch"] or ("llm" if full["seq_or_image"].isdigit() else "cnn")
    full["precision_norm"] = full["precision_norm"] or full.get("precision", "").lower() or "fp32"
    full["ckpt_norm"] = full["ckpt_norm"] or full.get("act_ckpt", "").lower() or "none"
    full["strategy_norm"] = full["strategy_norm"] or _strategy(full)
    per_node = full["devices_per_node"]
    if not full["nodes"] and full["devices"].isdigit():
        full["nodes"] = str(-(-int(full["devices"]) // int(per_node))) if per_node.isdigit() else "1"
    return full


def own_evidence(path: Path) -> list[Evidence]:
    """What each suite says of a user's runs; suites that can express none of them are left out."""
    from planner.validation.suites import allreduce, devices, memory, sharded

    rows, unread = own_rows(path)
    found = [suite.evidence_of(rows) for suite in (allreduce, sharded, devices, memory)]
    kept = [one for one in found if one.rows]
    if not kept:
        reasons: Counter[str] = sum((one.refused for one in found), start=unread)
        why = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3))
        raise BadInput(f"{path}: no row can be compared ({why or 'none is of a kind that is known'})")
    return [replace(kept[0], refused=kept[0].refused + unread), *kept[1:]]


def own_layouts(path: Path) -> list[Evidence]:
    """What `layouts` says of a user's table."""
    from planner.validation.suites import layouts

    found = layouts.evidence_of(read_table(path))
    if not found.rows:
        why = "; ".join(f"{count} x {reason}" for reason, count in found.refused.most_common(3))
        raise BadInput(f"{path}: no row can be compared ({why or 'it has none'})")
    return [found]


def _strategy(row: Mapping[str, str]) -> str:
    said = row["strategy"].lower()
    for word, strategy in SHARDED.items():
        if word in said:
            return strategy
    if any(row[degree] not in ("", "1") for degree in ("tp", "pp")):
        return "3d"
    return "single" if row["devices"] == "1" else "ddp"


def listed(found: Sequence[Evidence]) -> int:
    """Runs that were compared, in all suites."""
    return sum(len(one.rows) for one in found)
