"""Recordings of five kinds of training loops, and predictions from them against the untraced steps.

    python benchmarks/robustness/recording.py [--repeats 10] [--loops plain,accelerate,trainer,lightning,ddp]

Needs torch; accelerate, transformers and lightning for their loops; and two cores. Each repeat is a process
(two for `ddp`, with gloo) that trains a small network inside `planner.record` and times its steps. `planner
simulate` predicts the median of the untraced steps from the recording; for `ddp` with the speed of the
recorded all-reduces for which the other rank was ready (lower quartile of their durations). The aim is 10% in
each repeat. Beside it are the overhead of tracing and the drift between the halves of the untraced steps,
caused by other programs on the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import planner
from planner.device.recorded import open_step
from planner.device.recorded.importers.tracing import READY
from planner.simulator.step import UPLINK

LOOPS = ("plain", "accelerate", "trainer", "lightning", "ddp")
BATCH = 8
STEPS = 60
TRACED = range(4, 19)  # of the times between ends of steps, those that the profiler or its end slowed
AIM = 0.1
MARK = "result: "


def bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    return BertForSequenceClassification(BertConfig(vocab_size=1000, num_labels=10, **sizes))


def tokens() -> list[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 1000, (BATCH * 16, 64), generator=generator)
    return [{"input_ids": row, "labels": int(row[0]) % 10} for row in ids]


def convolutional() -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(64 * 16, 256), nn.ReLU(), nn.Linear(256, 10)),
    )


def images() -> Any:
    import torch

    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(BATCH * 8, 3, 32, 32, generator=generator)
    return torch.utils.data.TensorDataset(pixels, torch.randint(0, 10, (len(pixels),), generator=generator))


def batches(steps: int, data: Any) -> Any:
    """The first `steps` batches of an endlessly repeated dataset."""
    from itertools import chain, islice, repeat

    import torch

    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    return islice(chain.from_iterable(repeat(loader)), steps)


def plain(wrap: Callable[[Any], Any] = lambda model: model) -> Callable[[int], None]:
    import torch

    model = wrap(convolutional())
    optimizer = torch.optim.AdamW(model.parameters())

    def train(steps: int) -> None:
        for inputs, labels in batches(steps, images()):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return train


def ddp() -> Callable[[int], None]:
    from torch.nn.parallel import DistributedDataParallel

    return plain(DistributedDataParallel)


def accelerate() -> Callable[[int], None]:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = bert()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

    def train(steps: int) -> None:
        for batch in batches(steps, tokens()):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return train


def trainer() -> Callable[[int], None]:
    from transformers import Trainer, TrainingArguments

    model, data = bert(), tokens()
    settings = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}

    def train(steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asked = TrainingArguments(folder, per_device_train_batch_size=BATCH, max_steps=steps, **settings)
            Trainer(model, asked, train_dataset=data).train()

    return train


def lightning() -> Callable[[int], None]:
    import torch
    from lightning.pytorch import LightningModule, Trainer

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = convolutional()

        def training_step(self, batch: Any, index: int) -> Any:
            inputs, labels = batch
            return torch.nn.functional.cross_entropy(self.network(inputs), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    model = Classifier()
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

    def train(steps: int) -> None:
        loader = torch.utils.data.DataLoader(images(), batch_size=BATCH)
        Trainer(max_steps=steps, accelerator="cpu", logger=False, barebones=False, **quiet).fit(model, loader)

    return train


def timed(train: Callable[[int], None], steps: int) -> list[float]:
    """Seconds of the untraced steps of a recorded loop, measured at its optimizer."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ends: list[float] = []
    hook = register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
    train(steps)
    hook.remove()
    return [
        float(lasts_s) for index, lasts_s in enumerate(np.diff(ends)) if index > 0 and index not in TRACED
    ]


def recorded_bytes_per_s(path: Path) -> float:
    """Bytes per second of the all-reduces between two ranks that were both ready, over the recorded steps."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = [e for e in events if e.get("name") == "gloo:all_reduce" and e.get("cat") == "user_annotation"]
    profile = open_step(path)
    buckets = len(calls) // profile.steps
    lasts_us = np.array([e["dur"] for e in sorted(calls, key=lambda e: e["ts"])][: buckets * profile.steps])
    step_us = float(np.quantile(lasts_us.reshape(profile.steps, buckets).sum(axis=1), READY))
    sent_bytes = int(profile.bytes[profile.resource == UPLINK].sum())
    return sent_bytes / (step_us * 1e-6)  # a ring of two sends each byte once


def run(loop: str, path: str) -> None:
    """Run one repeat and print the seconds of untraced steps."""
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if loop == "ddp":
        torch.distributed.init_process_group("gloo")
    train = globals()[loop]()
    with planner.record(path):
        steps_s = timed(train, STEPS)
    if loop == "ddp":
        first = torch.distributed.get_rank() == 0
        torch.distributed.barrier()  # a rank that leaves first breaks the other's connections
        torch.distributed.destroy_process_group()
        if not first:
            return
    print(f"{MARK}{json.dumps(steps_s)}", flush=True)


def predicted_s(loop: str, path: Path) -> float:
    """Seconds of a step predicted by `planner simulate --profile`."""
    asked: dict[str, Any] = {"model": None, "profile": str(path)}
    if loop == "ddp":
        bandwidth = f"{recorded_bytes_per_s(path) * 8 / 1e9:.4f}Gbit"
        asked |= {"workers": 2, "exchange": "allreduce", "bandwidth": bandwidth}
    return planner.simulate(**asked).scored.prediction.step_s


def repeat(loop: str, folder: Path) -> tuple[float, float, float, float]:
    """Measured, predicted and traced seconds, and the drift between both halves of untraced steps."""
    path = folder / f"{loop}.json.gz"
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if loop == "ddp" else []
    done = subprocess.run(
        [sys.executable, *ranks, __file__, loop, str(path)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode or not path.exists():
        raise SystemExit(f"{loop}: {done.stderr[-2000:]}")
    steps_s = json.loads(done.stdout.rpartition(MARK)[2].splitlines()[0])
    halves = [float(np.median(half)) for half in np.array_split(np.array(steps_s), 2)]
    recorded = open_step(path).recorded
    assert recorded is not None
    assert recorded.exposed is not None
    traced_s = recorded.exposed.step_s
    return float(np.median(steps_s)), predicted_s(loop, path), traced_s, halves[1] / halves[0] - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--loops", default=",".join(LOOPS))
    asked = parser.parse_args()
    if asked.run:
        return run(*asked.run)
    missed = 0
    for loop in asked.loops.split(","):
        errors = []
        for number in range(asked.repeats):
            with tempfile.TemporaryDirectory() as folder:
                measured_s, predicted, traced_s, drift = repeat(loop, Path(folder))
            errors.append(predicted / measured_s - 1)
            print(
                f"{loop} {number}: measured {measured_s * 1e3:.1f} ms, predicted {predicted * 1e3:.1f} ms "
                f"({errors[-1]:+.1%}); traced {traced_s / measured_s - 1:+.0%}; later half of the untraced "
                f"steps {drift:+.0%}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        missed += sum(abs(error) > AIM for error in errors)
        print(
            f"{loop}: median {np.median(np.abs(errors)):.1%}, worst {max(map(abs, errors)):.1%}, "
            f"{sum(abs(error) <= AIM for error in errors)} of {len(errors)} within {AIM:.0%}",
            flush=True,
        )
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
