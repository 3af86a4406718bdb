"""What parameter-server plans were predicted before the code was rearranged, to the last bit.

    python benchmarks/golden.py            # list what differs from the golden file; exit 1 if anything does
    python benchmarks/golden.py --write    # make the file anew, after a change that is meant to move answers

The plans are spread over the spaces of all commands: machines with one and with several devices, of one's own
and rented, servers apart and beside workers, all policies, both modes, replicas of several workers, recorded
steps. Of every space all keys, prices and bounds count (as a digest), and of some plans the simulation too.
Machines are frozen (`data/golden/machines.toml`), so that better figures in the catalog move nothing here.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.compare import compare_for
from planner.answers.questions import parse_request
from planner.answers.recommend import recommend_for
from planner.answers.saturation import saturation_for
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.simulations import Rung, Simulations
from planner.search.space import enumerate_plans
from planner.simulator.cluster import figures_by_name

DATA = Path(__file__).absolute().parent / "data" / "golden"
FILE = DATA / "plans.json.gz"
PER_SPACE = 30  # plans simulated of each space, evenly by key
FULL_EVERY = 10  # of these, every so many in full


def _on(*names: str) -> list[str]:
    return [f"{DATA / 'machines.toml'}:{name}" for name in names]


ALL_POLICIES = ["multiplexed", "fifo", "tic", "tac", "p3", "bytescheduler", "prophet"]
SPACES: dict[str, dict[str, Any]] = {
    "recommend within a budget": {
        "model": "vgg11",
        "hardware": _on("gold-one", "gold-four", "gold-cores", "gold-owned"),
        "server_hardware": ["own", "colocated", *_on("gold-host")],
        "budget": 20.0,
    },
    "recommend, synchronous, no budget": {
        "model": "resnet50",
        "hardware": _on("gold-one", "gold-four", "gold-owned"),
        "server_hardware": ["own", "colocated", *_on("gold-host")],
        "mode": "sync",
        "workers": "1-4,8,16",
    },
    "all placements and batches": {
        "model": "inception3",
        "hardware": _on("gold-one", "gold-four"),
        "server_hardware": ["own", "colocated"],
        "placement": "all",
        "batch": "auto",
        "workers": "1,2,4,8",
        "network": "burst",
    },
    "all policies": {
        "model": "alexnet",
        "hardware": _on("gold-one", "gold-four"),
        "server_hardware": ["own", "colocated"],
        "policy": ALL_POLICIES,
        "placement": "greedy",
        "servers": "1,2",
        "workers": "1,2,4,8",
    },
    "all policies, synchronous": {
        "model": "alexnet",
        "hardware": _on("gold-one"),
        "server_hardware": ["own", "colocated"],
        "policy": ALL_POLICIES,
        "mode": "sync",
        "placement": "mxnet",
        "servers": "1,3",
        "workers": "1,2,4,8",
    },
    "replicas of several workers": {
        "model": "vgg19",
        "hardware": _on("gold-cores"),
        "server_hardware": ["own", *_on("gold-host")],
        "policy": ["multiplexed", "fifo"],
        "batch": "8,16",
        "workers": "2,4,8,16",
    },
    "spot prices and a bandwidth as measured": {
        "model": "googlenet",
        "hardware": _on("gold-one", "gold-cores"),
        "server_hardware": ["own", *_on("gold-host")],
        "bandwidth": "9.4Gbit",
        "spot": True,
        "machines": 12,
        "seed": 7,
    },
    "another region": {
        "model": "resnet152",
        "hardware": _on("gold-one"),
        "server_hardware": ["own", "colocated"],
        "region": "there",
        "workers": "1-12",
        "seed": 3,
    },
    "machines that sum first": {
        "model": "resnet50",
        "hardware": _on("gold-joined"),
        "server_hardware": ["own", "colocated", *_on("gold-host")],
        "policy": ["multiplexed", "tic"],
        "workers": "4,8,16",
    },
    "recorded steps": {
        "profile": str(DATA / "recorded.json.gz"),
        "hardware": _on("gold-one"),
        "server_hardware": ["own", "colocated"],
        "policy": ["multiplexed", "tac"],
        "workers": "1,2,3,4,8",
    },
}


def request_of(words: dict[str, Any]) -> Request:
    return parse_request(
        exchange="servers", input="none", precision="fp32", interval_width=0.05, max_steps=240, **words
    )


def space_figures(request: Request, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """The digest of a whole space, and the figures of some of its plans."""
    model = model_of(request)
    cases, space = Cases(request, model), enumerate_plans(request, model)
    simulations, bounds = Simulations(cases, pool), cases.bounds(space.plans)
    by_key = {plan.key: i for i, plan in enumerate(space.plans)}
    keys = sorted(by_key)
    order = [by_key[key] for key in keys]
    digest = hashlib.sha256("\n".join(keys).encode())
    digest.update(np.ascontiguousarray(space.usd_per_hour[order]).tobytes())
    digest.update(np.ascontiguousarray(bounds[order]).tobytes())
    picked = [space.plans[order[i]] for i in _evenly(len(keys), PER_SPACE)]
    out: dict[str, Any] = {
        "plans": len(keys),
        "dropped": dict(sorted(space.dropped.items())),
        "digest": digest.hexdigest(),
        "first": keys[0],
        "last": keys[-1],
        "figures": {},
    }
    rungs: tuple[tuple[Rung, int], ...] = (("glance", 1), ("long", FULL_EVERY))
    for rung, every in rungs:
        some = picked[::every]
        for plan, entry in zip(some, simulations.predict_all(some, rung), strict=True):
            scored = cases.score_plan(plan, entry)
            out["figures"][f"{plan.key} {rung}"] = {
                "seed": plan.simulation_seed(request.seed),
                "bound": cases.bound(plan),
                "usd_per_hour": [scored.usd_of("workers"), scored.usd_of("servers") or 0.0],
                "samples_per_s": [entry.samples_per_s, entry.samples_per_s_low, entry.samples_per_s_high],
                "step_s": [entry.step_s, *entry.step_s_quantiles.values()],
                "staleness": [entry.staleness_mean, entry.staleness_max],
                "utilisation": figures_by_name(entry.utilisation),
                "bottleneck": str(entry.bottleneck),
                "events": entry.events,
            }
    return out


def _evenly(of: int, many: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, of - 1, min(of, many))})


SMALL: dict[str, Any] = {
    "model": "alexnet",
    "hardware": _on("gold-one", "gold-four"),
    "server_hardware": ["own", "colocated", *_on("gold-host")],
    "workers": "1,2,4,8",
    "servers": "1,2",
}


def answers() -> dict[str, Any]:
    """Whole answers: what is chosen, shown and advised."""
    recommend = recommend_for(request_of(SMALL | {"budget": 30.0}), jobs=1)
    compared = compare_for(request_of(SMALL), jobs=1)
    result = SMALL | {"hardware": _on("gold-one"), "server_hardware": "own", "workers": None, "servers": "1"}
    curve = saturation_for(request_of(result), jobs=1, max_workers=6)
    return {
        "recommend": {
            "chosen": recommend.chosen.plan.key,
            "shown": [[row.plan.key, row.samples_per_s, list(row.marks)] for row in recommend.plans],
            "changes": [[change.words, change.gain, change.usd_per_hour] for change in recommend.changes],
            "considered": recommend.considered,
            "simulated": recommend.simulated,
            "pruned": dict(recommend.pruned),
        },
        "compare": [
            [row.plan.key, row.samples_per_s, compared.spot.get(row.plan.key)] for row in compared.rows
        ],
        "saturation": {
            "points": [[point.workers, point.scored.samples_per_s] for point in curve.points],
            "workers": curve.saturation_workers,
            "ceiling": curve.ceiling_samples_per_s,
            "servers": [[n, scored.plan.key, scored.samples_per_s] for n, scored in curve.sizes],
            "advised": curve.size_advised,
        },
    }


def golden() -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:
        spaces = {name: space_figures(request_of(words), pool) for name, words in SPACES.items()}
    return {**spaces, "answers": answers()}


def differences(was: Any, now: Any, where: str = "", rel: float = 0.0) -> list[str]:
    """Every place where two trees differ, each with both values; figures may be off by the ratio `rel`."""
    if isinstance(was, dict) and isinstance(now, dict):
        out = []
        for key in {**was, **now}:
            here = f"{where}: {key}" if where else str(key)
            if key not in was or key not in now:
                out.append(f"{here} is {'new' if key in now else 'missing'}")
            else:
                out += differences(was[key], now[key], here, rel)
        return out
    if rel and isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [line for pair in zip(was, now, strict=True) for line in differences(*pair, where, rel)]
    if rel and isinstance(was, float) and isinstance(now, float) and math.isclose(was, now, rel_tol=rel):
        return []
    return [] if was == now else [f"{where} was {was}, is {now}"]


def main() -> None:
    now = json.loads(json.dumps(golden()))
    if "--write" in sys.argv[1:]:
        with gzip.GzipFile(FILE, "wb", mtime=0) as file:
            file.write(json.dumps(now, indent=0).encode())
        return
    lost = differences(stored(), now)
    print("\n".join(lost) or "golden: nothing differs")
    sys.exit(bool(lost))


def stored() -> Any:
    return json.loads(gzip.decompress(FILE.read_bytes()))


if __name__ == "__main__":
    main()
