"""Every reader of foreign files, with real files as seeds for fuzzing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mutations import Form
from seeds import (
    answers,
    aws_lists,
    config_files,
    event_files,
    families,
    files_of,
    headers,
    inventories,
    log_rows,
    log_tables,
    machines,
    measured_files,
    mlflow_metrics,
    onnx_files,
    price_lists,
    priority_files,
    profiles,
    pytorch,
    recorded_profiles,
    rows_of,
    run_metadata,
    run_tables,
    transfer_tables,
    weights_indices,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


MODELS = ("alexnet", "resnet18", "seq32", "llama2-7b", "t5-base", "vit-b16")


@dataclass(frozen=True)
class Reader:
    """A reader: any file gives an object or one of planner's errors."""

    name: str
    form: Form
    suffix: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], Any]


@contextmanager
def environment(name: str, folder: Path) -> Iterator[None]:
    """Set an environment variable within a block."""
    before = os.environ.get(name)
    os.environ[name] = str(folder)
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _model(path: Path) -> Any:
    from planner.model.netlist import read_model

    return read_model(path, lambda name: ROOT / "models" / f"{name}.toml" if name == "resnet50" else None)


def _hardware(path: Path) -> Any:
    from planner.hardware.catalog import load_hardware

    return load_hardware(str(path)).price


def _config(path: Path) -> Any:
    from planner.answers.questions import parse_request, read_scenario

    return parse_request(**read_scenario(path))


def _sweep(path: Path) -> Any:
    from planner.answers.sweep import read_sweep, requests_from

    return requests_from(read_sweep(path).scenarios)


def _profile(path: Path) -> Any:
    from planner.simulator.step.files import encode, load

    return encode(load(path))  # what is accepted can be written again


def _trace(path: Path) -> Any:
    from planner.device.recorded.importers import import_profile

    return import_profile([path], batch=4)


def _hugging_face(path: Path) -> Any:
    from planner.model.importers import format_model_file, import_file

    return format_model_file(import_file(path).values)


def _family(path: Path) -> Any:
    """The network of a configuration with a user's own family."""
    from planner.model.importers.hugging_face import known_types, model_file_values

    folder = path.parent / "families"
    folder.mkdir(exist_ok=True)
    path.replace(folder / "fuzzed.toml")
    config = {"model_type": "fuzzed", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 128, "vocab_size": 99, "max_position_embeddings": 64}
    with environment("PLANNER_PATH", path.parent):
        return known_types(), model_file_values(path, config, None)


def _weights_index(path: Path) -> Any:
    """Import a configuration with an index of weights beside it."""
    from planner.model.importers import import_file

    path.replace(path.parent / "model.safetensors.index.json")
    config = path.parent / "config.json"
    config.write_bytes(config_files()[0])
    return import_file(config)


def _transfers(path: Path) -> Any:
    from planner.servers.calibration import calibrate_overhead

    return calibrate_overhead([path])


def _window(path: Path) -> Any:
    from planner.servers.calibration import calibrate_window

    return calibrate_window([path], 1e9)


def _inventory(path: Path) -> Any:
    """One file with the output of nvidia-smi, its topology, lscpu and ibstat."""
    from planner.calibrate.accelerator import to_toml
    from planner.files.regular_file import read_text, write_file
    from planner.hardware.inventory import MachineAnswers, machine_tables

    text = read_text(path)
    answers = MachineAnswers("own", nvidia_smi=text, topology=text, lscpu=text, ibstat=text)
    tables = machine_tables(answers)
    written = path.with_suffix(".toml")
    write_file(written, to_toml(tables))
    return _hardware(written)


def _simulated(path: Path) -> Any:
    """Simulate two machines with a recorded step."""
    import planner

    return planner.simulate("", profile=str(path), hardware="g4dn.xlarge", workers=2, exchange="allreduce")


def _safetensors(path: Path) -> Any:
    from planner.model.importers.hugging_face import read_safetensors_header

    text = path.read_bytes()
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as whole:  # what is replayed stays as it is
        whole.write(len(text).to_bytes(8, "little") + text)
        whole.flush()
        return read_safetensors_header(Path(whole.name))


def _onnx(path: Path) -> Any:
    from planner.model.importers import import_file

    return import_file(path, shapes={"batch": 2})


def _prices(path: Path) -> Any:
    from planner.hardware.prices.lists import read_list

    return read_list(path, "aws")


def _runs(path: Path) -> Any:
    """Read a user's table of runs in every suite."""
    from planner.validation import memory, scaling
    from planner.validation.own import read_user_rows
    from planner.validation.predict import exclusion_reason
    from planner.validation.reader import read_rows

    rows, _ = read_user_rows(path)
    runs, _ = read_rows(rows)
    return (
        [exclusion_reason(run) for run in runs],
        scaling.pair_runs(runs, {}),
        [memory.peak_gib(run) for run in runs],
    )


def _layouts(path: Path) -> Any:
    from planner.validation.layouts import read_layouts
    from planner.validation.row import read_table

    return read_layouts(read_table(path), path.stem)


def _speed(path: Path) -> Any:
    from planner.answers.checking import measured_speed

    return measured_speed(path, 8)


def _mlflow(path: Path) -> Any:
    """Read a metric in the folder of an MLflow run."""
    folder = path.parent / "metrics"
    folder.mkdir(exist_ok=True)
    path.replace(folder / "step_time")
    return _speed(folder)


def _answer(path: Path) -> Any:
    from planner.answers.answer_files import compare_plans, read_chosen_plan
    from planner.answers.checking import check_speed

    plan = read_chosen_plan(path)
    return check_speed(plan, 100.0), plan.machines, compare_plans(plan, _known_answer())


@cache
def _known_answer() -> Any:
    from planner.answers.answer_files import read_chosen_plan

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(answers()[0])
        file.flush()
        return read_chosen_plan(file.name)


def _measured(path: Path) -> Any:
    """Read the factors of the user's own runs."""
    from planner.search.measured import FILE, REACHES, factor_for, load_runs

    path.replace(path.parent / FILE)
    with environment("PLANNER_HOME", path.parent):
        runs = load_runs()
    return [
        factor_for(runs, device, reach) for device in {run.device for run in runs[:50]} for reach in REACHES
    ]


@cache
def _ordered() -> Any:
    from planner.simulator.step.files import decode

    return decode(profiles()[0])


def _priorities(path: Path) -> Any:
    from planner.servers.order_request import read_priorities

    return read_priorities(path, _ordered())


READERS = {
    reader.name: reader
    for reader in (
        Reader("model", "toml", ".toml", files_of("models", *MODELS), _model),
        Reader("hardware", "toml", ".toml", machines, _hardware),
        Reader(
            "config", "toml", ".toml",
            files_of("configs", "vgg11-20usd", "resnet152-deadline", "resnet50-compare"),
            _config,
        ),
        Reader("sweep", "toml", ".toml", files_of("configs", "sweep"), _sweep),
        Reader("profile", "json", ".profile", profiles, _profile),
        Reader("run_metadata", "wire", ".pb", run_metadata, _trace),
        Reader("pytorch", "json", ".json", pytorch, _trace),
        Reader("priorities", "json", ".json", priority_files, _priorities),
        Reader("simulated", "json", ".profile", recorded_profiles, _simulated),
        Reader("window", "wire", ".pb", run_metadata, _window),
        Reader("prices", "csv", ".csv", price_lists, _prices),
        Reader("aws", "json", ".json", aws_lists, _prices),
        Reader("transfers", "csv", ".csv", transfer_tables, _transfers),
        Reader("inventory", "text", ".txt", inventories, _inventory),
        Reader("family", "toml", ".toml", families, _family),
        Reader("weights_index", "json", ".json", weights_indices, _weights_index),
        Reader("runs", "csv", ".csv", run_tables, _runs),
        Reader("layouts", "csv", ".csv", lambda: [rows_of("layouts", 1, 2, 3)], _layouts),
        Reader("log_table", "csv", ".csv", log_tables, _speed),
        Reader("log_rows", "json", ".json", log_rows, _speed),
        Reader("mlflow", "text", "", mlflow_metrics, _mlflow),
        Reader("tensorboard", "events", ".tfevents", event_files, _speed),
        Reader("answer", "json", ".json", answers, _answer),
        Reader("measured", "json", ".json", measured_files, _measured),
        Reader("hugging_face", "json", ".json", config_files, _hugging_face),
        Reader("safetensors", "json", ".safetensors", headers, _safetensors),
        *([Reader("onnx", "onnx", ".onnx", onnx_files, _onnx)] if find_spec("onnx") else []),
    )
}  # fmt: skip
