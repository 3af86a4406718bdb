"""How the recordings here were made: `python record.py FOLDER` with PyTorch 2.13.0+cpu, one thread a process.

A small network of all kinds of ops, recorded by `planner.record`, three steps each: plain at batch 8 and 16,
with gradients accumulated over four passes, under autocast in bf16, compiled, and the first of two ranks with
DistributedDataParallel and with fully_shard (FSDP2). What the importer does not read was removed afterwards
(`kept`), host names and trace ids among it.
"""

import gzip
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import planner

KEYS = ("Input Dims", "Input type", "Concrete Inputs", "External id")
CASES = {
    "plain": {},
    "plain16": {"batch": 16},
    "accumulated": {"micro_steps": 4},
    "autocast": {"autocast": True},
    "compiled": {"compiled": True},
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner, self.outer = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.inner(self.norm(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        result = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.outer(result.transpose(1, 2).reshape(batch, length, width))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.depth = (
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
        )
        self.point, self.norm, self.full = (
            nn.Conv2d(32, 32, 1),
            nn.BatchNorm2d(32),
            nn.Conv2d(32, 32, 3, padding=1),
        )
        self.block, self.head = Block(32), nn.Linear(32, 10)

    def forward(self, x):
        x = functional.relu(self.norm(self.point(self.depth(self.stem(x)))))
        x = self.full(x).flatten(2).transpose(1, 2)
        return self.head(self.block(x).mean(1))


def train(path, *, batch=8, micro_steps=1, autocast=False, compiled=False, strategy="alone", steps=9):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Mixed()
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model.block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with planner.record(path, steps=steps - 6):
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(micro_steps):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                    result = model(torch.randn(batch, 3, 32, 32))
                    loss = functional.cross_entropy(result, torch.randint(0, 10, (batch,)))
                loss.backward()
            optimizer.step()


def rank(number, path, settings):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(number), WORLD_SIZE="2")
    torch.distributed.init_process_group("gloo")
    train(path, **settings)
    torch.distributed.destroy_process_group()


def kept(path):
    """The recording without what nobody reads."""
    whole = json.loads(gzip.decompress(Path(path).read_bytes()))
    events = []
    for event in whole["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation") and event.get("ph") == "X":
            event["args"] = {key: value for key, value in event.get("args", {}).items() if key in KEYS}
        elif event.get("cat") != "fwdbwd":
            continue
        events.append(
            {key: round(value, 1) if key in ("ts", "dur") else value for key, value in event.items()}
        )
    start = min(event["ts"] for event in events)
    for event in events:
        event["ts"] = round(event["ts"] - start, 1)
    names = ("planner", "schemaVersion", "deviceProperties", "distributedInfo")
    out = {name: whole[name] for name in names if name in whole} | {"traceEvents": events}
    Path(path).write_bytes(gzip.compress(json.dumps(out, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    for name, settings in CASES.items():
        target = f"{sys.argv[1]}/{name}.json.gz"
        if "strategy" in settings:
            torch.multiprocessing.spawn(rank, args=(target, settings), nprocs=2)
        else:
            train(target, **settings)
        kept(target)
