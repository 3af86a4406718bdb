"""Profile files: JSON, gzip, versioned; `docs/recording.md` describes them, `docs/profile.schema.json` is the
schema. What is saved is loaded again exactly: floats are written with as many digits as they need.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from planner.errors import BadInput
from planner.files.regular_file import read_bytes, write_file
from planner.files.tomlfile import LONGEST_OP_NAME, check_name, check_names, from_json
from planner.simulator.step import (
    DOWNLINK,
    HOST,
    RESOURCE_KINDS,
    UPLINK,
    WORKER,
    Op,
    OpRole,
    Profile,
)
from planner.simulator.step.recorded import Recorded


def reject_oversized_json(data: bytes, where: str, character: bytes, limit: int, what: str) -> None:
    """Raises BadInput if JSON text contains `character` (a comma or brace) more than `limit` times."""
    count = data.count(character)
    if count > limit:
        raise BadInput(f"{where}: {count:,} {what}; at most {limit:,} can be held, split it by step")


FORMAT: Literal["planner-profile"] = "planner-profile"
VERSION: Literal[1] = 1
ROLE_WORDS = {
    role: role.name.lower() for role in (OpRole.FORWARD, OpRole.BACKWARD, OpRole.PARSE, OpRole.OPTIMIZER)
}
MAX_OPS = 1_000_000
MAX_STEPS = 100_000
MAX_VALUES = 30_000_000
_ABOUT = (  # fields of a record that are those of the profile
    *("model", "batch", "servers", "hardware", "bandwidth_bytes_per_s", "basis", "source", "notes"),
    *("tensors", "buckets"),
)
_TABLES = ("durations_s", "starts_s", "order")  # steps x ops
LEAST_STEP_S = 1e-6  # of computing: a kernel alone takes longer to launch

# Beyond 2**53 a JSON number is not the same integer in every reader.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
ByOp = Annotated[list[Seconds], msgspec.Meta(max_length=MAX_OPS)]
Ranks = Annotated[list[Index], msgspec.Meta(max_length=MAX_OPS)]


class OpRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One op in a profile file, as written."""

    name: str
    resource: Literal["downlink", "worker", "uplink", "ps"]
    server: Index | None = None
    bytes: Count = 0
    deps: tuple[Index, ...] = ()
    tensor: Index | None = None
    role: Literal["forward", "backward", "parse", "optimizer"] | None = None


class ProfileRecord(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Contents of a profile file."""

    format: Literal["planner-profile"]
    version: Literal[1]
    model: str
    batch: Positive
    servers: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 1
    hardware: str = ""
    bandwidth_bytes_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    basis: str = "measured"
    source: str = ""
    notes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    ops: Annotated[list[OpRecord], msgspec.Meta(min_length=1, max_length=MAX_OPS)]
    durations_s: Annotated[list[ByOp], msgspec.Meta(min_length=1, max_length=MAX_STEPS)]
    starts_s: list[ByOp] | None = None
    order: list[Ranks] | None = None
    recorded: Recorded | None = None
    buckets: bool = False


class _Head(msgspec.Struct):
    """Format and version of a file, read before all else."""

    format: str = ""
    version: int = 0


def save(profile: Profile, path: Path | str) -> None:
    """Writes a profile to a file in one step; equal profiles give equal bytes."""
    data = encode(profile)
    write_file(path, data if str(path).endswith(".json") else gzip.compress(data, 6, mtime=0))


def load(path: Path | str) -> Profile:
    """Reads a profile file that `save` wrote, gzipped or not."""
    return decode(read_bytes(path), str(path))


def missing_for_training(profile: Profile) -> str:
    """Explains what a profile lacks as a training step; empty string if nothing is missing."""
    for resource, words in ((DOWNLINK, "download of parameters"), (UPLINK, "upload of gradients")):
        if not (profile.resource == resource).any():
            return f"it has no {words}"
    computing_s = float(profile.durations_s[:, profile.resource == WORKER].sum(axis=1).min())
    if computing_s < LEAST_STEP_S:
        return f"its worker computes {computing_s:.3g} s in a step; durations are in seconds"
    return ""


def encode(profile: Profile) -> bytes:
    """Encodes a profile as JSON."""
    if (profile.scope >= 0).any() or profile.latency_s.any() or (profile.resource == HOST).any():
        raise BadInput(
            "a profile file holds no joint ops, no latencies and no ops of the host; save the profile that "
            "it was made from"
        )
    columns = (getattr(profile, name).tolist() for name in ("resource", "server", "bytes", "tensor", "role"))
    ops = [
        OpRecord(
            name=name,
            resource=RESOURCE_KINDS[resource],
            server=server if server >= 0 else None,
            bytes=size,
            deps=tuple(profile.deps(op).tolist()),
            tensor=tensor if tensor >= 0 else None,
            role=ROLE_WORDS.get(OpRole(role)),  # type: ignore[arg-type]
        )
        for op, (name, resource, server, size, tensor, role) in enumerate(
            zip(profile.names, *columns, strict=True)
        )
    ]
    tables = {name: getattr(profile, name) for name in _TABLES}
    about: dict[str, Any] = {
        **{name: getattr(profile, name) for name in _ABOUT},
        **{name: None if table is None else table.tolist() for name, table in tables.items()},
        "recorded": profile.recorded,
    }
    return msgspec.json.encode(ProfileRecord(format=FORMAT, version=VERSION, ops=ops, **about))


def decode(data: bytes, where: str = "profile") -> Profile:
    """Decodes a profile from JSON; `where` names the file in messages."""
    reject_oversized_json(data, where, b",", MAX_VALUES, "values")
    try:
        head = from_json(data, _Head) if data.lstrip()[:1] == b"{" else _Head()
        if head.format != FORMAT:
            raise BadInput(f"{where}: not a profile of planner; import a trace with `planner profile import`")
        if head.version != VERSION:
            raise BadInput(f"{where}: version {head.version} of the format; this planner reads {VERSION}")
        record = from_json(data, ProfileRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{where}: {error}") from error
    for name in _TABLES:
        for step, row in enumerate(getattr(record, name) or ()):
            if len(row) != len(record.ops):
                raise BadInput(f"{where}: {name}[{step}] has {len(row)} values for {len(record.ops)} ops")
    about = {name: getattr(record, name) for name in _ABOUT}
    try:
        profile = Profile.build(
            [
                Op(
                    name=op.name,
                    resource=RESOURCE_KINDS.index(op.resource),
                    server=-1 if op.server is None else op.server,
                    bytes=op.bytes,
                    deps=op.deps,
                    tensor=-1 if op.tensor is None else op.tensor,
                    role=OpRole.OTHER if op.role is None else OpRole[op.role.upper()],
                )
                for op in record.ops
            ],
            record.durations_s,
            order=record.order,
            starts_s=record.starts_s,
            recorded=record.recorded,
            **about,
        )
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    return check_profile_names(profile, where)


def check_profile_names(profile: Profile, where: str) -> Profile:
    """Returns the profile; raises BadInput unless all its names are single lines of printable text."""
    for key in ("model", "hardware", "basis"):
        check_name(getattr(profile, key), f"{where}: {key}")
    check_names(profile.tensors, f"{where}: tensors")
    check_names(profile.names, f"{where}: ops", LONGEST_OP_NAME)
    if profile.recorded is not None:
        facts = profile.recorded.facts
        for key in ("model", "device", "device_kind", "precision", "optimizer", "framework", "python"):
            check_name(getattr(facts, key), f"{where}: {key}")
        check_names((name for name, _ in facts.parameters), f"{where}: parameters")
    return profile


def schema() -> bytes:
    """JSON schema of profile files, as in `docs/profile.schema.json`."""
    result = msgspec.json.schema(ProfileRecord)
    result = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "planner profile", **result}
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
