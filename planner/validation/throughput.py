"""Reads `data/throughput.csv`: published throughputs of single devices by framework."""

from __future__ import annotations

from planner.device.precision import Precision, find_precision
from planner.errors import BadInput
from planner.hardware.catalog import catalog_device_name
from planner.memoize import memoize
from planner.validation.networks import find_network, find_published_device
from planner.validation.row import load_figures, read_data_table
from planner.validation.run import Row, Run, Software


@memoize
def throughput_runs() -> tuple[Run, ...]:
    """Runs of throughput.csv with a batch, a known framework and the usual image size."""
    runs = (_throughput_run(row, line) for line, row in enumerate(read_data_table("throughput.csv"), 2))
    return tuple(run for run in runs if run is not None)


def _throughput_run(row: Row, line: int) -> Run | None:
    """Run that a row describes; None if it cannot be compared."""
    name = row["framework"]
    tier = "mxnet" if name in ("MXNet 1.2", "MXNet 0.9") else None
    if name.startswith("TensorFlow") and "NVIDIA" not in name:
        tier = "tensorflow-1.1" if name == "TensorFlow 1.1" else "tensorflow"
    if name == "Torch7":
        tier = "torch7"
    device_name = catalog_device_name(row["device"])
    model, device, precision = find_network(row["model"]), find_published_device(device_name), _format(row)
    if model is None or device is None or tier is None or not row["batch"] or "256" in row["note"]:
        return None
    if precision is None or precision.compute not in device.flops:  # half precision without units for it
        return None
    key = f"{row['device']}, {name}, {row['model']}, {row['precision']}"
    doubtful = load_figures("reading")["doubtful_throughput"].get(key, "")
    if tier == "mxnet" and row["model"] == "alexnet" and row["role"] != "fit":
        doubtful = "AlexNet falls off at large batches on every device: limited by its input"
    batch = int(row["batch"])
    optimizer = {"torch7": "none", "mxnet": "momentum"}.get(tier, "sgd")
    return Run(
        id=f"throughput.csv:{line}",
        fit_id=f"throughput.csv:{line}",
        source=f"{row['source'].split(' ')[0]} {name if tier == 'mxnet' else ''}".strip(),
        series=f"{row['device']}|{name}|{row['model']}|{row['precision']}",
        arch="cnn",
        network=row["model"],
        model=model,
        parameters=model.parameters,
        device_name=device_name,
        device=device,
        batch=batch,
        precision=precision,
        software=Software(tier=tier, text=name, optimizer=optimizer, input="synthetic"),
        step_s=batch / float(row["images_per_s"]),
        note=row["note"],
        doubtful=doubtful,
    )


def _format(row: Row) -> Precision | None:
    """Number format of a row; None if unknown."""
    try:
        return find_precision(row["precision"])
    except BadInput:
        return None
