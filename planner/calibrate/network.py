"""`calibrate network HOST`: bandwidth and latency between this machine and another.

Bandwidth by iperf3 where both sides have it; else, and for latency, by a plain TCP probe: a sink that counts
bytes and an echo of small messages. The other side runs `planner calibrate network --serve`; for this machine
itself the probe starts its own second process.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.errors import BadInput

PORT = 5203
_SINK, _ECHO = b"S", b"E"
_MESSAGE = b"x" * 64
_BLOCK = bytes(1 << 18)
_TRANSFER_S = 3.0
_ECHOES = 500
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class NetworkCalibration:
    """Measured bandwidth in bytes per second, and one-way latency in seconds by number of connections."""

    host: str
    bytes_per_s: float
    latency_s: tuple[float, ...]
    method: str

    def hardware_keys(self) -> dict[str, object]:
        """Bandwidth in Gbit/s and one-way latencies in seconds, under the keys of a hardware file."""
        return {"nic_gbit_per_s": self.bytes_per_s * 8 / 1e9, "latency_s": self.latency_s}


def calibrate_network(
    host: str,
    *,
    port: int = PORT,
    connections: int = 4,
    seconds: float = _TRANSFER_S,
    progress: Callable[[str], None] | None = None,
) -> NetworkCalibration:
    """Measures bandwidth and latency between this machine and `host`."""
    say = progress or (lambda words: None)
    with _serving_port(host, port) as door:
        say("bandwidth by iperf3" if shutil.which("iperf3") else "bandwidth by a TCP probe")
        rate = _iperf3_bytes_per_s(host, seconds)
        method = "iperf3" if rate else "TCP probe"
        rate = rate or _tcp_bytes_per_s(host, door, seconds)
        latency = []
        for count in range(1, connections + 1):
            say(f"latency with {count} connections")
            latency.append(_latency_s(host, door, count))
    return NetworkCalibration(host, rate, tuple(latency), method)


def serve(port: int = PORT, ready: Callable[[int], None] | None = None) -> None:
    """Answers bandwidth and latency probes on a port until the process ends."""
    with socket.create_server(("", port), reuse_port=False) as server:
        if ready:
            ready(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer_probe, args=(connection,), daemon=True).start()


def _answer_probe(connection: socket.socket) -> None:
    """Serves one connection: counts the bytes of a bandwidth probe, or echoes a latency probe's messages."""
    with contextlib.suppress(OSError), connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.recv(1) == _SINK:
            got = 0
            while block := connection.recv(1 << 20):
                got += len(block)
            connection.sendall(got.to_bytes(8, "big"))
        else:
            while message := connection.recv(len(_MESSAGE)):
                connection.sendall(message)


@contextlib.contextmanager
def _serving_port(host: str, port: int) -> Iterator[int]:
    """Yields the port to probe; for localhost, a server process is started on a free port."""
    if host not in _LOCAL:
        yield port
        return
    code = "from planner.calibrate.network import serve; serve(0, lambda port: print(port, flush=True))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def _connect(host: str, port: int, kind: bytes) -> socket.socket:
    """Opens a TCP connection for one kind of probe; raises BadInput if nothing answers."""
    try:
        connection = socket.create_connection((host, port), timeout=10)
    except OSError as error:
        raise BadInput(
            f"nothing answers at {host} port {port} ({error.strerror or error}); "
            f"run `planner calibrate network --serve --port {port}` there"
        ) from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(kind)
    return connection


def _tcp_bytes_per_s(host: str, port: int, seconds: float) -> float:
    """Bandwidth in bytes per second over one TCP connection, as counted by the receiver."""
    with _connect(host, port, _SINK) as connection:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            connection.sendall(_BLOCK)
        connection.shutdown(socket.SHUT_WR)
        arrived = int.from_bytes(connection.recv(8), "big")
        return arrived / (time.perf_counter() - start)


def _latency_s(host: str, port: int, connections: int) -> float:
    """One-way latency in seconds (half the median round trip) while all connections are busy."""
    medians: list[float] = []

    def ping() -> None:
        """Measures the median latency of one connection."""
        times = []
        with _connect(host, port, _ECHO) as connection:
            for _ in range(_ECHOES):
                start = time.perf_counter()
                connection.sendall(_MESSAGE)
                if len(connection.recv(len(_MESSAGE), socket.MSG_WAITALL)) < len(_MESSAGE):
                    return
                times.append(time.perf_counter() - start)
        medians.append(sorted(times)[len(times) // 2])

    crew = [threading.Thread(target=ping) for _ in range(connections - 1)]
    for thread in crew:
        thread.start()
    ping()
    for thread in crew:
        thread.join()
    if not medians:
        raise BadInput(f"{host} closed the connection while it was measured; try again")
    return sum(medians) / len(medians) / 2


def _iperf3_bytes_per_s(host: str, seconds: float) -> float | None:
    """Bandwidth in bytes per second measured by iperf3; None if it is missing or fails."""
    if not shutil.which("iperf3"):
        return None
    command = ["iperf3", "-c", host, "-J", "-t", str(max(1, round(seconds)))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8
    except (subprocess.TimeoutExpired, ValueError, KeyError, OSError):
        return None
