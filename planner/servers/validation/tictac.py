"""TicTac (file 001): its models, what an order gains in training and inference, and what explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.ordering import measures, order
from planner.servers.synthesis import profile_for
from planner.servers.validation.ordering_abstract import ForwardPass
from planner.simulator import simulate
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Mode
from planner.simulator.run import RunOptions, run
from planner.units import GBIT_BYTES_PER_S, MIB
from planner.validation import row
from planner.validation.row import Row, RowName, figures, once

GIVEN: dict[str, Any] = figures("tictac")
POINTS = 0.05  # how far our largest gain may be from the published one
PRECISION, MAX_STEPS = 0.02, 150
STRAGGLER_STEPS = 60
STRAGGLER_POINTS = 0.01  # where there is nothing to gain, workers differ by their computation alone


def _source(section: str) -> str:
    return f"{GIVEN['paper']}, {GIVEN[section]['source']}"


def table() -> list[Row]:
    """Tensors and bytes of its ten networks."""
    rows = []
    for given in GIVEN["table"]["models"]:
        model = load_model(given["model"])
        rows.append(
            row.equal(
                f"{given['tensors']}, {given['mib']:.2f} MiB",
                f"{len(model.tensors)}, {model.bytes / MIB:.2f} MiB",
                name=RowName("tictac", "table", given["model"]),
                what=f"{given['model']}: parameter tensors and their size",
                how="the catalogue",
                source=_source("table"),
            )
        )
    return rows


@dataclass(frozen=True)
class Gains:
    """What TIC (and TAC, at the standard batch) gain over no order, by batch factor; straggler shares without
    and with TIC, the largest of the steps at the standard batch."""

    model: str
    ops: int
    training: tuple[float, ...]
    inference: tuple[float, ...]
    tac_over_tic: float
    stragglers: tuple[float, float]


def _cluster() -> Cluster:
    given = GIVEN["gains"]
    server, worker = (given[f"{who}_gbit_per_s"] * GBIT_BYTES_PER_S for who in ("server", "worker"))
    nodes = (Node(server, server), *[Node(worker, worker)] * given["workers"])
    return Cluster(nodes, tuple(range(1, given["workers"] + 1)), (0,))


@once
def gains() -> tuple[Gains, ...]:
    """Every model, batch factor and workload of Figure 11."""
    return tuple(_gains_of(given) for given in GIVEN["table"]["models"])


def _gains_of(given: dict[str, Any]) -> Gains:
    cluster, hardware = _cluster(), load_hardware(GIVEN["gains"]["hardware"])
    bandwidth = GIVEN["gains"]["worker_gbit_per_s"] * GBIT_BYTES_PER_S
    model = load_model(given["model"])
    by_name: dict[str, list[float]] = {"training": [], "inference": []}
    tac_over_tic, stragglers = 0.0, (0.0, 0.0)
    for workload, gain in by_name.items():
        training = workload == "training"
        mode: Mode = "sync" if training else "async"
        for factor in GIVEN["gains"]["batch_factors"]:
            profile = profile_for(model, int(given["batch"] * factor), hardware, training=training)
            policies = {
                name: order(profile, name, bandwidth_bytes_per_s=bandwidth)
                for name in (("fifo", "tic", "tac") if training and factor == 1 else ("fifo", "tic"))
            }
            rates = {
                name: simulate(
                    profile, cluster, policy, mode, precision=PRECISION, max_steps=MAX_STEPS
                ).samples_per_s
                for name, policy in policies.items()
            }
            gain.append(rates["tic"] / rates["fifo"] - 1)
            if "tac" in rates:
                tac_over_tic = rates["tac"] / rates["tic"] - 1
                shares = []
                for name in ("fifo", "tic"):
                    options = RunOptions(steps=STRAGGLER_STEPS, until="all", timeline=True)
                    traced = run(profile, cluster, policies[name], mode, options).timeline
                    assert traced is not None
                    shares.append(float(measures.straggler_shares(traced).max()))
                stragglers = shares[0], shares[1]
    return Gains(
        given["model"],
        given["ops"],
        tuple(by_name["training"]),
        tuple(by_name["inference"]),
        tac_over_tic,
        stragglers,
    )


HOW = (
    "simulated TIC over no order on synthesized profiles of a K80, 1 server and 4 workers, training sync; "
    "28 Gbit/s at the server, a quarter of it at a worker, for nothing is published for NC6"
)


def _gain_rows(workload: str) -> list[Row]:
    given = GIVEN["gains"]
    most = given[f"{workload}_most"]
    by_name = {gain.model: getattr(gain, workload) for gain in gains()}
    top = max(by_name, key=lambda model: max(by_name[model]))
    rows = [
        row.close(
            100 * most,
            100 * max(by_name[top]),
            100 * POINTS,
            unit="points",
            name=RowName("tictac", workload, "most"),
            what=f"{workload}: the largest gain of all models and batches ({top})",
            how=HOW,
            source=_source("gains"),
        )
    ]
    for model, values in by_name.items():
        rows.append(
            row.stated(
                f"{-given['slow_down_most']:.1%} to {most:+.1%}",
                " ".join(f"{value:+.1%}" for value in values),
                -given["slow_down_most"] <= min(values) and max(values) <= most + POINTS,
                f"in this range, to {100 * POINTS:g} points",
                name=RowName("tictac", workload, model),
                what=f"{workload}, {model}: gains at 0.5, 1 and 2 times the batch",
                how=HOW,
                source=_source("gains"),
            )
        )
    return rows


def training() -> list[Row]:
    """Gains in training."""
    return _gain_rows("training")


def inference() -> list[Row]:
    """Gains in inference, and that they are higher than in training."""
    means = [float(np.mean([getattr(gain, load) for gain in gains()])) for load in ("inference", "training")]
    return [
        *_gain_rows("inference"),
        row.stated(
            "higher than in training",
            f"{means[0]:+.1%}; {means[1]:+.1%} in training",
            means[0] > means[1],
            "higher",
            name=RowName("tictac", "inference", "mean"),
            what="inference: mean gain of all models and batches",
            how=HOW,
            source=_source("gains"),
        ),
    ]


def size() -> list[Row]:
    """Whether larger networks gain more."""
    ops = np.argsort(np.argsort([gain.ops for gain in gains()]))
    values = np.argsort(np.argsort([np.mean(gain.training) for gain in gains()]))
    correlation = float(np.corrcoef(ops, values)[0, 1])
    return [
        row.stated(
            "gains grow with a network's ops",
            f"rank correlation {correlation:+.2f}",
            correlation > 0,
            "above zero",
            name=RowName("tictac", "size", "ops"),
            what="training: mean gain against the number of ops, ten networks",
            how=HOW,
            source=_source("gains"),
        )
    ]


def tac() -> list[Row]:
    """TIC against TAC."""
    marginal = GIVEN["tac"]["marginal"]
    worst = max(gains(), key=lambda gain: gain.tac_over_tic)
    return [
        row.stated(
            "marginally worse",
            f"{worst.tac_over_tic:+.1%} ({worst.model})",
            worst.tac_over_tic <= marginal,
            f"at most {marginal:.0%}",
            name=RowName("tictac", "tac", "most"),
            what="training: the largest gain of TAC over TIC, ten networks",
            how=HOW,
            source=_source("tac"),
        )
    ]


def stragglers() -> list[Row]:
    """The longest wait for the slowest worker, as a share of the step: without order and with TIC."""
    given = GIVEN["stragglers"]
    rows = []
    for gain in gains():
        without, with_tic = gain.stragglers
        rows.append(
            row.stated(
                "an order reduces it",
                f"{without:.1%} to {with_tic:.1%}",
                with_tic <= without + STRAGGLER_POINTS,
                f"not above, to {100 * STRAGGLER_POINTS:g} point",
                name=RowName("tictac", "stragglers", gain.model),
                what=f"{gain.model}: share of a step spent waiting for the slowest worker",
                how=f"{HOW}; the largest of {STRAGGLER_STEPS} steps",
                source=_source("stragglers"),
            )
        )
    worst = max(gain.stragglers[0] for gain in gains())
    rows.append(
        row.at_least(
            100 * given["most"],
            round(100 * worst, 1),
            100 * given["most"],
            unit="%",
            name=RowName("tictac", "stragglers", "most"),
            what="without order: the largest such share of all networks",
            how=f"{HOW}; the largest of {STRAGGLER_STEPS} steps",
            source=_source("stragglers"),
        )
    )
    return rows


def overlap() -> list[Row]:
    """Alpha explains step time; TAC makes steps alike."""
    given = GIVEN["overlap"]
    bandwidth = given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S
    forward = ForwardPass(given["model"], given["hardware"], bandwidth)
    steps = {name: forward.steps(name, given["steps"]) for name in ("fifo", "tac")}
    alphas = np.concatenate([step.overlap(forward.communication_s) for step in steps.values()])
    times = np.concatenate([step.step_s for step in steps.values()])
    fastest = float(times.min())
    how = f"{given['steps']} simulated forward passes each with and without TAC, 1 Gbit/s, N = C"

    def percentile(name: str) -> float:
        """What 95% of steps reach, of the fastest."""
        return float(np.percentile(fastest / steps[name].step_s, 5))

    about = {"how": how, "source": _source("overlap")}
    return [
        row.at_least(
            given["r_squared"],
            float(np.corrcoef(alphas, times)[0, 1] ** 2),
            0.95,
            name=RowName("tictac", "overlap", "r-squared"),
            what="Inception-v2: R^2 of step time against the overlap coefficient",
            **about,
        ),
        row.near(
            given["percentile_none"],
            percentile("fifo"),
            0.25,
            name=RowName("tictac", "overlap", "none"),
            what="Inception-v2 without order: 95% of steps reach this share of the fastest",
            **about,
        ),
        row.near(
            given["percentile_tac"],
            percentile("tac"),
            0.05,
            name=RowName("tictac", "overlap", "tac"),
            what="Inception-v2 with TAC: 95% of steps reach this share of the fastest",
            **about,
        ),
    ]


def unique_orders() -> list[Row]:
    """How many different orders 1,000 steps without order show."""
    given = GIVEN["orders"]
    there = GIVEN["overlap"]
    bandwidth = there["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S
    forward = ForwardPass(given["model"], there["hardware"], bandwidth)
    seen, _ = measures.orders_seen(forward.steps("fifo", given["steps"]).timeline)
    return [
        row.close(
            given["steps"],
            seen,
            0,
            unit="orders",
            name=RowName("tictac", "orders", "unique"),
            what="ResNet-50 v2 without order: different orders in 1,000 steps",
            how="simulated; an order is drawn for each step, as TensorFlow requests do",
            source=_source("orders"),
        )
    ]


CHECKS = {
    "table": table,
    "training": training,
    "inference": inference,
    "size": size,
    "tac": tac,
    "stragglers": stragglers,
    "overlap": overlap,
    "orders": unique_orders,
}
