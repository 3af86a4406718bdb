"""A Dask scheduler and workers on loopback, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time


@contextlib.contextmanager
def started(*words, env=None):
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def scheduler(folder, *flags):
    """The process of a scheduler and its address."""
    file = folder / "scheduler.json"
    words = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard", "--port", "0", *flags]
    with started("distributed.cli.dask_scheduler", *words) as process:
        while (address := _address_in(file)) is None:
            assert process.poll() is None, "the scheduler did not start"
            time.sleep(0.05)
        yield process, address


def _address_in(file):
    """The scheduler's address, once its file is written to the end."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None


@contextlib.contextmanager
def workers(folder, address, count=1, *flags, env=None):
    """The processes of workers of one thread, once the scheduler at the address knows them."""
    from distributed import Client
    from distributed.security import Security

    words = [address, "--host", "127.0.0.1", "--no-dashboard", "--no-nanny", "--nthreads", "1", *flags]
    with (
        contextlib.ExitStack() as stack,
        Client(address, set_as_default=False, security=Security()) as client,
    ):
        before = len(client.nthreads())
        processes = [
            stack.enter_context(
                started(
                    "distributed.cli.dask_worker", *words, "--local-directory", str(folder / f"w{k}"), env=env
                )
            )
            for k in range(count)
        ]
        client.wait_for_workers(before + count, timeout=60)
        client.close()
        yield processes
