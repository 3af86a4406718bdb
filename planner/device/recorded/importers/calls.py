"""The calls inside the outermost ops of a trace as leaves: whose time is whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from planner.device.recorded.importers.events import Event, Id
from planner.device.recorded.importers.leaves import Leaf, Shapes, leaf_of, moving

COMMUNICATION = "communication"
COLLECTIVE_CALL = "c10d::"
NOTHING = (0.0,) * 6


@dataclass
class _Open:
    end: float
    leaf: Leaf
    whole: bool  # what it calls belongs to it


def leaves_of(
    calls: Sequence[tuple[Event, int]], weights: set[tuple[int, ...]], *, tf32: bool = False
) -> list[Leaf]:
    """The leaf that each call belongs to; calls come in the order of their start, the longer first. A call's
    time is what it spends itself."""
    decoder = msgspec.json.Decoder(Shapes)
    stacks: dict[tuple[Id, Id], list[_Open]] = {}
    out = []
    for call, _ in calls:
        stack = stacks.setdefault((call.pid, call.tid), [])
        while stack and stack[-1].end <= call.ts:
            stack.pop()
        if stack and stack[-1].whole:
            out.append(stack[-1].leaf)
            continue
        if stack:
            stack[-1].leaf.us -= call.dur
        leaf, whole = _leaf(call, decoder, weights, tf32=tf32)
        leaf.us = call.dur
        stack.append(_Open(call.end, leaf, whole))
        out.append(leaf)
    return out


def _leaf(
    call: Event, decoder: msgspec.json.Decoder[Shapes], weights: set[tuple[int, ...]], *, tf32: bool
) -> tuple[Leaf, bool]:
    if call.name.startswith(COLLECTIVE_CALL):
        return Leaf(COMMUNICATION, "fp32", 0.0, NOTHING), True
    shapes = decoder.decode(call.args) if call.args else Shapes()
    known = leaf_of(call.name, shapes, weights, tf32=tf32)
    return (known, True) if known is not None else (moving(call.name, shapes), False)
