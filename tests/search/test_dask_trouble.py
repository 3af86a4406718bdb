"""Dask clusters that are not there, not fit, or go away: one sentence, and what was done is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/robustness"))

from dask_here import scheduler, workers  # noqa: E402
from faults import SWEEP  # noqa: E402

import planner  # noqa: E402
from planner.answers.sweep import read_sweep, requests_from, sweep, sweep_for  # noqa: E402
from planner.errors import BadInput, ClusterWarning, PlannerError  # noqa: E402
from planner.search import dask_cluster  # noqa: E402
from planner.search.simulations import executor_of  # noqa: E402

TINY = SWEEP.replace("[1, 2, 4, 8]", "[1, 2]").replace('["alexnet", "vgg11"]', '["alexnet"]')


def refused(address):
    """What is said of a cluster at an address."""
    with pytest.raises(BadInput) as error, executor_of(cluster=address):
        pass
    return str(error.value)


@contextlib.contextmanager
def port(greeting=b""):
    """A port that accepts, says something, and then nothing more."""
    door = socket.create_server(("127.0.0.1", 0))
    visitors = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                visitors.append(door.accept()[0])
                visitors[-1].sendall(greeting)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"tcp://127.0.0.1:{door.getsockname()[1]}"
    finally:
        for visitor in [door, *visitors]:
            visitor.close()


@pytest.mark.parametrize("address", ["x", "tcp://127.0.0.1", "tcp://host:many", "//host:8786", "tcp://:8786"])
def test_invalid_dask_address_is_refused(address):
    assert refused(address) == f"--cluster is {address!r}; write the scheduler's address as tcp://host:8786"


def test_unknown_kind_of_network():
    assert "tcp:// or tls://" in refused("ucx://127.0.0.1:8786")


def test_address_where_nobody_answers():
    with socket.socket() as door:  # bound, so that nobody else listens there
        door.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{door.getsockname()[1]}"
        said = refused(address)
    assert (
        said == f"no Dask scheduler answers at {address} (Connection refused); "
        "start one with `dask scheduler`"
    )


def test_host_that_does_not_exist():
    assert refused("tcp://no-such-host.invalid:8786").startswith(
        "no Dask scheduler answers at tcp://no-such-"
    )


def test_port_that_accepts_and_says_nothing(monkeypatch):
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.3)
    with port() as address:
        assert refused(address).startswith(f"{address} says nothing within 0.3 s; is it a Dask scheduler?")


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail ESMTP\r\n"])
def test_port_that_speaks_of_something_else(greeting):
    with port(greeting) as address:
        assert refused(address).startswith(f"what answers at {address} is no Dask scheduler")


def test_tls_without_certificates():
    """Whatever the settings of this machine are, or those that an earlier test left."""
    import dask

    none = {"ca-file": None, "client.cert": None, "client.key": None}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in none.items()}):
        said = refused("tls://127.0.0.1:8786")
    assert said.startswith(
        "tls://127.0.0.1:8786 needs certificates; set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"
    )


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'dnn-planner[cluster]'" in refused("tcp://127.0.0.1:8786")


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """The address of a scheduler without workers."""
    with scheduler(tmp_path_factory.mktemp("dask")) as (_, address):
        yield address


def test_no_workers(idle):
    assert (
        refused(idle) == f"the Dask scheduler at {idle} has no workers; start some with `dask worker {idle}`"
    )


def test_worker_without_the_package(idle, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['planner'] = None")
    with workers(tmp_path, idle, env={"PYTHONPATH": str(tmp_path)}):
        said = refused(idle)
    assert " cannot import planner (" in said
    assert said.endswith(f"; install dnn-planner {planner.__version__} there")


def test_worker_of_another_version(idle, tmp_path):
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner/__init__.py").write_text("__version__ = '9.9'")
    (tmp_path / "sitecustomize.py").write_text(  # an editable install would come first
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]"
    )
    with workers(tmp_path, idle, env={"PYTHONPATH": str(tmp_path)}):
        said = refused(idle)
    assert said.endswith(f" runs planner 9.9, this is {planner.__version__}; install the same version on all")


def lost(address, before):
    """What is said of a cluster that is lost once `before` was called."""

    def work():
        with executor_of(cluster=address) as pool:
            assert pool.submit(abs, -3).result(timeout=60) == 3
            before()
            pool.submit(abs, -3).result(timeout=60)

    with pytest.raises(PlannerError) as error:
        work()
    return str(error.value)


def test_worker_of_another_version_that_joins_later(idle, tmp_path, monkeypatch):
    """Every task says which version it is of; here it is the sender who changes."""
    theirs = planner.__version__
    with workers(tmp_path, idle):
        said = lost(idle, lambda: monkeypatch.setattr(planner, "__version__", "0.0.1"))
    assert said == (
        f"the Dask cluster at {idle} is lost: a worker runs planner {theirs}, this is 0.0.1; "
        "install the same version on all"
    )


def test_error_of_a_task_is_handed_on(idle, tmp_path):
    with workers(tmp_path, idle), executor_of(cluster=idle) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result(timeout=60)
        assert list(pool.map(abs, [-1, -2])) == [1, 2]


def test_workers_that_all_die(idle, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "LOOK_S", 0.05)
    monkeypatch.setattr(dask_cluster, "GONE_S", 0.2)
    with workers(tmp_path, idle) as processes:
        said = lost(idle, lambda: (processes[0].kill(), processes[0].wait()))
    assert said == f"the Dask cluster at {idle} is lost: no worker was there for 0.2 s"


def test_scheduler_that_dies_leaves_what_was_done(tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text(TINY)
    requests = requests_from(read_sweep(config).scenarios)
    whole = sweep_for(requests, tmp_path / "whole.db")

    with scheduler(tmp_path) as (process, address), workers(tmp_path, address):

        def kill(stage, done, of):
            if done >= 2:
                process.send_signal(signal.SIGKILL)

        with pytest.warns(ClusterWarning, match=f"at {address} is lost: its scheduler is gone"):
            part = sweep(config, tmp_path / "part.db", cluster=address, progress=kill)
    assert part.partial
    assert 2 <= len(part.rows) < len(whole.rows)
    begun = []
    again = sweep_for(requests, tmp_path / "part.db", progress=lambda stage, done, of: begun.append(done))
    assert begun[0] >= len(part.rows)  # nothing is done twice
    assert again.as_dict() == whole.as_dict()


def test_command_says_it_in_one_line_and_leaves_with_2(tmp_path):
    """In a process of its own, as Dask writes to stderr from threads and at the exit."""
    code = (
        "import os, signal, sys\n"
        "import planner.answers.sweep as sweep\n"
        "class Killing(sweep.Store):\n"
        "    def finish(self, *args):\n"
        "        super().finish(*args)\n"
        "        os.kill(int(os.environ['VICTIM']), signal.SIGKILL)\n"
        "sweep.Store = Killing\n"
        "from planner.cli import main\n"
        "main()\n"
    )
    (tmp_path / "sweep.toml").write_text(TINY)
    with scheduler(tmp_path) as (process, address), workers(tmp_path, address):
        done = subprocess.run(
            [sys.executable, "-c", code, "sweep", "sweep.toml", "--quiet", "--cluster", address],
            cwd=tmp_path,
            env={**os.environ, "VICTIM": str(process.pid)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == f"planner: the Dask cluster at {address} is lost: its scheduler is gone\n"
    assert done.returncode == 2
    assert "run the same command again to resume" in done.stdout
