"""Synthesis of a worker's step through parameter servers: a computation with its transfers and updates.

    down(t) -> [parse(t)] -> forward(l) -> ... -> backward(l) -> up(t) -> update(t)

`forward(l)` waits for the layer's tensors too, `up(t)` for the op that makes the gradient. A tensor that its
placement splits has a transfer and an update for each part. Transfers have bytes and no duration: bandwidth
is the cluster's. Nothing ranks them, as in TensorFlow: `order` is None, the simulator draws one for a step.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.device.computation import DEFAULT_STEPS, Computation, Shape, Variation
from planner.device.computation.synthesis import synthesize_computation
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.memoize import memoize
from planner.model import Model
from planner.servers.placement import MXNET_RULES, move_to_servers, part_names, place_parameters
from planner.simulator.paths import OP_BYTES
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Op, OpRole, Profile

COMMUNICATION = OpRole.COMMUNICATION

SERVER_MEMORY_BYTES_PER_S = 12e9  # 0.25 ns a byte of tensor in an update by one core
UPDATE_PASSES = 3  # plain SGD reads weights and gradients and writes weights
UPDATE_OVERHEAD_S = 2e-6


@dataclass(frozen=True, slots=True)
class Parsing:
    """Cost of turning a message into a tensor: alpha * bytes + beta seconds (Li et al., 3.2.1).

    A download is parsed by an op of the worker or its host; an upload as part of its update on the server.
    """

    alpha_s_per_byte: float
    beta_s: float

    def __post_init__(self) -> None:
        for name in ("alpha_s_per_byte", "beta_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"parsing's {name} is {value}; it must be zero or more")

    def __bool__(self) -> bool:
        """Whether parsing takes any time."""
        return self.alpha_s_per_byte > 0 or self.beta_s > 0


NO_PARSING = Parsing(0.0, 0.0)
# TensorFlow over gRPC. alpha: 10% of a transfer at 1 Gbit/s, so 52.6% at 10 Gbit/s, the example of Li et al.,
# 4.3; beta: measured between the last packet and the recorded end, mean of 0.19 to 0.32 ms.
GRPC_PARSING = Parsing(8e-9 / 9, 0.26e-3)
# MXNet's transport has no published figure: the same cost of bytes, nothing for a message.
PS_LITE_PARSING = Parsing(8e-9 / 9, 0.0)


@dataclass(frozen=True, eq=False)
class ServedGraph:
    """Step graph with zero durations, and the indices of its ops by purpose."""

    profile: Profile
    compute: npt.NDArray[np.intp]  # op of each op of the computation
    parse: npt.NDArray[np.intp]  # op of each part; empty without parsing
    update: npt.NDArray[np.intp]  # op of each part; empty without training
    part_bytes: npt.NDArray[np.int64]  # as downloaded
    gradient_bytes: npt.NDArray[np.int64]


def server_step(
    computation: Computation,
    servers: int = 1,
    placement: str = "greedy",
    *,
    parsing: Parsing | None = None,
    on_host: bool = False,
) -> Profile:
    """Synthesizes one worker's step with its parameters on servers.

    A recorded step keeps its own transfers and updates, moved to those servers. `parsing` defaults to gRPC's,
    or ps-lite's for MXNet's placements; `on_host` moves it from the worker to the host beside its device.
    """
    if computation.step is not None:
        return move_to_servers(computation.step, servers, placement)
    if servers < 1:
        raise BadInput(f"servers is {servers}; a profile needs at least 1")
    if parsing is None:
        parsing = PS_LITE_PARSING if placement in MXNET_RULES else GRPC_PARSING
    key = (computation.shape, servers, placement, (HOST if on_host else WORKER) if parsing else None)
    graph = _build_step_graph(*key)
    once_s = np.zeros(graph.profile.ops)
    if computation.once_s is not None:
        once_s[graph.compute] = computation.once_s
    if len(graph.parse):
        once_s[graph.parse] = parsing.alpha_s_per_byte * graph.part_bytes + parsing.beta_s
    if len(graph.update):
        parse_s = parsing.alpha_s_per_byte * graph.gradient_bytes + parsing.beta_s
        update_s = UPDATE_OVERHEAD_S + UPDATE_PASSES * graph.gradient_bytes / SERVER_MEMORY_BYTES_PER_S
        once_s[graph.update] = parse_s + update_s
    if computation.once_s is not None:
        durations_s = computation.vary_durations(once_s)
    else:
        durations_s = np.tile(once_s, (computation.steps, 1))
        durations_s[:, graph.compute] = computation.durations_s
    durations_s.flags.writeable = False
    return replace(
        graph.profile,
        model=computation.model,
        batch=computation.batch,
        durations_s=durations_s,
        hardware=computation.hardware,
        basis=computation.basis,
        source=computation.source,
        notes=computation.notes,
    )


# a search asks for the same graph with other durations again and again
@memoize(most_bytes=8 << 20, bytes_of=lambda graph: OP_BYTES * graph.profile.ops)
def _build_step_graph(shape: Shape, servers: int, placement: str, parsing: int | None) -> ServedGraph:
    """Builds the ops of a step, without durations; `parsing` is the resource that parses, or None."""
    parameters, precision = shape.parameters, shape.precision
    parts = place_parameters(parameters, servers, placement)
    pieces = Counter(part.tensor for part in parts)
    names_of = {tensor: iter(part_names(parameters[tensor].name, count)) for tensor, count in pieces.items()}
    tensors = [next(names_of[part.tensor]) for part in parts]
    down_bytes = [part.bytes * precision.parameter_bytes // 4 for part in parts]  # placed at four per element
    up_bytes = [part.bytes * precision.gradient_bytes // 4 for part in parts]
    ops: list[Op] = []

    def add_op(op: Op) -> int:
        """Appends an op; returns its index."""
        ops.append(op)
        return len(ops) - 1

    readers = [parameters[part.tensor].readers for part in parts]
    layer = [shape.layer[ops[0]] if ops else -1 for ops in readers]

    def add_transfer(number: int, name: str, resource: int, size: int, deps: tuple[int, ...]) -> int:
        """Appends the transfer of one tensor part; returns its index."""
        server = parts[number].server
        return add_op(Op(name, resource, server, size, deps, number, role=COMMUNICATION, layer=layer[number]))

    down = [
        add_transfer(number, f"{name}/down", DOWNLINK, size, ())
        for number, (name, size) in enumerate(zip(tensors, down_bytes, strict=True))
    ]
    parse = [
        add_op(Op(f"{tensors[number]}/parse", parsing, deps=(op,), role=OpRole.PARSE, layer=layer[number]))
        for number, op in enumerate(down)
        if parsing is not None
    ]
    arrived: dict[int, list[int]] = {}  # the ops after which an op of the computation has its parameters
    for part, op in zip(parts, parse or down, strict=True):
        for reader in parameters[part.tensor].readers:
            arrived.setdefault(reader, []).append(op)
    first = len(ops)
    for op, name in enumerate(shape.names):
        deps = (*(first + dep for dep in shape.deps[op]), *arrived.get(op, ()))
        add_op(Op(name, WORKER, deps=deps, role=shape.roles[op], layer=shape.layer[op]))
    update: list[int] = []
    gradient_bytes: list[int] = []
    for number, (part, name, size) in enumerate(zip(parts, tensors, up_bytes, strict=True)):
        ready = parameters[part.tensor].ready
        if ready is not None:
            up = add_transfer(number, f"{name}/up", UPLINK, size, (first + ready,))
            update.append(
                add_op(Op(f"{name}/update", PS, part.server, 0, (up,), number, layer=layer[number]))
            )
            gradient_bytes.append(size)
    return ServedGraph(
        profile=Profile.build(
            ops,
            np.zeros((1, len(ops))),
            model="",
            batch=1,
            servers=servers,
            tensors=tensors,
            layers=shape.layers,
        ),
        compute=np.arange(first, first + len(shape.names)),
        parse=np.array(parse, np.intp),
        update=np.array(update, np.intp),
        part_bytes=np.array(down_bytes, np.int64),
        gradient_bytes=np.array(gradient_bytes, np.int64),
    )


NO_VARIATION = Variation(0.0, 0.0)


def profile_for(
    model: Model,
    batch: int,
    hardware: Hardware,
    servers: int = 1,
    placement: str = "greedy",
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    training: bool = True,
    parsing: Parsing | None = None,
    on_host: bool = False,
    variation: Variation = Variation(),
) -> Profile:
    """Synthesizes the profile of one worker on one device of `hardware`.

    `training=False` gives the forward pass only. `parsing` defaults to gRPC's, or ps-lite's for MXNet's
    placements; the worker parses, as in the papers, or with `on_host` the host beside its accelerator, as in
    plans.
    """
    computation = synthesize_computation(
        model, batch, hardware, steps=steps, seed=seed, training=training, variation=variation
    )
    return server_step(computation, servers, placement, parsing=parsing, on_host=on_host)
