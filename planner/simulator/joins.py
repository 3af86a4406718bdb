"""Joins: where the steps of different workers wait for each other, besides joint ops.

A gated op waits until it is ready at every worker; then each runs its own on its own lane. A publishing op
helps to make the next version of a tensor: when all of them have ended at all workers, the version is there.
An awaiting op of step k waits for version k of its tensor. All three are columns over the ops of a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput, unknown_name
from planner.simulator.policy import Mode
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Profile


@dataclass(frozen=True, eq=False, slots=True)
class Joins:
    """What ties workers together; -1 in `publishes` and `awaits` means no tensor."""

    gated: npt.NDArray[np.bool_]
    publishes: npt.NDArray[np.int32]
    awaits: npt.NDArray[np.int32]

    @staticmethod
    def none(ops: int) -> Joins:
        """No op waits for other workers."""
        nothing = np.full(ops, -1, np.int32)
        return Joins(np.zeros(ops, np.bool_), nothing, nothing)

    @property
    def any(self) -> bool:
        """Are workers tied together?"""
        return bool(self.gated.any() or (self.publishes >= 0).any() or (self.awaits >= 0).any())

    def check(self, profile: Profile) -> None:
        """Refuse columns that do not fit a step."""
        for name in ("gated", "publishes", "awaits"):
            if len(getattr(self, name)) != profile.ops:
                raise BadInput(f"{name} has {len(getattr(self, name))} entries for {profile.ops} ops")
        tied = self.gated | (self.publishes >= 0) | (self.awaits >= 0)
        wrong = tied & (profile.resource == WORKER)
        if wrong.any():
            raise BadInput(
                f"op {profile.names[int(np.argmax(wrong))]!r} is computation and has a join; "
                "only what runs on a link or a server can wait for other workers"
            )
        tensors = tensor_count(profile)
        if max(self.publishes.max(initial=-1), self.awaits.max(initial=-1)) >= tensors:
            raise BadInput(f"a join names a tensor beyond the {tensors} of the step")


def joins_of(profile: Profile, mode: Mode) -> Joins:
    """The joins of training through parameter servers.

    None if asynchronous. Synchronous: the update of a tensor is made of its server ops that no other server
    op of that tensor depends on (the others, as parsing, precede it); it is gated, and publishes the version
    that the next download awaits. A tensor without server ops is updated when its uploads are in.
    """
    if mode not in ("async", "sync"):
        raise unknown_name("mode", str(mode), ("async", "sync"))
    n, tensors = profile.ops, tensor_count(profile)
    if mode == "async":
        return Joins.none(n)
    publishes, awaits = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    on_server = (profile.resource == PS) & (profile.tensor >= 0)
    precedes = np.zeros(n, np.bool_)
    for op in np.flatnonzero(on_server):
        deps = profile.deps(int(op))
        precedes[deps[on_server[deps] & (profile.tensor[deps] == profile.tensor[op])]] = True
    gated = on_server & ~precedes
    updated = np.zeros(tensors + 1, np.bool_)
    updated[profile.tensor[gated]] = True
    uploads = (profile.resource == UPLINK) & (profile.tensor >= 0) & ~updated[profile.tensor]
    publishing = gated | uploads
    if not publishing.any():
        raise BadInput(
            "synchronous mode needs to know which upload updates which tensor, "
            "but the profile's uploads and updates name no tensor; give them one or use mode async"
        )
    publishes[publishing] = profile.tensor[publishing]
    published = np.zeros(tensors, np.bool_)
    published[publishes[publishing]] = True
    downloads = (profile.resource == DOWNLINK) & (profile.tensor >= 0)
    downloads[downloads] = published[profile.tensor[downloads]]
    awaits[downloads] = profile.tensor[downloads]
    return Joins(gated, publishes, awaits)


def tensor_count(profile: Profile) -> int:
    """Tensors that ops may belong to, named or not."""
    return max(len(profile.tensors), int(profile.tensor.max(initial=-1)) + 1)
