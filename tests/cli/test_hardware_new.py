"""`planner hardware new`: a file of one's own machines, from answers or from what programs print."""

import pytest
from typer.testing import CliRunner

from planner.cli._app import app
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware

ANSWERS = ("--gpu", "A100-SXM4-80GB", "--gpus", "8", "--machines", "4", "--nic", "200Gbit", "--price", "0")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args, **more):
    return CliRunner().invoke(app, args, env={"COLUMNS": "160"}, **more)


def test_written_file_answers_at_once():
    done = run("hardware", "new", *ANSWERS, "--name", "mine")
    assert done.exit_code == 0, done.output
    mine = load_hardware("./mine.toml")
    assert (mine.name, mine.device.name, mine.device_count, mine.machines) == ("mine", "A100-SXM4-80GB", 8, 4)
    assert mine.nic_baseline_bytes_per_s == 25e9
    assert not mine.has_price
    answer = run("recommend", "--model", "llama3-8b", "--hardware", "./mine.toml", "--interval-width", "0.05")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("Use          4 x mine (32 x A100-SXM4-80GB)")


def test_several_nics_rdma_price_and_fabric():
    nic = ("--nic", "8x400Gbit", "--rdma")
    done = run(
        "hardware",
        "new",
        "--gpu",
        "NVIDIA H100 80GB HBM3",
        "--gpus",
        "8",
        *nic,
        "--price",
        "20",
        "-o",
        "h.toml",
    )
    assert done.exit_code == 0, done.output
    result = load_hardware("h.toml")
    assert (result.device.name, result.nics, result.rdma) == ("H100-SXM5-80GB", 8, True)
    assert result.rdma_bytes_per_s == result.nic_baseline_bytes_per_s == 400e9
    assert result.price.on_demand_usd_per_hour == 20


def test_output_of_programs_given_as_files(here):
    (here / "gpus").write_text("".join(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-{i})\n" for i in range(4)))
    rows = "".join(
        f"GPU{i}\t" + "\t".join("X" if i == j else "NV12" for j in range(4)) + "\n" for i in range(4)
    )
    (here / "topo").write_text("\tGPU0\tGPU1\tGPU2\tGPU3\n" + rows)
    (here / "cpu").write_text("CPU(s):  64\nModel name:  AMD EPYC 7543\n")
    (here / "ports").write_text(
        "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n"
    )
    files = ("--nvidia-smi", "gpus", "--topology", "topo", "--lscpu", "cpu", "--ibstat", "ports")
    done = run("hardware", "new", *files, "--machines", "2")
    assert done.exit_code == 0, done.output
    result = load_hardware("mine.toml")
    assert (result.device.name, result.device_count, result.vcpus) == ("A100-SXM4-40GB", 4, 64)
    assert (result.fabric.curve, result.fabric.assumed) == ("a100-sxm", False)
    assert (result.rdma_kind, result.nic_baseline_bytes_per_s) == ("InfiniBand", 12.5e9)
    assert result.sources["nic_baseline"].source == "ibstat"


def test_prompts_on_a_terminal(monkeypatch):
    from planner.cli import hardware

    monkeypatch.setattr(hardware, "_is_terminal", lambda: True)
    done = run("hardware", "new", input="A10G\n4\n2\n25Gbit\n0\n")
    assert done.exit_code == 0, done.output
    result = load_hardware("mine.toml")
    assert (result.device.name, result.device_count, result.machines) == ("A10G", 4, 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name the GPU: --gpu"),
        (("--gpu", "A100-SXM5"), "nearest: .*A100-SXM4"),
        (("--gpu", "T4", "--nic", "25"), "write it with its unit"),
        (("--gpu", "T4", "--gpus", "2", "--fabric", "pci"), "unknown fabric"),
    ],
)
def test_refusals_leave_no_file(here, args, message):
    done = run("hardware", "new", *args)
    assert isinstance(done.exception, BadInput)
    with pytest.raises(BadInput, match=message):
        raise done.exception
    assert not list(here.iterdir())


def test_file_that_is_there_is_kept_unless_forced(here):
    (here / "mine.toml").write_text("mine")
    kept = run("hardware", "new", *ANSWERS)
    assert "--force replaces it" in str(kept.exception)
    failed = run("hardware", "new", *ANSWERS, "--fabric", "pci", "--force")
    assert isinstance(failed.exception, BadInput)
    assert (here / "mine.toml").read_text() == "mine"
    assert run("hardware", "new", *ANSWERS, "--force").exit_code == 0
