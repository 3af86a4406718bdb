"""A study in PostgreSQL: a real server on loopback, if its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from planner.answers.recommend import recommend_for
from planner.search.request import Request

pytest.importorskip("psycopg2")


def program(name):
    """A program of PostgreSQL; Debian keeps them out of the search path."""
    which = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None
    )
    if which is None:
        pytest.skip(f"no {name} here")
    return which


@pytest.fixture
def url(tmp_path_factory):
    """The address of a database on a server of its own."""
    account = None
    if os.getuid() == 0:  # the server refuses to run as root
        try:
            account = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("no account that may run the server")
    folder = tmp_path_factory.mktemp("postgresql")
    user = {"user": account.pw_uid, "group": account.pw_gid, "cwd": "/"} if account else {}
    if account:
        os.chown(folder, account.pw_uid, account.pw_gid)
        for parent in folder.parents[:2]:  # pytest's folders are the user's alone
            parent.chmod(parent.stat().st_mode | 0o011)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = str(folder / "data")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    subprocess.run(
        [program("initdb"), "-D", data, "-U", "planner", "-A", "trust", "--no-sync"], check=True, **quiet
    )
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
    control = [program("pg_ctl"), "-D", data, "-w"]
    subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "start"], check=True, **quiet)
    try:
        yield f"postgresql+psycopg2://planner@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)


def test_study_in_postgresql_is_gone_on_with(url):
    request = Request(
        model="alexnet", hardware=("p3.2xlarge",), workers=(1, 2), servers=(1,), server_hardware=("own",),
        interval_width=0.1,
    )  # fmt: skip
    first = recommend_for(request, trials=8, study=url, advice=False, jobs=1)
    assert first.considered == 8
    again = recommend_for(request, trials=8, study=url, advice=False, jobs=1)
    assert again.considered == 8  # nothing was left to do: the trials came from the database
    assert {scored.plan.key: scored.prediction for scored in again.everything} == {
        scored.plan.key: scored.prediction for scored in first.everything
    }
    more = recommend_for(request, trials=12, study=url, advice=False, jobs=1)
    assert more.considered == 12
