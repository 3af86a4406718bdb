"""Whether predictions have moved since they were last accepted: `python benchmarks/gate_small.py`.

The small form of `gate.py` for CI: bounds and step times of a few plans of every exchange, beside those in
`data/gate.json`. A plan that moved by more than 1% is listed and the exit code is 1. `--accept "SENTENCE"`
stores what is predicted now, with a sentence that says why; the sentence must stand in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from planner.device.computation import repeat_passes
from planner.device.precision import BF16
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import Exchange, Site
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.owned import Owned
from planner.parallel.mesh import Mesh, data_parallel_group
from planner.parallel.replica import replica_computation
from planner.servers.parameter_servers import ParameterServers
from planner.simulator.bounds import throughput_bounds

STORED = Path(__file__).parent / "data" / "gate.json"
CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"
MOVED = 0.01
MODELS = {"resnet50": 64, "bert-base": 16, "gpt2": 8}
MACHINES = {"p4d.24xlarge": (8, 16), "p5.48xlarge": (8, 32)}
MESHES = {"": Mesh(), ", tensor 2": Mesh.of(tensor=2), ", pipeline 2": Mesh.of(pipeline=2)}
EXCHANGES: dict[str, Exchange] = {
    "servers": ParameterServers(),
    "servers of machines": ParameterServers(aggregate="machine"),
    "all-reduce": AllReduce(),
    **{f"sharded stage {stage}": Sharded(stage=stage, each_pass=stage == 3) for stage in (1, 2, 3)},
    "owned": Owned(),
}
ACCUMULATE = 4


def predicted() -> dict[str, float]:
    """Samples a second at most, by a name that says everything."""
    by_name = {}
    for name, batch in MODELS.items():
        model = load_model(name)
        for machine, sizes in MACHINES.items():
            hardware = load_hardware(machine)
            for workers in sizes:
                for said, mesh in MESHES.items():
                    if mesh.size > 1 and model.sequence_length is None:
                        continue
                    site = Site(hardware, workers, mesh=mesh)
                    once = replica_computation(
                        model,
                        batch,
                        site,
                        BF16,
                        brief=True,
                    )
                    computation = repeat_passes(once, ACCUMULATE)
                    for exchange_name, exchange in EXCHANGES.items():
                        if exchange.kind == "servers":
                            if said:
                                continue
                            case = exchange.lower(once, site)
                        else:
                            case = exchange.lower(computation, data_parallel_group(site))
                        key = f"{name} b{batch}, {workers} x {hardware.device.name}{said}, {exchange_name}"
                        by_name[key] = float(throughput_bounds([case], "fastest")[0])
    return by_name


def moved(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """A line for each plan that moved, came or went."""
    lines = [f"{name}: only {'now' if name in now else 'before'}" for name in sorted(set(before) ^ set(now))]
    for name in before.keys() & now.keys():
        change = now[name] / before[name] - 1
        if abs(change) > MOVED:
            lines.append(f"{name}: {before[name]:.4g} to {now[name]:.4g} samples/s ({change:+.1%})")
    return sorted(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accept", metavar="SENTENCE", help="store what is predicted now")
    asked = parser.parse_args()
    now = predicted()
    if asked.accept:
        STORED.write_text(
            json.dumps({"because": asked.accept, "plans": now}, indent=1, sort_keys=True) + "\n"
        )
    stored = json.loads(STORED.read_text())
    lines = moved(stored["plans"], now)
    if stored["because"] not in CHANGELOG.read_text("utf-8"):
        lines.append(f"CHANGELOG.md does not say {stored['because']!r}, why predictions were accepted last")
    for line in lines:
        print(line)
    print(f"{len(now)} plans, {len(lines)} to look at" + ("; accept them with --accept" if lines else ""))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
