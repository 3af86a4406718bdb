"""How the traces here were recorded: `python record.py FOLDER` with PyTorch 2.13.0+cpu, one thread.

plain: three steps of a small network; ddp: the same on two processes (gloo), rank 0; noshapes: without
record_shapes; inference: a forward pass alone; accumulated: two steps of four passes, marked by the step;
passes: the same, marked by the pass, begun in the middle of a step. Of the last two only what is read was
kept. Host names, trace ids and paths were removed afterwards.
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

CPU = [ProfilerActivity.CPU]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.left, self.right = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(32 * 8 * 8, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.left(x) + self.right(x))
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def record(rank, world, folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    marks = schedule(wait=1, warmup=2, active=3)
    with profile(activities=CPU, record_shapes=True, schedule=marks) as prof:
        for _ in range(6):
            step()
            prof.step()
    if rank == 0:
        prof.export_chrome_trace(f"{folder}/{'plain' if world == 1 else 'ddp'}.json")
    if world > 1:
        torch.distributed.destroy_process_group()
        return
    with profile(activities=CPU) as prof:
        step()
    prof.export_chrome_trace(f"{folder}/noshapes.json")
    with profile(activities=CPU, record_shapes=True) as prof, torch.no_grad():
        model(inputs)
    prof.export_chrome_trace(f"{folder}/inference.json")
    for name, mark_passes, skipped in (("accumulated", False, 1), ("passes", True, 6)):
        marks = schedule(wait=skipped - 1, warmup=1, active=10 if mark_passes else 2, repeat=1)
        with profile(activities=CPU, record_shapes=True, schedule=marks) as prof:
            for _ in range(5):
                for micro in range(4):
                    (functional.cross_entropy(model(inputs), labels) / 4).backward()
                    if micro == 3:
                        optimizer.step()
                        optimizer.zero_grad()
                    if mark_passes or micro == 3:
                        prof.step()
        prof.export_chrome_trace(f"{folder}/{name}.json")


if __name__ == "__main__":
    record(0, 1, sys.argv[1])
    torch.multiprocessing.spawn(record, args=(2, sys.argv[1]), nprocs=2)
