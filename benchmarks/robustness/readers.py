"""Every reader of files that others write, with real files to start from; for fuzzing."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from mutations import Form
from trace_seeds import pytorch, run_metadata, timelines

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


MODELS = ("alexnet", "resnet18", "seq32", "llama2-7b", "t5-base", "vit-b16")


@dataclass(frozen=True)
class Reader:
    """`read` gives an object or raises one of planner's errors, whatever the file holds."""

    name: str
    form: Form
    suffix: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], Any]


def _model(path: Path) -> Any:
    from planner.model.netlist import read_model

    return read_model(path, lambda name: ROOT / "models" / f"{name}.toml" if name == "resnet50" else None)


def _hardware(path: Path) -> Any:
    from planner.hardware.catalog import load_hardware

    return load_hardware(str(path)).price


def _config(path: Path) -> Any:
    from planner.answers.scenario import parse_request, read_scenario

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
    from planner.model.importers import import_file, toml_of

    return toml_of(import_file(path).values)


def _family(path: Path) -> Any:
    """The network of a configuration whose family a user described."""
    from planner.model.importers.hugging_face import file_of, known_types

    folder = path.parent / "families"
    folder.mkdir(exist_ok=True)
    path.replace(folder / "fuzzed.toml")
    config = {"model_type": "fuzzed", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 128, "vocab_size": 99, "max_position_embeddings": 64}
    with mock.patch.dict(os.environ, PLANNER_PATH=str(path.parent)):
        return known_types(), file_of(path, config, None)


def _weights_index(path: Path) -> Any:
    """A configuration beside an index of weights."""
    from planner.model.importers import import_file

    path.replace(path.parent / "model.safetensors.index.json")
    config = path.parent / "config.json"
    config.write_bytes(_hugging_face_seeds()[0])
    return import_file(config)


def _transfers(path: Path) -> Any:
    from planner.servers.network.calibration import calibrate_overhead

    return calibrate_overhead([path])


def _window(path: Path) -> Any:
    from planner.servers.network.calibration import calibrate_window

    return calibrate_window([path], 1e9)


def _inventory(path: Path) -> Any:
    """Output of nvidia-smi, its topology, lscpu and ibstat in one file: each looks for its own lines."""
    from planner.calibrate.accelerator import to_toml
    from planner.files.regular_file import text_of, write_file
    from planner.hardware.inventory import MachineAnswers, machine_tables

    text = text_of(path)
    answers = MachineAnswers("own", nvidia_smi=text, topology=text, lscpu=text, ibstat=text)
    tables = machine_tables(answers)
    written = path.with_suffix(".toml")
    write_file(written, to_toml(tables))
    return _hardware(written)


def _simulated(path: Path) -> Any:
    """A plan of two machines by a recorded step."""
    import planner

    return planner.simulate("", profile=str(path), hardware="g4dn.xlarge", workers=2, exchange="allreduce")


def _safetensors(path: Path) -> Any:
    from planner.model.importers.hugging_face import read_header

    text = path.read_bytes()
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as whole:  # what is replayed stays as it is
        whole.write(len(text).to_bytes(8, "little") + text)
        whole.flush()
        return read_header(Path(whole.name))


def _onnx(path: Path) -> Any:
    from planner.model.importers import import_file

    return import_file(path, shapes={"batch": 2})


def _prices(path: Path) -> Any:
    from planner.hardware.prices.lists import read_list

    return read_list(path, "aws")


def _runs(path: Path) -> Any:
    """A user's table of runs, as every suite reads it."""
    from planner.validation import memory, scaling
    from planner.validation.own import own_rows
    from planner.validation.predict import obstacle
    from planner.validation.reader import read_rows

    rows, _ = own_rows(path)
    runs, _ = read_rows(rows)
    return [obstacle(run) for run in runs], scaling.pairs(runs, {}), [memory.peak_gib(run) for run in runs]


def _layouts(path: Path) -> Any:
    from planner.validation.layouts import read_layouts
    from planner.validation.row import read_table

    return read_layouts(read_table(path), path.stem)


def _step_times(path: Path) -> Any:
    from planner.answers.checking import measured_rate, read_step_times

    return measured_rate(read_step_times(path), 8)


def _answer(path: Path) -> Any:
    from planner.answers.answer_files import chosen_plan
    from planner.answers.checking import check
    from planner.answers.differing import difference

    plan = chosen_plan(path)
    return check(plan, 100.0), plan.machines, difference(plan, _known_answer())


@cache
def _known_answer() -> Any:
    from planner.answers.answer_files import chosen_plan

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(_answers()[0])
        file.flush()
        return chosen_plan(file.name)


def _measured(path: Path) -> Any:
    """What the user's own runs say: the file stands in a folder of its own."""
    from planner.search.measured import FILE, REACHES, factor_for, load

    path.replace(path.parent / FILE)
    with mock.patch.dict(os.environ, PLANNER_HOME=str(path.parent)):
        runs = load()
    return [factor_for(runs, run.device, reach) for run in runs for reach in REACHES]


def _price_lists() -> list[bytes]:
    lists = [(DATA / "prices" / name).read_bytes() for name in ("v8/aws/vms.csv", "gpuhunt/aws.csv")]
    two_columns = b"machine,usd_per_hour\np3.2xlarge,3.06\ng4dn.xlarge,$0.526\n"
    return [*(_first_lines(text) for text in lists), two_columns]


def _first_lines(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:40])


def _aws_lists() -> list[bytes]:
    return [(DATA / "prices" / "aws" / name).read_bytes() for name in ("index.json", "get-products.json")]


def _transfer_tables() -> list[bytes]:
    table = _first_lines((DATA / "overhead_capture.csv").read_bytes())
    rows = [{"bytes": 2.0**k, "overhead_s": 1e-4 + 1e-9 * 2**k, "direction": "uplink"} for k in range(10, 22)]
    return [table, json.dumps(rows).encode()]


INVENTORY = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)
|   0  NVIDIA A100-SXM4-80GB       On |   00000000:07:00.0 Off |                    0 |
| N/A   28C    P0             58W /  400W |       1MiB /  81920MiB |      0%      Default |
NVIDIA A100-SXM4-80GB, 81920 MiB
\tGPU0\tGPU1\tCPU Affinity
GPU0\t X \tNV12\t0-63
GPU1\tNV12\t X \t0-63
Model name:          AMD EPYC 7763 64-Core Processor
CPU(s):              128
\tPort 1:
\t\tState: Active
\t\tRate: 200
\t\tLink layer: InfiniBand
"""


def _inventories() -> list[bytes]:
    lines = INVENTORY.splitlines(keepends=True)
    return [INVENTORY.encode(), "".join([*lines[2:4], *lines[5:]]).encode(), "".join(lines[4:]).encode()]


def _family_seeds() -> list[bytes]:
    folder = ROOT / "models" / "families"
    names = ("_decoder", "llama", "gemma2", "mixtral", "bert", "t5", "gpt_oss", "deepseek_v2")
    return [(folder / f"{name}.toml").read_bytes() for name in names]


def _index_seeds() -> list[bytes]:
    names = [f"model.layers.{k}.mlp.up_proj.weight" for k in range(3)]
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "a")}).encode()]


def _rows_of(name: str, *wanted: int) -> bytes:
    """The heading and some rows of a table that planner ships."""
    packed = (ROOT / "planner" / "validation" / "data" / f"{name}.csv.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    return ("\n".join([lines[0], *(lines[at] for at in wanted)]) + "\n").encode()


OWN_RUNS = b"""model,device,devices,devices_per_node,micro_batch,precision,samples_per_s_global,memory_gib
resnet50,V100-SXM2,8,8,128,fp16,6000,12
gpt2,A100-SXM4,16,8,8,bf16,900,30
"""


def _run_tables() -> list[bytes]:
    return [OWN_RUNS, _rows_of("training", 1, 400, 900, 1500, 2000, 2300)]


def _answers() -> list[bytes]:
    plan = {"model": "alexnet", "batch": 64, "worker_hardware": "p3.2xlarge", "workers": 4, "cluster": "4 x"}
    plan |= {"samples_per_s": 900.0, "samples_per_s_low": 880.0, "samples_per_s_high": 920.0, "step_s": 0.1}
    plan |= {"utilisation": {"worker": 0.5, "uplink[0]": 0.9}, "bottleneck": "uplink[0]", "device": "V100"}
    plan |= {"rented": {"workers": {"machines": 4}}, "exchange": {"kind": "allreduce"}}
    return [json.dumps({"version": 2, name: plan}).encode() for name in ("recommendation", "plan")]


def _measured_files() -> list[bytes]:
    run = {
        "device": "V100",
        "reach": "device",
        "model": "alexnet",
        "precision": "fp32",
        "as_of": "2026-11-01",
    }
    run |= {"predicted_samples_per_s": 900.0, "measured_samples_per_s": 850.0}
    return [json.dumps({"version": 1, "runs": [run, run | {"reach": "machine"}]}).encode()]


def _hugging_face_seeds() -> list[bytes]:
    wide = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
    wide |= {"vocab_size": 99, "max_position_embeddings": 64}
    names = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2, "vocab_size": 99}
    configs: list[dict[str, Any]] = [
        {"model_type": "llama", "num_key_value_heads": 2, "tie_word_embeddings": False, **wide},
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **wide},
        {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 99},
        {"model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_act": "gelu", **wide},
        {"model_type": "t5", "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1, **names},
        {"model_type": "vit", "image_size": 32, "patch_size": 8, "id2label": {"0": "cat"}, **wide},
        {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2, **wide},
        {"model_type": "opt", "ffn_dim": 128, "word_embed_proj_dim": 32, **wide},
    ]
    return [json.dumps(config).encode() for config in configs]


def _safetensors_seeds() -> list[bytes]:
    header = {"lm_head.weight": {"dtype": "BF16", "shape": [99, 64], "data_offsets": [0, 12672]}}
    return [json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()]


def _onnx_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DATA / "models" / "onnx").glob("*.onnx"))]


@cache
def _ordered() -> Any:
    from planner.simulator.step.files import decode

    return decode(_profile_seeds()[0])


def _priorities(path: Path) -> Any:
    from planner.servers.ordering.priorities import read

    return read(path, _ordered())


def _texts(folder: str, *names: str) -> Callable[[], list[bytes]]:
    return lambda: [(ROOT / folder / f"{name}.toml").read_bytes() for name in names]


MACHINE = b"""
family = "mine"
provider = "me"
[defaults]
region = "here"
sources = { on_demand = { basis = "estimated", source = "a guess", as_of = "2026-01-01" } }
[machines.big]
device = "Fast"
device_count = 2
vcpus = 8
nic_burst_gbit_per_s = 10
nic_baseline_gbit_per_s = 2.5
on_demand_usd_per_hour = 3.06
spot_usd_per_hour = 0.9
aliases = ["large"]
other_regions = { there = { on_demand_usd_per_hour = 3.5 } }
[devices.Fast]
kind = "gpu"
fp32_tflops = 15.7
memory_gib = 16
[kernels.Fast]
rates = { conv = 1.2e13, fc = 6e12 }
overhead_s = 1e-5
"""


def _machines() -> list[bytes]:
    return [MACHINE, *_texts("hardware", "private-opteron")()]


@cache
def _profile_seeds() -> list[bytes]:
    from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile
    from planner.simulator.step.files import encode

    ops = [
        Op("a/down", DOWNLINK, 0, 400, (), 0),
        Op("b/down", DOWNLINK, 1, 800, (), 1),
        Op("fwd", WORKER, deps=(0, 1)),
        Op("a/up", UPLINK, 0, 400, (2,), 0),
        Op("b/up", UPLINK, 1, 800, (2,), 1),
        Op("a/update", PS, 0, deps=(3,), tensor=0),
        Op("b/update", PS, 1, deps=(4,), tensor=1),
    ]
    times = [[0.1, 0.2, 1.0, 0.1, 0.2, 0.01, 0.02], [0.1, 0.3, 1.1, 0.1, 0.2, 0.01, 0.02]]
    about: dict[str, Any] = {"model": "m", "batch": 4, "servers": 2, "tensors": ["a", "b"]}
    order = [[0, 1, 2, 3, 4, 5, 6], [1, 0, 2, 4, 3, 6, 5]]
    small = Profile.build(ops, times, order=order, starts_s=times, bandwidth_bytes_per_s=1e9, **about)
    plain = Profile.build(ops, times[:1], **about)
    return [encode(small), encode(plain), gzip.compress(encode(small))]


@cache
def _simulated_seeds() -> list[bytes]:
    """Steps of a worker, as recorders of PyTorch write them."""
    from planner.device.recorded.importers import import_profile
    from planner.simulator.step.files import encode

    out = []
    for data in pytorch()[-1:]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(data)
            file.flush()
            out.append(encode(import_profile([file.name], batch=8)))
    return [*out, *_profile_seeds()[:2]]


def _priority_files() -> list[bytes]:
    transfers = [{"name": name, "priority": k} for k, name in enumerate(("a/down", "b/down", "a/up"))]
    return [json.dumps({"model": "m", "strategy": "tac", "transfers": transfers}).encode()]


READERS = {
    reader.name: reader
    for reader in (
        Reader("model", "toml", ".toml", _texts("models", *MODELS), _model),
        Reader("hardware", "toml", ".toml", _machines, _hardware),
        Reader(
            "config", "toml", ".toml",
            _texts("configs", "vgg11-20usd", "resnet152-deadline", "resnet50-compare"),
            _config,
        ),
        Reader("sweep", "toml", ".toml", _texts("configs", "sweep"), _sweep),
        Reader("profile", "json", ".profile", _profile_seeds, _profile),
        Reader("run_metadata", "wire", ".pb", run_metadata, _trace),
        Reader("timeline", "json", ".json", timelines, _trace),
        Reader("pytorch", "json", ".json", pytorch, _trace),
        Reader("priorities", "json", ".json", _priority_files, _priorities),
        Reader("simulated", "json", ".profile", _simulated_seeds, _simulated),
        Reader("window", "wire", ".pb", run_metadata, _window),
        Reader("prices", "csv", ".csv", _price_lists, _prices),
        Reader("aws", "json", ".json", _aws_lists, _prices),
        Reader("transfers", "csv", ".csv", _transfer_tables, _transfers),
        Reader("inventory", "text", ".txt", _inventories, _inventory),
        Reader("family", "toml", ".toml", _family_seeds, _family),
        Reader("weights_index", "json", ".json", _index_seeds, _weights_index),
        Reader("runs", "csv", ".csv", _run_tables, _runs),
        Reader("layouts", "csv", ".csv", lambda: [_rows_of("layouts", 1, 2, 3)], _layouts),
        Reader("step_times", "csv", ".csv", lambda: [b"step_s\n0.5\n0.25,0.75\n1e-3\n"], _step_times),
        Reader("answer", "json", ".json", _answers, _answer),
        Reader("measured", "json", ".json", _measured_files, _measured),
        Reader("hugging_face", "json", ".json", _hugging_face_seeds, _hugging_face),
        Reader("safetensors", "json", ".safetensors", _safetensors_seeds, _safetensors),
        *([Reader("onnx", "onnx", ".onnx", _onnx_seeds, _onnx)] if find_spec("onnx") else []),
    )
}  # fmt: skip
