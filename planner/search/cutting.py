"""How replicas may be cut: which degrees a request leaves open on machines of a kind."""

from __future__ import annotations

from planner.errors import BadInput
from planner.hardware import Hardware
from planner.model import Model
from planner.model.units import chain_of
from planner.parallel.cut import Cut
from planner.parallel.cut.tensor import degrees, refusal
from planner.search.request import DEFAULT_PER_REPLICA, Request
from planner.search.usual_batches import LARGE_PARAMETERS

DEFAULT_STAGES = (1, 2, 4, 8, 16)
INTERLEAVES = (2, 4)  # stages a device


def cuts(request: Request, worker: Hardware, model: Model) -> list[Cut]:
    """How replicas may be spread on machines of this kind: over CPU workers, or by layers over the devices of
    a machine and stages of several, for networks that are too large for one device."""
    one = worker.device_count == 1
    several = worker.device.kind == "cpu" and one and request.profile is None
    large = model.parameters >= LARGE_PARAMETERS
    named = request.workers_per_replica or ((1,) if large else DEFAULT_PER_REPLICA)
    out = [Cut(many) for many in named if many == 1 or several]
    asked = request.tensor is not None or request.pipeline is not None
    if not asked and (one or request.workers_per_replica or not large):
        return out
    tensor = request.tensor or (degrees(model, worker.device_count) if not asked else (1,))
    pipeline = request.pipeline or (DEFAULT_STAGES if not asked else (1,))
    units = chain_of(model).length
    found = [
        Cut.layers(t, p, v)
        for t in tensor
        for p in pipeline
        if p <= units and not refusal(model, t)
        for v in _interleaves(request, p, units)
    ]
    if asked:
        if not found:
            reason = next((refusal(model, t) for t in tensor if refusal(model, t)), "")
            raise BadInput(reason or _too_many(request, min(pipeline), units, model))
        return list(dict.fromkeys(found))
    return list(dict.fromkeys([*out, *found]))


def _interleaves(request: Request, pipeline: int, units: int) -> list[int]:
    """How many stages of a pipeline each device may have: as asked, else one, or as many as leave each two
    units or more."""
    if pipeline == 1:
        return [1]
    if request.interleave is not None:
        return [many for many in request.interleave if many * pipeline <= units]
    if request.pipeline is not None:
        return [1]
    most = [many for many in INTERLEAVES if 2 * many * pipeline <= units]
    return [1, *most[-1:]]


def _too_many(request: Request, pipeline: int, units: int, model: Model) -> str:
    """More stages than units, with the nearest that works."""
    if pipeline > units:
        few = f"--pipeline: {pipeline} stages of {model.name}, which has {units} units"
        return f"{few}; the nearest that works is {units}"
    many = min(request.interleave or (1,))
    return (
        f"--interleave: {many} x {pipeline} stages of {model.name}, which has {units} units; the nearest "
        f"that works is --interleave {units // pipeline}"
    )
