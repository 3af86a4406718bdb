"""Computation and communication of one layer (Yan et al., KDD 2015, equations 5 to 12).

Symbols: W(l,p) `connections`, N_neuron(l,p) `neurons`, H(l) `threads`, P(l) partitions, R(l) replications,
A(l,p) and E(l,p) `elements` received, N_ps `servers`, N_wr `workers`, N_mr `replicas`, N_read `read_every`.
The constants C are in `planner.servers.partition.constants`.

    U_f = C_muladd W + C_act N            (5)     forward
    U_b = C_muladd W' + C_err N           (7)     backward
    U_w = C_muladd W                      (8)     weight updates
    U(H) = C_interf(H) U                  (9)     H threads, each with a sample of its own
    M = C_ncost(H) + H A C_bits / C_nbw   (6)     each thread gets 1/H of the NIC
    M_w: between W C_bits / (C_nbw min(N_wr, N_ps)) (11) and W C_bits / C_nbw (10 / N_mr)

Where we differ. C_muladd depends on the working set of the segment (`Constants.muladd`), which is how the
paper's cache effect enters. W' counts the connections into the layer instead of out of it: errors are summed
where the weights are, so a layer without an input to correct (the first) has none, and the sum over layers
is the same. Equations 10 and 11 give the time of one read; in equation 12 reads do not overlap with
computation, so what counts is how long the servers are busy for each read: in the best case one replica reads
at a time, with all its workers and from all servers; in the worst all N_mr replicas read from one server at
once, each in N_mr W / C_nbw, which is W / C_nbw for each. `reading` says where between (0 best, 1 worst).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model import BYTES_PER_ELEMENT
from planner.servers.partition.constants import PaperConstants


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds by part, as in the paper's Figure 11."""

    forward_compute_s: float = 0.0  # U_f
    forward_network_s: float = 0.0  # M_f
    backward_compute_s: float = 0.0  # U_b
    backward_network_s: float = 0.0  # M_b
    update_compute_s: float = 0.0  # U_w
    reading_s: float = 0.0  # M_w

    @property
    def total_s(self) -> float:
        return self.compute_s + self.network_s

    @property
    def compute_s(self) -> float:
        return self.forward_compute_s + self.backward_compute_s + self.update_compute_s

    @property
    def network_s(self) -> float:
        return self.forward_network_s + self.backward_network_s + self.reading_s

    def __add__(self, other: Split) -> Split:
        return Split(
            self.forward_compute_s + other.forward_compute_s,
            self.forward_network_s + other.forward_network_s,
            self.backward_compute_s + other.backward_compute_s,
            self.backward_network_s + other.backward_network_s,
            self.update_compute_s + other.update_compute_s,
            self.reading_s + other.reading_s,
        )

    def times(self, factor: float) -> Split:
        return Split(
            self.forward_compute_s * factor,
            self.forward_network_s * factor,
            self.backward_compute_s * factor,
            self.backward_network_s * factor,
            self.update_compute_s * factor,
            self.reading_s * factor,
        )


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What one segment does for one sample. `backward` and `updated` are the connections of those passes:
    none where no error goes further down, or where there are no weights."""

    connections: float
    backward: float
    updated: float
    neurons: float
    working_set_bytes: float


def compute_split(c: PaperConstants, work: LayerWork, threads: int) -> Split:
    """U_f, U_b and U_w of one sample on one of `threads` threads (equations 5, 7, 8, 9)."""
    muladd = c.muladd(work.working_set_bytes, threads)
    slower = c.interference[threads - 1]
    return Split(
        forward_compute_s=muladd * work.connections + slower * c.act_s * work.neurons,
        backward_compute_s=muladd * work.backward + slower * c.err_s * work.neurons,
        update_compute_s=muladd * work.updated,
    )


def receive_s(c: PaperConstants, elements: float, threads: int) -> float:
    """Seconds until one thread has received so many activations or error terms (equation 6 with threads)."""
    if elements <= 0:
        return 0.0
    return c.latency_s[threads - 1] + threads * elements * BYTES_PER_ELEMENT / c.nic_bytes_per_s


def reading_s_per_byte(c: PaperConstants, workers: int, servers: int, reading: float = 0.0) -> float:
    """Seconds for each byte of weights that a replica reads (equations 10 and 11), with its parsing, which
    the replica's workers do side by side."""
    server = c.server_nic_bytes_per_s or c.nic_bytes_per_s
    best = 1.0 / min(c.nic_bytes_per_s * workers, server * servers)
    worst = 1.0 / min(c.nic_bytes_per_s * workers, server)
    return best + reading * (worst - best) + c.parse_s_per_byte / workers
