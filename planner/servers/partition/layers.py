"""Computation and communication of one layer (Yan et al., KDD 2015, equations 5 to 12), and its constants.

Symbols: W(l,p) `connections`, N_neuron(l,p) `neurons`, H(l) `threads`, P(l) partitions, R(l) replications,
A(l,p) and E(l,p) `elements` received, N_ps `servers`, N_wr `workers`, N_mr `replicas`, N_read `read_every`.

    U_f = C_muladd W + C_act N            (5)     forward
    U_b = C_muladd W' + C_err N           (7)     backward
    U_w = C_muladd W                      (8)     weight updates
    U(H) = C_interf(H) U                  (9)     H threads, each with a sample of its own
    M = C_ncost(H) + H A C_bits / C_nbw   (6)     each thread gets 1/H of the NIC
    M_w: between W C_bits / (C_nbw min(N_wr, N_ps)) (11) and W C_bits / C_nbw (10 / N_mr)

Where we differ. C_muladd depends on the working set of the segment (`PaperConstants.muladd`), which is how
the paper's cache effect enters. W' counts the connections into the layer instead of out of it: errors are
summed where the weights are, so a layer without an input to correct (the first) has none, and the sum over
layers is the same. Equations 10 and 11 give the time of one read; in equation 12 reads do not overlap with
computation, so what counts is how long the servers are busy for each read: in the best case one replica reads
at a time, with all its workers and from all servers; in the worst all N_mr replicas read from one server at
once, each in N_mr W / C_nbw, which is W / C_nbw for each. `reading` says where between (0 best, 1 worst).

The constants stand in the `[calibration]` table of a hardware file, where `planner calibrate compute` and
`planner calibrate network` write them; docs/parameter-servers.md explains each. A machine without them
computes each layer as `planner simulate` does, by the kernel rates of its device for a batch of what is
trained between two reads, and parses what it receives as gRPC does. A worker is one device; those of a
machine share its NIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import add

from planner.device.computation.synthesis import kernel_rates
from planner.device.rates.times import step_times
from planner.errors import BadInput
from planner.hardware import Hardware, Network
from planner.model import BYTES_PER_ELEMENT, Model
from planner.model.layers.base import CONV
from planner.servers.partition.stages import Stage
from planner.servers.synthesis import GRPC_PARSING

_LATENCY_S = 50e-6  # one small TCP message between two machines, kernel network stack; estimated
_SHARE_OF_PEAK = 0.3  # what trained kernels reach of a device's peak where nothing better is known; estimated


@dataclass(frozen=True, slots=True)
class PaperConstants:
    """Constants of the paper's cost model; those by thread count H are indexed by H - 1."""

    muladd_s: float  # C_muladd, one thread, working set in cache
    muladd_out_of_cache_s: float  # C_muladd, one thread, working set in memory
    act_s: float  # C_act
    err_s: float  # C_err
    cache_bytes: float  # last-level cache of the machine
    interference: tuple[float, ...]  # C_interf(H), working set in cache
    interference_out_of_cache: tuple[float, ...]  # C_interf(H), working set in memory
    latency_s: tuple[float, ...]  # C_ncost(H)
    nic_bytes_per_s: float  # C_nbw
    parse_s_per_byte: float = 0.0  # of what is received from a server
    parse_s: float = 0.0  # of each tensor received
    server_nic_bytes_per_s: float | None = None  # where workers share a machine's NIC, and servers do not
    basis: str = ""

    @property
    def threads(self) -> int:
        """Largest number of threads of a worker: one per core (constraint C2)."""
        return len(self.interference)

    def muladd_seconds(self, working_set_bytes: float, threads: int) -> float:
        """Seconds per multiply-add with this many threads, by how much of the data fits in cache."""
        inside = min(1.0, self.cache_bytes / working_set_bytes) if working_set_bytes > 0 else 1.0
        cached = self.muladd_s * self.interference[threads - 1]
        streamed = self.muladd_out_of_cache_s * self.interference_out_of_cache[threads - 1]
        return inside * cached + (1.0 - inside) * max(cached, streamed)


def constants_for(
    hardware: Hardware, network: Network = "baseline", *, bandwidth_bytes_per_s: float | None = None
) -> PaperConstants:
    """Constants of a machine, from the calibration in its file or else estimated.

    `bandwidth_bytes_per_s` replaces the NIC's bandwidth.
    """
    nic = bandwidth_bytes_per_s or hardware.nic_bytes_per_s(network)
    if nic is None:
        raise BadInput(
            f"the network of {hardware.name} is not known; measure it with `planner calibrate network HOST`"
        )
    given = dict(hardware.calibration)
    threads = _thread_count(hardware)
    estimated = [key for key in ("muladd_s", "latency_s") if key not in given]
    rates = hardware.kernels.rates if hardware.kernels else {}
    muladd_per_s = rates.get(CONV) or _SHARE_OF_PEAK * hardware.device.fp32_flops / 2
    muladd = _calibrated_number(hardware, "muladd_s", threads / muladd_per_s)
    memory = hardware.device.memory_bytes_per_s
    stream = threads * BYTES_PER_ELEMENT / memory if memory and hardware.device.kind == "cpu" else muladd
    return PaperConstants(
        muladd_s=muladd,
        muladd_out_of_cache_s=_calibrated_number(hardware, "muladd_out_of_cache_s", max(muladd, stream)),
        act_s=_calibrated_number(hardware, "act_s", 10 * muladd),
        err_s=_calibrated_number(hardware, "err_s", 2 * muladd),
        cache_bytes=_calibrated_number(hardware, "cache_bytes", math.inf),
        interference=_figures_by_thread(hardware, "interference", threads),
        interference_out_of_cache=_figures_by_thread(hardware, "interference_out_of_cache", threads),
        latency_s=_figures_by_thread(hardware, "latency_s", threads, _LATENCY_S),
        nic_bytes_per_s=nic,
        parse_s_per_byte=_calibrated_number(hardware, "parse_s_per_byte", 0.0),
        parse_s=_calibrated_number(hardware, "parse_s", 0.0),
        basis=f"estimated: {', '.join(estimated)}" if estimated else f"from the file of {hardware.name}",
    )


def _thread_count(hardware: Hardware) -> int:
    """Number of threads of a worker: as calibrated, else the number of a CPU's cores, or 1 on GPUs."""
    curve = hardware.calibration.get("interference")
    if isinstance(curve, tuple):
        return len(curve)
    return (hardware.device.cores or 1) if hardware.device.kind == "cpu" else 1


def _calibrated_number(hardware: Hardware, key: str, default: float) -> float:
    """A calibrated figure of a machine, or the default."""
    value = hardware.calibration.get(key, default)
    if isinstance(value, tuple) or not value >= 0 or (key == "muladd_s" and value == 0):
        raise BadInput(f"calibration of {hardware.name}: {key} must be one number, zero or above")
    return float(value)


def _figures_by_thread(hardware: Hardware, key: str, threads: int, default: float = 1.0) -> tuple[float, ...]:
    """A calibrated figure for each number of threads; a single number applies to all."""
    value = hardware.calibration.get(key, default)
    values = value if isinstance(value, tuple) else (float(value),) * threads
    if len(values) != threads or any(not (math.isfinite(v) and v >= 0) for v in values):
        raise BadInput(
            f"calibration of {hardware.name}: {key} needs one number or one for each of {threads} threads"
        )
    return values


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds by part of training: compute, feature exchange and weight reading (Figure 11)."""

    forward_compute_s: float = 0.0  # U_f
    forward_network_s: float = 0.0  # M_f
    backward_compute_s: float = 0.0  # U_b
    backward_network_s: float = 0.0  # M_b
    update_compute_s: float = 0.0  # U_w
    reading_s: float = 0.0  # M_w

    @property
    def total_s(self) -> float:
        """Seconds of compute and network together."""
        return self.compute_s + self.network_s

    @property
    def compute_s(self) -> float:
        """Seconds of forward, backward and update compute."""
        return self.forward_compute_s + self.backward_compute_s + self.update_compute_s

    @property
    def network_s(self) -> float:
        """Seconds of feature exchange and weight reading."""
        return self.forward_network_s + self.backward_network_s + self.reading_s

    @property
    def parts(self) -> tuple[float, ...]:
        """Seconds of each part, in the order of the fields."""
        forward = self.forward_compute_s, self.forward_network_s
        backward = self.backward_compute_s, self.backward_network_s
        return (*forward, *backward, self.update_compute_s, self.reading_s)

    def __add__(self, other: Split) -> Split:
        return Split(*map(add, self.parts, other.parts))

    def scale_by(self, factor: float) -> Split:
        """Copy with every part multiplied by this factor."""
        return Split(*(part * factor for part in self.parts))


def receive_s(constants: PaperConstants, elements: float, threads: int) -> float:
    """Seconds for one thread to receive this many activations or errors (equation 6)."""
    if elements <= 0:
        return 0.0
    return (
        constants.latency_s[threads - 1] + threads * elements * BYTES_PER_ELEMENT / constants.nic_bytes_per_s
    )


def reading_s_per_byte(constants: PaperConstants, workers: int, servers: int, reading: float = 0.0) -> float:
    """Seconds for a replica to read and parse one byte of weights (equations 10 and 11)."""
    server = constants.server_nic_bytes_per_s or constants.nic_bytes_per_s
    best = 1.0 / min(constants.nic_bytes_per_s * workers, server * servers)
    worst = 1.0 / min(constants.nic_bytes_per_s * workers, server)
    return best + reading * (worst - best) + constants.parse_s_per_byte / workers


def worker_constants(hardware: Hardware, network: Network = "baseline") -> PaperConstants:
    """Constants of one device of a machine, which gets an equal share of the NIC."""
    constants = constants_for(hardware, network)
    if not is_calibrated(hardware):
        constants = replace(
            constants,
            parse_s_per_byte=GRPC_PARSING.alpha_s_per_byte,
            parse_s=GRPC_PARSING.beta_s,
            basis=f"by the kernel rates of {hardware.device.name}, as `planner simulate` computes",
        )
    devices = hardware.device_count
    if devices == 1:
        return constants
    nic = constants.nic_bytes_per_s
    return replace(constants, nic_bytes_per_s=nic / devices, server_nic_bytes_per_s=nic)


def is_calibrated(hardware: Hardware) -> bool:
    """Whether the machine's file holds a measured time per multiply-add."""
    return "muladd_s" in hardware.calibration


def stage_splits(
    model: Model, stages: tuple[Stage, ...], hardware: Hardware, batch: int
) -> tuple[Split, ...] | None:
    """Compute seconds per sample of each stage on one whole device; None if the machine is calibrated."""
    if is_calibrated(hardware):
        return None
    times = step_times(model, batch, kernel_rates(hardware))
    forward, backward = times.forward_s / batch, times.backward_s / batch
    at = {layer.name: index for index, layer in enumerate(model.layers)}
    return tuple(
        Split(
            forward_compute_s=float(sum(forward[at[name]] for name in stage.layers)),
            backward_compute_s=float(sum(backward[at[name]] for name in stage.layers)),
        )
        for stage in stages
    )
