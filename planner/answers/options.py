"""The keyword arguments of `planner.recommend`, `compare`, `saturation` and `simulate`; generated.

Flags are declared on the fields of `planner.search.request.Request`; this file is written by
`python docs/reference.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from planner.simulator.step import Profile


class Options(TypedDict, total=False):
    """Options as people write them, by the name of their flag."""

    profile: str | Sequence[str] | Profile | None
    batch: int | str | Sequence[int | str] | None
    global_batch: int | None
    accumulate: int | None
    seq_length: int | None
    precision: str | Sequence[str] | None
    recompute: str | Sequence[str] | None
    framework: str | None
    input: str | float | None
    epochs: float | None
    tokens: str | float | None
    samples: float | None
    hardware: str | Sequence[str] | None
    gpu: str | Sequence[str] | None
    provider: str | Sequence[str] | None
    sold: bool | None
    region: str | None
    spot: bool | None
    interruptions: str | float | None
    checkpoint_every: str | float | None
    restart: str | float | None
    network: str | None
    bandwidth: str | None
    budget: str | float | None
    price: float | None
    deadline: str | float | None
    spend: float | None
    machines: int | None
    min_throughput: float | None
    objective: str | None
    confidence: str | float | None
    min_marginal_efficiency: str | float | None
    all_offers: bool | None
    max_workers: int | None
    workers: str | int | Sequence[int | str] | None
    exchange: str | Sequence[str] | None
    tensor: str | int | Sequence[int | str] | None
    pipeline: str | int | Sequence[int | str] | None
    interleave: str | int | Sequence[int | str] | None
    servers: str | int | Sequence[int | str] | None
    server_hardware: str | Sequence[str] | None
    placement: str | Sequence[str] | None
    policy: str | Sequence[str] | None
    mode: str | None
    workers_per_replica: str | int | Sequence[int | str] | None
    seed: int | None
    interval_width: float | None
    max_steps: int | None
    train: str | None
    rank: int | None
    targets: str | None
    dropout: float | None
    base: str | None
    optimizer: str | None
    offload: str | Sequence[str] | None
    cross_entropy: str | None
    activations: str | None
    dataset_tokens: str | float | None
    mean_length: int | None
