"""The cluster over TLS of docs/automation.md: its commands make the certificates; who has none stays out."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/automation.md").read_text()

from dask_here import scheduler, workers  # noqa: E402


def certificates(folder):
    """Runs the page's commands in a folder."""
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    folder.mkdir()
    subprocess.run(["bash", "-ec", commands], cwd=folder, check=True, capture_output=True)
    return folder


def variables(folder):
    """The page's environment for the client, in a folder."""
    return {name: str(folder / file) for name, file in re.findall(r"export (\w+)=(\S+)", PAGE)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    own, other = certificates(folder / "own"), certificates(folder / "other")
    words = re.search(r"dask worker \S+ (--tls.*)", PAGE)[1].split()
    flags = [str(own / word) if word.endswith((".pem", ".key")) else word for word in words]
    import dask

    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables(own).items():
                patch.setenv(name, value)
            dask.config.refresh()
            with (
                scheduler(folder, "--protocol", "tls", *flags) as (_, address),
                workers(folder, address, 1, *flags),
            ):
                yield address, own, other
    finally:  # also where the cluster did not start: what follows has no certificates
        dask.config.refresh()


ASK = ["recommend", "--model", "alexnet", "--budget", "4", "--hardware", "p3.2xlarge", "--quiet"]


def ask(address, environment):
    done = subprocess.run(
        [sys.executable, "-m", "planner", *ASK, "--cluster", address],
        env={**{k: v for k, v in os.environ.items() if "TLS" not in k}, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_with_a_certificate(cluster):
    address, own, _ = cluster
    assert address.startswith("tls://")
    code, out, err = ask(address, variables(own))
    assert (code, err) == (0, "")
    assert out.startswith("Recommended  ")


def test_with_one_of_another_authority(cluster):
    address, _, other = cluster
    code, out, err = ask(address, variables(other))
    assert (code, out) == (2, "")
    assert err.startswith(f"planner: no TLS connection to {address} (")
    assert err.count("\n") == 1


def test_without_one(cluster):
    address, _, _ = cluster
    code, _, err = ask(address, {})
    assert code == 2
    assert err.startswith(f"planner: {address} needs certificates; set DASK_")
    assert err.count("\n") == 1


def test_certificate_that_is_not_there(cluster, tmp_path):
    address, _, _ = cluster
    code, _, err = ask(address, variables(tmp_path))
    assert code == 2
    assert "cannot be used" in err
    assert err.count("\n") == 1
