"""Cutting transfers into pieces that are pushed, updated and pulled on their own, as P3 and BytePS do.

A tensor of more than `piece_bytes` becomes pieces of at most that. Its download, parsing, upload and update
are cut alike: piece j waits for piece j, and whatever else waited for the whole waits for every piece.
Compute time is split in proportion to bytes. With `deal`, pieces go to the servers by turns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from planner.errors import BadInput
from planner.servers.ordering.graph import parse_ops
from planner.simulator.step import HOST, PS, WORKER, Op, Profile


def cut(profile: Profile, piece_bytes: int, *, deal: bool = False) -> Profile:
    """The profile with every tensor in pieces of at most `piece_bytes`."""
    if piece_bytes < 1:
        raise BadInput(f"piece_bytes is {piece_bytes}; a piece needs at least one byte")
    pieces = _pieces(profile, piece_bytes)
    if all(len(sizes) == 1 for sizes in pieces.values()):
        return profile
    group = _groups(profile, pieces)
    first = [0, *accumulate(len(pieces[g]) if g is not None else 1 for g in group)]
    tensor_of, servers, names = _new_tensors(profile, pieces, deal)

    transfers = profile.is_transfer
    ops: list[Op] = []
    share = np.ones(first[-1])
    for op, own in enumerate(group):
        whole = profile.op(op)
        sizes = pieces[own] if own is not None else [whole.bytes]
        on_worker = whole.resource in (WORKER, HOST)
        for j, size in enumerate(sizes):
            deps: list[int] = []
            for dep in profile.deps(op).tolist():
                alike = own is not None and group[dep] == own
                deps += [first[dep] + j] if alike else range(first[dep], first[dep + 1])
            piece = replace(whole, deps=tuple(deps))
            if own is not None:
                piece = replace(
                    piece,
                    name=whole.name if len(sizes) == 1 else f"{whole.name}#{j}",
                    server=-1 if on_worker else servers[own, j],
                    bytes=size if transfers[op] else 0,
                    tensor=tensor_of[own, j],
                )
            ops.append(piece)
            share[first[op] + j] = 1.0 if own is None else size / sum(sizes)
    old = np.repeat(np.arange(profile.ops), np.diff(first))
    order = profile.order
    return profile.rebuilt(
        ops,
        profile.durations_s[:, old] * share,
        tensors=names,
        order=None if order is None else np.argsort(np.argsort(order[:, old], axis=1, kind="stable"), axis=1),
    )


Group = tuple[int, int]  # tensor, server


def _pieces(profile: Profile, piece_bytes: int) -> dict[Group, list[int]]:
    """Sizes of the pieces of each (tensor, server) whose transfers are one in a direction and of one size."""
    whole: dict[Group, list[tuple[int, int]]] = {}
    for op in np.flatnonzero(profile.is_transfer & (profile.tensor >= 0)).tolist():
        key = int(profile.tensor[op]), int(profile.server[op])
        whole.setdefault(key, []).append((int(profile.resource[op]), int(profile.bytes[op])))
    out = {}
    for key, transfers in whole.items():
        directions, sizes = zip(*transfers, strict=True)
        if len(set(directions)) == len(directions) and len(set(sizes)) == 1:
            full, rest = divmod(sizes[0], piece_bytes)
            out[key] = [piece_bytes] * full + [rest] * (rest > 0)
    return out


def _groups(profile: Profile, pieces: dict[Group, list[int]]) -> list[Group | None]:
    """The (tensor, server) that an op is cut with: transfers, updates on servers, and parsing."""
    out: list[Group | None] = []
    parses, transfers = parse_ops(profile), profile.is_transfer
    for op in range(profile.ops):
        source = int(profile.deps(op)[0]) if op in parses else op
        key = int(profile.tensor[source]), int(profile.server[source])
        cuttable = op in parses or transfers[op] or profile.resource[op] == PS
        out.append(key if cuttable and key in pieces else None)
    return out


def _new_tensors(
    profile: Profile, pieces: dict[Group, list[int]], deal: bool
) -> tuple[dict[tuple[Group, int], int], dict[tuple[Group, int], int], list[str]]:
    """For each piece its tensor (new ones after the old) and its server; and the tensors' names."""
    tensor_of, servers = {}, {}
    names = list(profile.tensors) or [str(i) for i in range(int(profile.tensor.max()) + 1)]
    turn = 0
    for key, sizes in sorted(pieces.items()):
        whole = len(sizes) == 1
        for j in range(len(sizes)):
            tensor_of[key, j] = key[0] if whole else len(names)
            servers[key, j] = key[1] if whole or not deal else turn % profile.servers
            if not whole:
                names.append(f"{names[key[0]]}#{j}")
                turn += 1
    return tensor_of, servers, names
