"""Seeds for fuzzing: real files, and small ones that are quick to read."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from mutations import message, slim

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def _unpacked(folder: str, *names: str) -> list[bytes]:
    return [gzip.decompress((DATA / folder / f"{name}.gz").read_bytes()) for name in names]


@cache
def run_metadata() -> list[bytes]:
    """Two real ones and, more often, a small step of two variables that is quick to read."""
    real = [slim(data) for data in _unpacked("tensorflow", "alexnet_ps1_step0.pb", "vgg11_ps2_step0.pb")]
    return [*[small_run_metadata()] * 12, *real]


def small_run_metadata(variable: str = "v") -> bytes:
    """RunMetadata of one step that downloads and updates two variables with this prefix."""
    worker, server = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps"))
    graph: dict[str, list[bytes]] = {worker: [], server: []}
    stats: dict[str, list[bytes]] = {worker: [], server: []}

    def node(name: str, op: str, device: str, *inputs: str, edge: str = "") -> None:
        attr = message((1, b"tensor_name"), (2, message((2, edge.encode()))))
        fields = [(1, name), (2, op), *((3, i) for i in inputs), (4, device), *([(5, attr)] if edge else [])]
        graph[device].append(message(*fields))

    def ran(name: str, device: str, start: int, last: int, label: str, *more: tuple[int, Any]) -> None:
        times = ((2, start), (3, 0), (4, last), (5, last))
        stats[device].append(message((1, name), *times, *more, (8, label)))

    for k, at in enumerate((1000, 2000)):
        node(f"{variable}{k}", "VariableV2", server)
        node(f"{variable}{k}/send", "_Send", server, f"{variable}{k}", edge=f"edge_{k}_{variable}{k}")
        node(f"{variable}{k}/recv", "_Recv", worker, edge=f"edge_{k}_{variable}{k}")
        node(f"g{k}", "MatMul", worker, f"{variable}{k}/recv")
        node(f"g{k}/send", "_Send", worker, f"g{k}", edge=f"edge_{k + 5}_g{k}")
        node(f"g{k}/recv", "_Recv", server, edge=f"edge_{k + 5}_g{k}")
        node(f"u{k}", "ApplyGradientDescent", server, f"{variable}{k}", f"g{k}/recv")
        size = (7, message((3, message((4, message((1, 200_000)))))))
        down, up = (
            f"edge_{k}_{variable}{k} from {server} to {worker}",
            f"edge_{k + 5}_g{k} from {worker} to {server}",
        )
        ran("RecvTensor", worker, at, 90, f"[0.2MB] {down}", size)
        ran(f"g{k}", worker, at + 100, 300, f"g{k} = MatMul({variable}{k}/recv)")
        ran("RecvTensor", server, at + 450, 90, f"[0.2MB] {up}", size)
        ran(f"u{k}", server, at + 600, 30, f"u{k} = ApplyGradientDescent({variable}{k}, g{k}/recv)")
    devices = [message((1, device), *((2, stat) for stat in stats[device])) for device in stats]
    graphs = [(3, message(*((1, entry) for entry in nodes))) for nodes in graph.values()]
    return message((1, message(*((1, device) for device in devices))), *graphs)


@cache
def timelines() -> list[bytes]:
    """TensorFlow's own timeline, and one with the labels that TensorFlow drops."""
    label = (
        "[0.2MB] edge_{}_w{} from /job:ps/replica:0/task:0/device:CPU:0 to /job:worker/task:0/device:CPU:0"
    )
    back = "[0.2MB] edge_{}_g{} from /job:worker/task:0/device:CPU:0 to /job:ps/replica:0/task:0/device:CPU:0"
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": 1,
            "args": {"name": "/job:worker/task:0/device:CPU:0 Compute"},
        },
        {
            "ph": "M",
            "name": "process_name",
            "pid": 2,
            "args": {"name": "/job:ps/task:0/device:CPU:0 Compute"},
        },
    ]
    for k in range(2):
        args: dict[str, Any] = {"name": "RecvTensor", "label": label.format(k, k), "bytes": 200_000}
        events.append({"ph": "X", "name": "RecvTensor", "pid": 1, "ts": 10 * k, "dur": 5, "args": args})
        args = {"name": f"g{k}", "op": "MatMul", "input0": f"w{k}_S{k}"}
        events.append({"ph": "X", "name": "MatMul", "pid": 1, "ts": 20 + 10 * k, "dur": 9, "args": args})
        args = {"name": "RecvTensor", "label": back.format(k + 5, k), "bytes": 200_000}
        events.append({"ph": "X", "name": "RecvTensor", "pid": 2, "ts": 40 + 10 * k, "dur": 5, "args": args})
        args = {"name": f"u{k}", "op": "ApplyGradientDescent", "input0": f"g{k}_S{k + 5}"}
        events.append({"ph": "X", "name": "Apply", "pid": 2, "ts": 60 + 10 * k, "dur": 2, "args": args})
    made = json.dumps({"traceEvents": events}).encode()
    real = json.loads(_unpacked("tensorflow", "timeline.json")[0])
    real["traceEvents"] = real["traceEvents"][:80]
    return [made, json.dumps(real).encode()]


@cache
def pytorch() -> list[bytes]:
    """One step of each recording, with the kinds of events that are read."""
    out = []
    for data in _unpacked("pytorch", "plain.json", "ddp.json"):
        trace = json.loads(data)
        events = [e for e in trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation", "fwdbwd")]
        mark = next(e for e in events if e["name"].startswith("ProfilerStep#"))
        low, high = mark["ts"], mark["ts"] + mark["dur"]
        events, end = [e for e in events if low <= e["ts"] < high], dict[Any, float]()
        for e in sorted(events, key=lambda e: (e["ts"], -e.get("dur", 0))):
            if e["cat"] == "cpu_op" and e["ts"] >= end.get(e["tid"], 0):
                end[e["tid"]] = e["ts"] + e["dur"]
                e["outer"] = True
        needed = ("AccumulateGrad", "c10d::")
        events = [
            e
            for e in events
            if e["cat"] != "cpu_op" or e.pop("outer", False) or any(w in e["name"] for w in needed)
        ]
        for e in events:
            e["args"] = {k: v for k, v in e.get("args", {}).items() if k in ("Input Dims", "Input type")}
        trace = {"traceEvents": events}
        out.append(json.dumps(trace).encode())
    trace = json.loads(out[0])
    kernels = []
    for k, e in enumerate(trace["traceEvents"]):  # a GPU that runs each op just after its launch
        if e["cat"] == "cpu_op":
            e["args"]["External id"] = k
            times = {"ts": e["ts"] + 50, "dur": e["dur"] / 2}
            kernels.append({"ph": "X", "cat": "kernel", "name": "gemm", **times, "args": {"External id": k}})
    trace["traceEvents"] += kernels
    facts = {"version": 1, "batch": 8, "micro_steps": 2, "model": "m", "device_kind": "cuda", "world_size": 2}
    facts |= {"strategy": "ddp", "bucket_bytes": 26214400, "parameters": [["a.weight", 12], ["a.bias", 3]]}
    facts |= {"precision": "bf16", "input_shape": [8, 3, 4], "step_s": 0.25, "compiled": False}
    recorded = json.loads(out[1]) | {"planner": facts}
    return [*out, json.dumps(trace).encode(), json.dumps(recorded).encode()]


ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def price_lists() -> list[bytes]:
    lists = [(DATA / "prices" / name).read_bytes() for name in ("v8/aws/vms.csv", "gpuhunt/aws.csv")]
    two_columns = b"machine,usd_per_hour\np3.2xlarge,3.06\ng4dn.xlarge,$0.526\n"
    return [*(_first_lines(text) for text in lists), two_columns]


def _first_lines(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:40])


def aws_lists() -> list[bytes]:
    return [(DATA / "prices" / "aws" / name).read_bytes() for name in ("index.json", "get-products.json")]


def transfer_tables() -> list[bytes]:
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


def inventories() -> list[bytes]:
    lines = INVENTORY.splitlines(keepends=True)
    return [INVENTORY.encode(), "".join([*lines[2:4], *lines[5:]]).encode(), "".join(lines[4:]).encode()]


def families() -> list[bytes]:
    folder = ROOT / "models" / "families"
    names = ("_decoder", "llama", "gemma2", "mixtral", "bert", "t5", "gpt_oss", "deepseek_v2")
    return [(folder / f"{name}.toml").read_bytes() for name in names]


def weights_indices() -> list[bytes]:
    names = [f"model.layers.{k}.mlp.up_proj.weight" for k in range(3)]
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "a")}).encode()]


def rows_of(name: str, *wanted: int) -> bytes:
    """The heading and some rows of a shipped table."""
    packed = (ROOT / "planner" / "validation" / "data" / f"{name}.csv.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    return ("\n".join([lines[0], *(lines[at] for at in wanted)]) + "\n").encode()


OWN_RUNS = b"""model,device,devices,devices_per_node,micro_batch,precision,samples_per_s_global,memory_gib
resnet50,V100-SXM2,8,8,128,fp16,6000,12
gpt2,A100-SXM4,16,8,8,bf16,900,30
"""


def run_tables() -> list[bytes]:
    return [OWN_RUNS, rows_of("training", 1, 400, 900, 1500, 2000, 2300)]


def answers() -> list[bytes]:
    plan = {"model": "alexnet", "batch": 64, "worker_hardware": "p3.2xlarge", "workers": 4, "cluster": "4 x"}
    plan |= {"samples_per_s": 900.0, "samples_per_s_low": 880.0, "samples_per_s_high": 920.0, "step_s": 0.1}
    plan |= {"utilisation": {"worker": 0.5, "uplink[0]": 0.9}, "bottleneck": "uplink[0]", "device": "V100"}
    plan |= {"rented": {"workers": {"machines": 4}}, "exchange": {"kind": "allreduce"}}
    return [json.dumps({"version": 2, name: plan}).encode() for name in ("recommendation", "plan")]


def measured_files() -> list[bytes]:
    run = {
        "device": "V100",
        "reach": "device",
        "model": "alexnet",
        "precision": "fp32",
        "as_of": "2026-11-01",
    }
    run |= {"predicted_samples_per_s": 900.0, "measured_samples_per_s": 850.0}
    return [json.dumps({"version": 1, "runs": [run, run | {"reach": "machine"}]}).encode()]


LOGS = DATA / "training_logs"


def log_tables() -> list[bytes]:
    """Logs of training as tables, and a file of numbers."""
    table = _first_lines((LOGS / "wandb-history.csv").read_bytes())
    return [table, b"step_s\n0.5\n0.25,0.75\n1e-3\n", b"step;it/s\n1;2\n2;2.5\n3;2.5\n"]


def log_rows() -> list[bytes]:
    rows = json.loads((LOGS / "wandb-history.json").read_bytes())[:20]
    columns = {name: [row[name] for row in rows if name in row] for name in rows[0]}
    state = (LOGS / "trainer_state.json").read_bytes()
    return [json.dumps(rows).encode(), json.dumps(columns).encode(), state]


def mlflow_metrics() -> list[bytes]:
    return [_first_lines(path.read_bytes()) for path in sorted(LOGS.glob("mlflow/metrics/*/*"))]


def event_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted(LOGS.glob("t*/*tfevents*"))]


def config_files() -> list[bytes]:
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


def headers() -> list[bytes]:
    header = {"lm_head.weight": {"dtype": "BF16", "shape": [99, 64], "data_offsets": [0, 12672]}}
    return [json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()]


def onnx_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DATA / "models" / "onnx").glob("*.onnx"))]


def files_of(folder: str, *names: str) -> Callable[[], list[bytes]]:
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


def machines() -> list[bytes]:
    return [MACHINE, *files_of("hardware", "private-opteron")()]


@cache
def profiles() -> list[bytes]:
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
def recorded_profiles() -> list[bytes]:
    """Steps of a worker as recorded with PyTorch."""
    from planner.device.recorded.importers import import_profile
    from planner.simulator.step.files import encode

    out = []
    for data in pytorch()[-1:]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(data)
            file.flush()
            out.append(encode(import_profile([file.name], batch=8)))
    return [*out, *profiles()[:2]]


def priority_files() -> list[bytes]:
    transfers = [{"name": name, "priority": k} for k, name in enumerate(("a/down", "b/down", "a/up"))]
    return [json.dumps({"model": "m", "strategy": "tac", "transfers": transfers}).encode()]
