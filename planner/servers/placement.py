"""Placement: which parameter server holds which tensor, or which part of it.

A rule is a pure function of sizes. Five are known:

- `greedy`: TensorFlow's GreedyLoadBalancingStrategy with byte_size_load_fn: in creation order, each variable
  to the server with the fewest bytes so far (the first of equals).
- `round_robin`: TensorFlow's replica_device_setter without a strategy: in creation order, by turns.
- `mxnet`: KVStore: an array of fewer than 1,000,000 elements goes whole to server (key * 9973) mod n; a
  larger one is split evenly over all servers.
- `p3`: Priority-based Parameter Propagation: arrays of at least 40,000 elements are cut into slices of at
  most that, spread round robin; smaller ones as in `mxnet`.
- `best_fit`: largest tensor first, each where it leaves the least room below an even share; where it fits
  nowhere, to the emptiest server. The best known split without cutting a tensor.

TensorFlow places every variable, so its two rules also count the 8-byte `global_step`, created first, and the
moving averages of batch normalisation; none of these is transferred in a step. MXNet numbers what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import BadInput, unknown_name
from planner.model import BYTES_PER_ELEMENT, Model

if TYPE_CHECKING:
    from planner.device.computation import Parameter

MXNET_SPLIT_ELEMENTS = 1_000_000  # MXNET_KVSTORE_BIGARRAY_BOUND
P3_SLICE_ELEMENTS = 40_000
MXNET_HASH = 9973
GLOBAL_STEP_BYTES = 8


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor, or a part of it, on one server."""

    tensor: int  # index into the tensors that were placed
    server: int
    bytes: int


def _greedy(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    load = [0] * servers
    for index, size in enumerate(sizes):
        server = load.index(min(load))
        load[server] += size
        yield TensorPart(index, server, size)


def _round_robin(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    for index, size in enumerate(sizes):
        yield TensorPart(index, index % servers, size)


def _mxnet(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    for index, size in enumerate(sizes):
        elements = size // BYTES_PER_ELEMENT
        if elements < MXNET_SPLIT_ELEMENTS or servers == 1:
            yield TensorPart(index, index * MXNET_HASH % servers, size)
        else:
            ends = [round(elements / servers * (server + 1)) for server in range(servers)]
            for server, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
                yield TensorPart(index, server, (end - begin) * BYTES_PER_ELEMENT)


def _p3(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    turn = 0
    slice_bytes = P3_SLICE_ELEMENTS * BYTES_PER_ELEMENT
    for index, size in enumerate(sizes):
        if size < slice_bytes:
            yield TensorPart(index, index * MXNET_HASH % servers, size)
            continue
        for begin in range(0, size, slice_bytes):
            yield TensorPart(index, turn % servers, min(slice_bytes, size - begin))
            turn += 1


def _best_fit(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    share = sum(sizes) / servers
    room = [share] * servers
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        fitting = [server for server in range(servers) if room[server] >= sizes[index]]
        server = min(fitting, key=lambda s: room[s]) if fitting else room.index(max(room))
        room[server] -= sizes[index]
        chosen[index] = server
    for index, size in enumerate(sizes):
        yield TensorPart(index, chosen[index], size)


_RULES: dict[str, Callable[[Sequence[int], int], Iterator[TensorPart]]] = {
    "greedy": _greedy,
    "round_robin": _round_robin,
    "mxnet": _mxnet,
    "p3": _p3,
    "best_fit": _best_fit,
}
_PLACE_EVERY_VARIABLE = ("greedy", "round_robin")
MXNET_RULES = ("mxnet", "p3")
RULES = tuple(_RULES)


def place(sizes_bytes: Sequence[int], servers: int, rule: str = "greedy") -> tuple[TensorPart, ...]:
    """Place tensors on servers, in their order; the parts of a tensor add up to its bytes."""
    if servers < 1:
        raise BadInput(f"tensors cannot be placed on {servers} servers; at least 1 is needed")
    if rule not in _RULES:
        raise unknown_name("placement", rule, RULES, hint="one of " + ", ".join(RULES))
    return tuple(_RULES[rule](sizes_bytes, servers))


def place_model(model: Model, servers: int, rule: str = "greedy") -> tuple[TensorPart, ...]:
    """Place the trained tensors of a model; `TensorPart.tensor` indexes `model.tensors`."""
    from planner.device.computation.synthesis import compute_graph

    return place_parameters(compute_graph(model).parameters, servers, rule)


def place_parameters(
    parameters: Sequence[Parameter], servers: int, rule: str = "greedy"
) -> tuple[TensorPart, ...]:
    """Place parameters of four-byte elements; `TensorPart.tensor` indexes them."""
    if rule not in _PLACE_EVERY_VARIABLE:
        return place([parameter.elements * BYTES_PER_ELEMENT for parameter in parameters], servers, rule)
    sizes = [GLOBAL_STEP_BYTES]
    trained = [-1]
    for count, entry in enumerate(parameters):
        sizes += [elements * BYTES_PER_ELEMENT for elements in (entry.elements, *entry.untrained)]
        trained += [count, *(-1 for _ in entry.untrained)]
    parts = place(sizes, servers, rule)
    return tuple(TensorPart(trained[p.tensor], p.server, p.bytes) for p in parts if trained[p.tensor] >= 0)


def server_bytes(parts: Sequence[TensorPart], servers: int) -> tuple[int, ...]:
    """Bytes of trained tensors on each server."""
    load = [0] * servers
    for part in parts:
        load[part.server] += part.bytes
    return tuple(load)
