"""A plan: which model on which machines, and how replicas exchange what they learn. A point of the space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from planner.device.activations import Recompute
from planner.device.precision import FP32, Precision, precision_named
from planner.hardware.market import Market
from planner.parallel.data import EXCHANGES, Exchange, Rented, Site
from planner.parallel.mesh import WHOLE, Mesh


@dataclass(frozen=True, slots=True)
class Plan:
    """`machine` is that of the workers, `workers` counts devices: a machine with several holds several
    (`workers_per_machine`). `batch` are the samples that a worker takes at once, the micro-batch; with
    `accumulate` it takes so many of them before gradients are exchanged. `recompute`: which activations the
    backward pass recomputes instead of reading saved ones."""

    model: str
    batch: int
    machine: str
    workers: int
    exchange: Exchange
    precision: Precision = FP32
    mesh: Mesh = WHOLE
    workers_per_machine: int = 1
    accumulate: int = 1
    recompute: Recompute = "none"

    @property
    def replicas(self) -> int:
        """Copies of the model that are trained side by side."""
        return self.workers // self.mesh.size

    @property
    def samples_per_step(self) -> int:
        """Samples that one replica processes per optimizer step."""
        return self.batch * self.accumulate * self.mesh.samples

    @property
    def machines(self) -> int:
        """Machines that hold workers."""
        return -(-self.workers // self.workers_per_machine)

    @property
    def key(self) -> str:
        """A name that tells the plan apart; ties are broken by it, and it seeds the plan's simulation."""
        return (
            f"{self.model}/{self.batch}/{self.machine}/{self.workers:05d}/{self.exchange.key}{self.mesh.key}"
            f"{'' if self.precision == FP32 else '/' + self.precision.name}"
            f"{f'/acc{self.accumulate}' if self.accumulate > 1 else ''}"
            f"{'' if self.recompute == 'none' else '/ckpt-' + self.recompute}"
        )

    def seed(self, seed: int) -> int:
        """The seed of this plan's simulations: the same whichever plans are scored before it."""
        digest = hashlib.blake2b(f"{seed}/{self.key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def site(self, market: Market, seed: int = 0) -> Site:
        """The plan's machines on the terms of a market."""
        return Site(market.machine(self.machine), self.workers, market, self.mesh, seed=seed)

    def rented(self, market: Market) -> tuple[Rented, ...]:
        """All machines that it pays for, the workers' first."""
        return (Rented("workers", self.machine, self.machines), *self.exchange.rented(self.site(market)))

    @property
    def computed(self) -> str:
        """What is computed with: `bf16, full recompute, 8 micro-batches of 4`; empty for fp32."""
        said = [] if self.precision == FP32 else [self.precision.name]
        if self.recompute != "none":
            said.append(f"{self.recompute} recompute")
        if self.accumulate > 1:
            said.append(f"{self.accumulate} micro-batches of {self.batch}")
        return ", ".join(said)

    @property
    def how(self) -> str:
        """What is computed with, and the mesh of a replica."""
        if not self.mesh.is_sharded:
            return self.computed
        return ", ".join(filter(None, (self.computed, self.mesh.label + self.mesh.detail)))

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values, for stores; `plan_from` reads it."""
        out = {each.name: getattr(self, each.name) for each in fields(self)}
        return out | {
            "exchange": self.exchange.record(),
            "precision": self.precision.name,
            "mesh": self.mesh.changed,
        }

    @property
    def cluster_text(self) -> str:
        """The machines, and where there is but one device, that it is alone."""
        return self.machines_text + self.exchange.labels().aside

    @property
    def machines_text(self) -> str:
        """`6 x p3.2xlarge + 2 servers on c5n.large`, `1 x p3.8xlarge (4 workers) + 1 server on the same
        machines`,
        `4 x c4.8xlarge (2 replicas of 2) + 1 server on c4.8xlarge`."""
        workers = f"{self.machines} x {self.machine}"
        if self.workers_per_machine > 1:
            workers += f" ({self.workers} worker{'s' if self.workers > 1 else ''})"
        if self.mesh.size > 1:
            many = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
            workers += f" ({many} of {self.mesh.size})"
        return workers + self.exchange.labels().added


def plan_from(values: Mapping[str, Any]) -> Plan:
    """The plan that `as_dict` gave, of this release or of one that wrote `checkpointing` and `cut`."""
    given = dict(values)
    recompute = given.pop("checkpointing", given.get("recompute", "none"))
    given["recompute"] = "attention" if recompute == "selective" else recompute
    if (cut := given.pop("cut", None)) is not None:
        degrees = {name: cut[name] for name in ("tensor", "pipeline", "interleave")}
        given["mesh"] = degrees if cut["kind"] == "layers" else {"workers_per_replica": cut["workers"]}
    chosen = dict(given.pop("exchange"))
    exchange: Any = EXCHANGES[chosen.pop("kind")]
    return Plan(
        **given
        | {
            "exchange": exchange(**chosen),
            "precision": precision_named(given["precision"]),
            "mesh": Mesh.of(**given.get("mesh", {})),
        }
    )
