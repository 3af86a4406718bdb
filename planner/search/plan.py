"""A plan: one point of the search space, and what is known of it once scored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from planner.policy import Mode


@dataclass(frozen=True, slots=True)
class Plan:
    """Which model on which cluster, and how. `server_hardware` is that of the workers when servers live on
    the worker nodes (`colocated`). `workers` counts devices; a machine with several holds several workers."""

    model: str
    batch: int
    worker_hardware: str
    workers: int
    server_hardware: str
    servers: int
    placement: str = "greedy"
    policy: str = "multiplexed"
    mode: Mode = "async"
    colocated: bool = False
    workers_per_machine: int = 1
    workers_per_replica: int = 1  # above 1 the model is cut over so many workers (planner/partition/span.py)

    @property
    def replicas(self) -> int:
        """Copies of the model that are trained side by side."""
        return self.workers // self.workers_per_replica

    @property
    def samples_per_step(self) -> int:
        """Of a replica: each of its workers brings one batch."""
        return self.batch * self.workers_per_replica

    @property
    def machines(self) -> int:
        """Machines that hold workers."""
        return -(-self.workers // self.workers_per_machine)

    @property
    def key(self) -> str:
        """A name that tells the plan apart; ties are broken by it, and it seeds the plan's simulation."""
        place = "colocated" if self.colocated else self.server_hardware
        spans = f"/x{self.workers_per_replica}" if self.workers_per_replica > 1 else ""
        return (
            f"{self.model}/{self.batch}/{self.worker_hardware}/{self.workers:05d}/{self.servers:03d}/{place}/"
            f"{self.placement}/{self.policy}/{self.mode}{spans}"
        )

    def seed(self, seed: int) -> int:
        """The seed of this plan's simulations: the same whichever plans are scored before it."""
        digest = hashlib.blake2b(f"{seed}/{self.key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    @property
    def workers_text(self) -> str:
        """`6 x p3.2xlarge`, `1 x p3.8xlarge (4)` where a machine holds several workers,
        `8 x c4.8xlarge (2 of 4)` where a replica spans several."""
        several = f" ({self.workers})" if self.workers_per_machine > 1 else ""
        if self.workers_per_replica > 1:
            several += f" ({self.replicas} of {self.workers_per_replica})"
        return f"{self.machines} x {self.worker_hardware}{several}"

    @property
    def servers_text(self) -> str:
        """`2 on c5n.large`, or `1 beside` where they live on the workers' machines."""
        return f"{self.servers} {'beside' if self.colocated else 'on ' + self.server_hardware}"

    @property
    def cluster_text(self) -> str:
        """`6 x p3.2xlarge + 2 servers on c5n.large`, `1 x p3.8xlarge (4 workers) + 1 server beside them`,
        `4 x c4.8xlarge (2 replicas of 2) + 1 server on c4.8xlarge`."""
        workers = f"{self.machines} x {self.worker_hardware}"
        if self.workers_per_machine > 1:
            workers += f" ({self.workers} workers)"
        if self.workers_per_replica > 1:
            many = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
            workers += f" ({many} of {self.workers_per_replica})"
        servers = f"{self.servers} server{'s' if self.servers > 1 else ''}"
        return f"{workers} + {servers} {'beside them' if self.colocated else 'on ' + self.server_hardware}"
