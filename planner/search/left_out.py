"""Why machines and plans were left out, in words."""

from __future__ import annotations

from math import lcm

from planner.errors import BadInput, Infeasible, PlannerError
from planner.note import LeftOut
from planner.parallel.mesh import meshes
from planner.parallel.plan import Site
from planner.search.remedies import Ask, remedy_words
from planner.search.request import Request, model_of
from planner.search.space import Space, kinds

FEW = 3  # names that a sentence has room for


def left_out_notes(space: Space) -> list[LeftOut]:
    return [LeftOut.because(names, reason) for reason, names in space.left_out.items()]


def no_plans(space: Space, request: Request, ask: Ask | None = None) -> str:
    """Why a space is empty, in a sentence, and what would make it less so."""
    lost = space.dropped + space.out_of_reach
    if not lost and not space.left_out:
        if (error := _machines_too_small(request)) is not None:
            raise error
        if words := _no_replicas(request):
            raise Infeasible(words)
        raise BadInput(  # not one to judge: the exchanges that are asked for do not go with such machines
            f"--exchange {','.join(kinds(request))} cannot fill {','.join(request.hardware_words)}, "
            "and workers fill whole machines; name others, or ask `planner simulate` for a part of one"
        )
    reasons = ", ".join(
        [
            *(f"{reason} ({count})" for reason, count in space.out_of_reach.most_common()),
            *(f"{reason} ({count})" for reason, count in space.dropped.most_common(3)),
            *(f"{_some(names)} {reason.of(len(names))}" for reason, names in space.left_out.items()),
        ]
    )
    return (
        f"no plan remains of {space.considered}: {reasons}{'' if space.plans else remedy_words(request, ask)}"
    )


def _some(names: list[str]) -> str:
    """The names where they are few, else how many with the first of them."""
    return ", ".join(names) if len(names) <= FEW else f"{len(names)} machines ({', '.join(names[:FEW])}, ...)"


def _machines_too_small(request: Request) -> PlannerError | None:
    """Why no machine has room for the mesh that is named; None if some has."""
    if not request.names_mesh:
        return None
    model = model_of(request)
    errors = [
        mesh.infeasibility(Site(kind, mesh.size), model)
        for kind in request.market.matching(request.hardware_words)
        for mesh in meshes(model, Site(kind, kind.device_count), request.axis_settings)
    ]
    return errors[0] if errors and all(errors) else None


def _no_replicas(request: Request) -> str:
    """Why no number of machines makes whole replicas, with the nearest that does; empty if some may."""
    if not request.names_mesh:
        return ""
    model, machines = model_of(request), request.market.matching(request.hardware_words)
    named = meshes(model, Site(machines[0], machines[0].device_count), request.axis_settings)
    counts = {
        kind.name: min(lcm(mesh.size, kind.device_count) // kind.device_count for mesh in named)
        for kind in machines
    }
    name = min(counts, key=counts.__getitem__)
    labels = " or ".join(mesh.label for mesh in named)
    return (
        f"no number of machines that is allowed makes whole replicas of {labels}; the nearest that works is "
        f"{counts[name]} x {name}"
    )
