"""The measured collectives that the package carries: whole, in order, and physically possible."""

import doctest

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import hardware_names, load_hardware
from planner.parallel import collectives
from planner.parallel.collectives import COLLECTIVES, Curve, collective_runs, nccl_latencies_us

RUNS = [run for name in collectives._runs_by_name() for run in collective_runs(name)]


def bus_bytes_per_s(run: Curve) -> list[float]:
    """What a link of a ring carries at each size, as nccl-tests counts it."""
    passes = (2 if run.collective == "all_reduce" else 1) * (run.ranks - 1) / run.ranks
    return [passes * size / seconds for size, seconds in zip(run.sizes_bytes, run.seconds, strict=True)]


def test_examples() -> None:
    assert doctest.testmod(collectives).failed == 0


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.run)
def test_every_run_is_whole(run: Curve) -> None:
    assert len(run.sizes_bytes) == len(run.seconds) >= 3
    assert list(run.sizes_bytes) == sorted(set(run.sizes_bytes))
    assert min(run.seconds) > 1e-6
    assert run.seconds[-1] == max(run.seconds)
    assert run.collective in COLLECTIVES
    assert run.ranks >= 2
    assert run.ranks >= run.machines >= 1
    assert run.source
    assert run.as_of.startswith("20")


def test_runs_are_told_apart_by_their_names() -> None:
    assert len({run.run for run in RUNS}) == len(RUNS) == 164


@pytest.mark.parametrize(
    ("name", "collective", "ranks", "gbyte_per_s"),
    [
        ("a100-sxm", "all_reduce", 8, 222.3),
        ("h100-sxm", "all_reduce", 8, 445.0),
        ("b200-sxm", "all_gather", 4, 566.6),
        ("l40s-pcie", "all_reduce", 8, 2.126),  # without peer-to-peer, eight share the host
        ("rtx-pro-6000-pcie", "reduce_scatter", 2, 33.67),
    ],
)
def test_bus_bandwidth_is_as_published(name: str, collective: str, ranks: int, gbyte_per_s: float) -> None:
    run = next(run for run in collective_runs(name, collective) if run.ranks == ranks and run.machines == 1)
    best = max(bus_bytes_per_s(run))
    assert best / 1e9 == pytest.approx(gbyte_per_s, rel=2e-3)


def test_two_machines_exceed_the_wire_and_more_do_not() -> None:
    wire_bytes_per_s = load_hardware("p5.48xlarge").nic_bytes_per_s("baseline")
    for run in collective_runs("h100-efa", "all_reduce"):
        best = max(bus_bytes_per_s(run))
        assert (best > wire_bytes_per_s) == (run.machines == 2)  # type: ignore[operator]


def test_tcp_is_slower_than_rdma_by_an_order() -> None:
    slow, fast = (
        max(bus_bytes_per_s(run)[-1] for run in collective_runs(name)) for name in ("a100-tcp", "a100-efa")
    )
    assert 5 < fast / slow < 20


def test_every_curve_that_hardware_names_is_there() -> None:
    for name in hardware_names():
        hardware = load_hardware(name)
        if hardware.fabric and hardware.fabric.curve:
            inside = [
                run
                for run in collective_runs(hardware.fabric.curve)
                if run.machines <= hardware.fabric.machines
            ]
            assert hardware.device.name.partition("-")[0] == inside[0].device.partition("-")[0], name
        for curve in hardware.network_curves.values():
            assert all(run.machines > 1 for run in collective_runs(curve)), name


def test_constants_of_nccl() -> None:
    known = nccl_latencies_us()
    hops = {link: known["hw_latency_per_step", link, "Tree", "LL"] for link in ("NVLink", "PCI", "Net")}
    assert known["base_latency", "", "Tree", "LL"] == 6.8
    assert hops == {"NVLink": 0.6, "PCI": 1.0, "Net": 5.0}


def test_names_that_are_not_there() -> None:
    with pytest.raises(BadInput, match="nearest: h100-sxm"):
        collective_runs("h100-sxmm")
    with pytest.raises(BadInput, match="nearest: all_reduce"):
        collective_runs("h100-sxm", "allreduce")
