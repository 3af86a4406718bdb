"""The device meshes of a request: what it names, and what it leaves open on machines of a kind."""

from __future__ import annotations

from collections.abc import Iterable

from planner.hardware import Hardware
from planner.model import Model
from planner.parallel.data import EXCHANGES, Asked, Site, Tier
from planner.parallel.mesh import Mesh, meshes, strategy_axis
from planner.search.request import DEFAULT_PER_REPLICA, Request
from planner.search.usual_batches import LARGE_PARAMETERS


def meshes_on(
    request: Request, worker: Hardware, model: Model, strategies: Iterable[str] = EXCHANGES
) -> list[Mesh]:
    """The meshes to try on machines of a kind with one of these strategies: those that are named; else whole
    replicas, over CPU workers too, and sharded ones of networks that are too large for one device."""
    contends = any(EXCHANGES.entry(kind).tier is Tier.CONTENDER for kind in strategies)
    large = model.parameters >= LARGE_PARAMETERS
    asked, named = request.axis_settings, request.names_mesh
    free = worker.device_count > 1 and request.workers_per_replica is None and large
    machine = Site(worker, worker.device_count, request.market)
    sharded = [] if not (named or free) else meshes(model, machine, asked, free=free)
    if named:
        return sharded
    return list(dict.fromkeys([*_strategy_meshes(request, worker, model, large or not contends), *sharded]))


def _strategy_meshes(request: Request, worker: Hardware, model: Model, whole: bool) -> list[Mesh]:
    """Replicas over several CPU workers, where parameter servers may spread them; `whole` ones only unless
    others are named."""
    degrees = request.workers_per_replica or ((1,) if whole else DEFAULT_PER_REPLICA)
    if request.profile is not None or worker.device.kind != "cpu" or max(degrees) == 1:
        return [Mesh() for degree in degrees if degree == 1]
    axis, asked = strategy_axis("workers_per_replica"), Asked({"workers_per_replica": degrees})
    machine = Site(worker, worker.device_count, request.market)
    return [Mesh((each,)) for each in axis.candidates(asked, machine, model)]


def named_mesh(request: Request, worker: Hardware, model: Model) -> Mesh:
    """The one mesh that a request names, for questions about one plan."""
    if request.names_mesh:
        return meshes_on(request, worker, model)[0]
    return (
        Mesh.of(workers_per_replica=request.workers_per_replica[0]) if request.workers_per_replica else Mesh()
    )
