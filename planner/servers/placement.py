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

A recorded or synthesized step follows its tensors: `move_to_servers` moves it to more servers, `cut_tensors`
cuts tensors into the pieces that P3 and BytePS push, update and pull on their own. Either way piece j of a
gradient is applied by update j, whatever waited for a whole tensor waits for all its pieces, and compute time
is split in proportion to bytes. `add_parsing` adds an op to each transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.errors import BadInput, unknown_name
from planner.model import BYTES_PER_ELEMENT, Model
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, OpRole, Profile, dependency_arrays

if TYPE_CHECKING:
    from planner.device.computation import Parameter


MXNET_SPLIT_ELEMENTS = 1_000_000  # MXNET_KVSTORE_BIGARRAY_BOUND
P3_SLICE_ELEMENTS = 40_000
MXNET_HASH = 9973
GLOBAL_STEP_BYTES = 8


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor, or part of one, that a server holds."""

    tensor: int  # index into the tensors that were placed
    server: int
    bytes: int


def _place_greedy(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    """Places each tensor on the server with the fewest bytes so far."""
    load = [0] * servers
    for index, size in enumerate(sizes):
        server = load.index(min(load))
        load[server] += size
        yield TensorPart(index, server, size)


def _place_round_robin(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    """Places tensors on servers in turn."""
    for index, size in enumerate(sizes):
        yield TensorPart(index, index % servers, size)


def _place_mxnet(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    """Places as MXNet does: small tensors by hash, large ones divided equally over all servers."""
    for index, size in enumerate(sizes):
        elements = size // BYTES_PER_ELEMENT
        if elements < MXNET_SPLIT_ELEMENTS or servers == 1:
            yield TensorPart(index, index * MXNET_HASH % servers, size)
        else:
            ends = [round(elements / servers * (server + 1)) for server in range(servers)]
            for server, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
                yield TensorPart(index, server, (end - begin) * BYTES_PER_ELEMENT)


def _place_p3(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    """Places as P3 does: small tensors by hash, slices of large ones on servers in turn."""
    turn = 0
    slice_bytes = P3_SLICE_ELEMENTS * BYTES_PER_ELEMENT
    for index, size in enumerate(sizes):
        if size < slice_bytes:
            yield TensorPart(index, index * MXNET_HASH % servers, size)
            continue
        for begin in range(0, size, slice_bytes):
            yield TensorPart(index, turn % servers, min(slice_bytes, size - begin))
            turn += 1


def _place_best_fit(sizes: Sequence[int], servers: int) -> Iterator[TensorPart]:
    """Places tensors, largest first, on the server whose remaining room below an equal share is tightest."""
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
    "greedy": _place_greedy,
    "round_robin": _place_round_robin,
    "mxnet": _place_mxnet,
    "p3": _place_p3,
    "best_fit": _place_best_fit,
}
_PLACE_EVERY_VARIABLE = ("greedy", "round_robin")
MXNET_RULES = ("mxnet", "p3")
RULES = tuple(_RULES)


def place_tensors(sizes_bytes: Sequence[int], servers: int, rule: str = "greedy") -> tuple[TensorPart, ...]:
    """Places tensors on servers by a rule; the parts of a tensor add up to its bytes."""
    if servers < 1:
        raise BadInput(f"tensors cannot be placed on {servers} servers; at least 1 is needed")
    if rule not in _RULES:
        raise unknown_name("placement", rule, RULES, hint="one of " + ", ".join(RULES))
    return tuple(_RULES[rule](sizes_bytes, servers))


def place_model(model: Model, servers: int, rule: str = "greedy") -> tuple[TensorPart, ...]:
    """Places the trained tensors of a model; `TensorPart.tensor` indexes `model.tensors`."""
    from planner.device.computation.synthesis import compute_graph

    return place_parameters(compute_graph(model).parameters, servers, rule)


def place_parameters(
    parameters: Sequence[Parameter], servers: int, rule: str = "greedy"
) -> tuple[TensorPart, ...]:
    """Places parameters at four bytes per element; `TensorPart.tensor` indexes them."""
    if rule not in _PLACE_EVERY_VARIABLE:
        return place_tensors(
            [parameter.elements * BYTES_PER_ELEMENT for parameter in parameters], servers, rule
        )
    sizes = [GLOBAL_STEP_BYTES]
    trained = [-1]
    for count, entry in enumerate(parameters):
        sizes += [elements * BYTES_PER_ELEMENT for elements in (entry.elements, *entry.untrained)]
        trained += [count, *(-1 for _ in entry.untrained)]
    parts = place_tensors(sizes, servers, rule)
    return tuple(TensorPart(trained[p.tensor], p.server, p.bytes) for p in parts if trained[p.tensor] >= 0)


def server_bytes(parts: Sequence[TensorPart], servers: int) -> tuple[int, ...]:
    """Bytes on each server, summed over the given parts."""
    load = [0] * servers
    for part in parts:
        load[part.server] += part.bytes
    return tuple(load)


Group = tuple[int, int]  # tensor, server
Piece = tuple[dict[str, Any], float]  # fields that a piece of an op has instead, and its share of the time


def move_to_servers(profile: Profile, servers: int, placement: str = "greedy") -> Profile:
    """Profile with its tensors placed on this many servers; the same object if nothing moves."""
    if servers == 1 and profile.servers == 1:
        return profile
    if not profile.tensors:
        raise BadInput(
            "the profile does not say which tensor a transfer belongs to, so that it cannot be moved to "
            f"{servers} servers; record it with that many"
        )
    parts = _place_profile_tensors(profile, servers, placement)
    first = [0, *accumulate(map(len, parts))]
    pieces: list[list[Piece]] = []
    for op in range(profile.ops):
        whole = profile.op(op)
        if whole.tensor < 0 or whole.resource == WORKER:
            moved = whole.server % servers if whole.resource in (DOWNLINK, UPLINK, PS) else -1
            tensor = -1 if whole.tensor < 0 else first[whole.tensor]
            pieces.append([({"server": moved, "tensor": tensor}, 1.0)])
            continue
        held = parts[whole.tensor]
        total = sum(part.bytes for part in held) or 1
        left = whole.bytes
        own: list[Piece] = []
        for k, (name, part) in enumerate(zip(part_names(whole.name, len(held)), held, strict=True)):
            share = part.bytes / total
            size = left if part is held[-1] else max(1, round(whole.bytes * share)) if whole.bytes else 0
            left -= size
            tensor = first[whole.tensor] + k
            own.append(({"name": name, "server": part.server, "bytes": size, "tensor": tensor}, share))
        pieces.append(own)
    names = [
        name
        for tensor, held in zip(profile.tensors, parts, strict=True)
        for name in part_names(tensor, len(held))
    ]
    group = [int(profile.tensor[op]) if len(own) > 1 else None for op, own in enumerate(pieces)]
    order = profile.topological_order().tolist()
    note = f"moved from {profile.servers} to {servers} servers ({placement})"
    notes = (*profile.notes, note)
    return _replace_by_pieces(
        profile, pieces, group, order=order, servers=servers, tensors=names, notes=notes
    )


def part_names(name: str, parts: int) -> list[str]:
    """Names of the parts of a tensor or op, such as `fc6/part0`; its own name if there is one part."""
    return [f"{name}/part{k}" for k in range(parts)] if parts > 1 else [name]


def _place_profile_tensors(profile: Profile, servers: int, placement: str) -> list[list[TensorPart]]:
    """Parts of each tensor of a profile, each on a server. A tensor is as large as its largest transfer."""
    sizes = np.ones(len(profile.tensors), np.int64)
    moved = profile.is_transfer & (profile.tensor >= 0)
    np.maximum.at(sizes, profile.tensor[moved], profile.bytes[moved])
    parts: list[list[TensorPart]] = [[] for _ in sizes]
    for part in place_tensors(sizes.tolist(), servers, placement):
        parts[part.tensor].append(part)
    return parts


def cut_tensors(profile: Profile, piece_bytes: int, *, deal: bool = False) -> Profile:
    """Cuts every tensor into pieces of at most `piece_bytes`; with `deal`, pieces go to servers in turn."""
    if piece_bytes < 1:
        raise BadInput(f"piece_bytes is {piece_bytes}; a piece needs at least one byte")
    sizes_of = _piece_sizes(profile, piece_bytes)
    if all(len(sizes) == 1 for sizes in sizes_of.values()):
        return profile
    names = list(profile.tensors) or [str(i) for i in range(int(profile.tensor.max()) + 1)]
    place_of: dict[Group, list[tuple[int, int]]] = {}  # of each piece: new tensors come last
    turn = 0
    for (tensor, server), sizes in sorted(sizes_of.items()):
        if len(sizes) == 1:
            place_of[tensor, server] = [(tensor, server)]
            continue
        turns = [(turn + j) % profile.servers if deal else server for j in range(len(sizes))]
        place_of[tensor, server] = [(len(names) + j, turns[j]) for j in range(len(sizes))]
        names += [f"{names[tensor]}#{j}" for j in range(len(sizes))]
        turn += len(sizes)
    group = _cut_groups(profile, sizes_of)
    pieces: list[list[Piece]] = []
    transfers, on_worker = profile.is_transfer, np.isin(profile.resource, (WORKER, HOST))
    for op, own in enumerate(group):
        if own is None:
            pieces.append([({}, 1.0)])
            continue
        sizes, name = sizes_of[own], profile.names[op]
        total = sum(sizes)
        pieces.append([])
        for j, (size, (tensor, server)) in enumerate(zip(sizes, place_of[own], strict=True)):
            change = {
                "name": name if len(sizes) == 1 else f"{name}#{j}",
                "server": -1 if on_worker[op] else server,
                "bytes": size if transfers[op] else 0,
                "tensor": tensor,
            }
            pieces[op].append((change, size / total))
    return _replace_by_pieces(profile, pieces, group, order=range(profile.ops), tensors=names)


def _replace_by_pieces(
    profile: Profile,
    pieces: Sequence[Sequence[Piece]],
    group: Sequence[Hashable],
    *,
    order: Sequence[int],
    **changes: Any,
) -> Profile:
    """Replaces each op of a profile, in `order`, by pieces that share its duration.

    Piece j of an op waits for piece j of a dependency in the same `group`, and for all pieces of any other.
    """
    first = [0] * profile.ops
    for op, position in zip(order, accumulate((len(pieces[op]) for op in order), initial=0), strict=False):
        first[op] = position
    ops: list[Op] = []
    for op in order:
        whole, waits_for = profile.op(op), profile.deps(op).tolist()
        for j, (change, _) in enumerate(pieces[op]):
            deps: list[int] = []
            for dep in waits_for:
                alike = group[op] is not None and group[dep] == group[op]
                deps += [first[dep] + j] if alike else range(first[dep], first[dep] + len(pieces[dep]))
            ops.append(replace(whole, deps=tuple(deps), **change))
    source = np.repeat(order, [len(pieces[op]) for op in order])
    share = np.array([share for op in order for _, share in pieces[op]])
    return profile.with_ops(
        ops, profile.durations_s[:, source] * share, order=_inherited_order(profile, source), **changes
    )


def _inherited_order(profile: Profile, source: Any) -> Any:
    """Transfer order of new ops, ranked as recorded for their `source` ops; None if none is recorded."""
    if profile.order is None:
        return None
    return profile.order[:, source].argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")


def _piece_sizes(profile: Profile, piece_bytes: int) -> dict[Group, list[int]]:
    """Piece sizes of tensors that can be cut, by (tensor, server): those with equal transfers both ways."""
    whole: dict[Group, list[tuple[int, int]]] = {}
    for op in np.flatnonzero(profile.is_transfer & (profile.tensor >= 0)).tolist():
        key = int(profile.tensor[op]), int(profile.server[op])
        whole.setdefault(key, []).append((int(profile.resource[op]), int(profile.bytes[op])))
    sizes_of = {}
    for key, transfers in whole.items():
        directions, sizes = zip(*transfers, strict=True)
        if len(set(directions)) == len(directions) and len(set(sizes)) == 1:
            full, rest = divmod(sizes[0], piece_bytes)
            sizes_of[key] = [piece_bytes] * full + [rest] * (rest > 0)
    return sizes_of


def _cut_groups(profile: Profile, sizes_of: dict[Group, list[int]]) -> list[Group | None]:
    """Tensor and server of each op that is cut into pieces; None for ops that stay whole."""
    parses = profile.parsing_ops()
    cuttable = profile.is_transfer | (profile.resource == PS)
    groups: list[Group | None] = []
    for op in range(profile.ops):
        source = int(profile.deps(op)[0]) if op in parses else op
        key = int(profile.tensor[source]), int(profile.server[source])
        groups.append(key if (op in parses or cuttable[op]) and key in sizes_of else None)
    return groups


def replace_deps(profile: Profile, deps: Sequence[Sequence[int]]) -> Profile:
    """Copy of a profile with new dependencies, one sequence per op."""
    dep_start, dep_index = dependency_arrays(deps)
    return replace(profile, dep_start=dep_start, dep_index=dep_index)


def add_parsing(profile: Profile, alpha_s_per_byte: float, beta_s: float) -> Profile:
    """Adds a parse op after each transfer, on the receiver, and shortens recorded transfers by its time."""
    ops: list[Op] = []
    source: list[int] = []  # the op of the profile that each op comes from
    place: dict[int, int] = {}  # the op after which each op of the profile is done
    parses: list[int] = []
    for i in profile.topological_order().tolist():
        whole = profile.op(i)
        ops.append(replace(whole, deps=tuple(place[dep] for dep in whole.deps)))
        source.append(i)
        if whole.resource in (DOWNLINK, UPLINK):
            name = f"{whole.name}/parse"
            if name in profile.names:
                raise BadInput(f"the profile has parse ops already ({name!r})")
            resource, server = (WORKER, -1) if whole.resource == DOWNLINK else (PS, whole.server)
            ops.append(Op(name, resource, server, deps=(len(ops) - 1,), role=OpRole.PARSE))
            source.append(i)
            parses.append(len(ops) - 1)
        place[i] = len(ops) - 1
    parsed, sent = np.array(parses, np.intp), np.array(parses, np.intp) - 1
    durations_s = profile.durations_s[:, source]
    durations_s[:, parsed] = alpha_s_per_byte * profile.bytes[np.take(source, parsed)] + beta_s
    durations_s[:, sent] = np.maximum(durations_s[:, sent] - durations_s[:, parsed], 0.0)
    starts_s = None if profile.starts_s is None else profile.starts_s[:, source]
    if starts_s is not None:
        starts_s[:, parsed] = starts_s[:, sent] + durations_s[:, sent]
    note = f"parsing is an op after each transfer: {alpha_s_per_byte:.3g} s a byte and {beta_s:.3g} s"
    return profile.with_ops(
        ops,
        durations_s,
        order=_inherited_order(profile, source),
        starts_s=starts_s,
        notes=(*profile.notes, note),
    )
