"""TensorFlow's timeline (a Chrome trace made by tensorflow.python.client.timeline) as a `Recording`.

Ops carry their name, type and inputs. Transfers do only where the tool that wrote the file kept their label;
TensorFlow's own timeline.py drops it, and such a file can only be refused with the reason.
"""

from __future__ import annotations

import msgspec

from planner.errors import BadInput
from planner.files.tomlfile import from_json
from planner.servers.tensorflow.recording import (
    TRANSFER_LABEL,
    RecordedNode,
    RecordedSpan,
    Recording,
    add_op,
    add_transfer,
    node_name,
)


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, object] = {}


class _Timeline(msgspec.Struct):
    traceEvents: list[_Event]


def read(data: bytes, where: str) -> Recording:
    """The step in a timeline."""
    try:
        events = from_json(data, _Timeline).traceEvents
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not a complete Chrome trace ({error}); write it again") from error
    devices = {
        e.pid: str(e.args.get("name", "")).removesuffix(" Compute")
        for e in events
        if e.ph == "M" and e.name == "process_name"
    }
    recording = Recording(where)
    for e in events:
        if e.ph != "X":
            continue
        if e.dur < 0:
            raise BadInput(
                f"{where}: {e.name!r} ends before it starts: the clock jumped; record another step"
            )
        span = RecordedSpan(e.ts, e.ts + e.dur)
        name = str(e.args.get("name", e.name))
        if "RecvTensor" in (e.name, name):
            texts = [v for v in (*e.args.values(), e.name) if isinstance(v, str) and TRANSFER_LABEL.search(v)]
            size = e.args.get("bytes")
            add_transfer(recording, texts[0] if texts else "", size if isinstance(size, int) else None, span)
            continue
        device = devices.get(e.pid, "")
        add_op(recording, name, device, "", span)
        inputs = (v for k, v in e.args.items() if k.startswith("input") and isinstance(v, str))
        recording.graph[name] = RecordedNode(
            str(e.args.get("op", e.name)), device, tuple(map(node_name, inputs))
        )
    return recording
