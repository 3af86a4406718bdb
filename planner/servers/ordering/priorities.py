"""Priorities as a file: what `planner order --export` writes and `--priorities` reads.

    {"model": "vgg11", "strategy": "tac", "transfers": [{"name": "conv0/weights/down", "priority": 0}, ...]}

Lower goes first, equals go in the order of arrival. A file names every download; uploads it does not name
take the priority of their tensor's download.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np

from planner.errors import BadInput, unknown_name
from planner.files.tomlfile import from_json
from planner.servers.ordering.graph import transfer_priorities
from planner.simulator.policy import Blocks, Credit, Ordered, Policy, Sliced
from planner.simulator.step import DOWNLINK, Profile
from planner.simulator.step.files import read_bytes

MAX_BYTES = 100_000_000


class PlannedTransfer(msgspec.Struct, forbid_unknown_fields=True):
    """One transfer of a priority file."""

    name: str
    priority: float


class PriorityFile(msgspec.Struct, forbid_unknown_fields=True):
    """A priority file."""

    transfers: list[PlannedTransfer]
    model: str = ""
    strategy: str = ""


def priorities_of(policy: Policy) -> dict[str, float]:
    """Priority of each transfer that a policy orders; for blocks, the index of the block."""
    if isinstance(policy, Ordered | Sliced | Credit):
        return dict(policy.priorities)
    if isinstance(policy, Blocks):
        return {name: float(b) for b, block in enumerate(policy.blocks) for name in block}
    raise BadInput(f"policy {policy.kind!r} orders nothing; choose a strategy that does, as tac")


def to_json(profile: Profile, strategy: str, policy: Policy) -> str:
    """A priority file as JSON, first transfer first."""
    ranked = sorted(priorities_of(policy).items(), key=lambda item: (item[1], item[0]))
    transfers = [PlannedTransfer(name, priority) for name, priority in ranked]
    data = msgspec.json.encode(PriorityFile(transfers, profile.model, strategy))
    return msgspec.json.format(data, indent=1).decode() + "\n"


def read(path: Path | str, profile: Profile) -> dict[str, float]:
    """Read a priority file and check it against the transfers of a profile."""
    try:
        file = from_json(read_bytes(path, MAX_BYTES), PriorityFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}; a priority file is what `planner order --export` writes") from error
    transfers = {n for n, transfer in zip(profile.names, profile.is_transfer, strict=True) if transfer}
    out: dict[str, float] = {}
    for transfer in file.transfers:
        if transfer.name not in transfers:
            raise unknown_name(f"transfer in {path}:", transfer.name, transfers)
        if transfer.name in out:
            raise BadInput(f"{path}: transfer {transfer.name!r} stands twice; name each once")
        if not math.isfinite(transfer.priority):
            raise BadInput(f"{path}: the priority of {transfer.name!r} is not a finite number")
        out[transfer.name] = transfer.priority
    pulls = np.flatnonzero(profile.resource == DOWNLINK).tolist()
    missing = [profile.names[op] for op in pulls if profile.names[op] not in out]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadInput(f"{path}: no priority for download {missing[0]!r}{more}; every download needs one")
    by_priority = sorted(pulls, key=lambda op: (out[profile.names[op]], op))
    ranks = [out[profile.names[op]] for op in by_priority]
    return {**transfer_priorities(profile, by_priority, ranks), **out}
