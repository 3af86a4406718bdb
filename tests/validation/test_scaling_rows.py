"""Published scaling: what a row says of its links."""

from __future__ import annotations

from dataclasses import replace

from planner.validation.predict import FABRICS
from planner.validation.reader import published_runs, read_run, training_rows
from planner.validation.run import Run
from planner.validation.scaling import link_label, machine_of, pair_runs

RUNS = [pair.run for pair in pair_runs(published_runs()[0], {})]


def test_runs_are_grouped_by_their_links() -> None:
    inside = {run.links.fabric: link_label(run) for run in RUNS if run.machines == 1}
    assert inside
    for fabric, link in inside.items():
        assert link == f"one machine, {'PCIe' if FABRICS[fabric].kind == 'pcie' else 'NVLink'}"
    assert set(inside.values()) == {"one machine, PCIe", "one machine, NVLink"}
    assert all(link_label(run).startswith("machines, ") for run in RUNS if run.machines > 1)


def test_sockets_have_no_rdma() -> None:
    row = next(row for row in training_rows() if row["id"] == RUNS[0].id)
    for network, sockets in (("TCP", True), ("Ethernet", True), ("IB and Ethernet", False), ("", False)):
        run = read_run({**row, "inter_net": network})
        assert isinstance(run, Run)
        assert machine_of(run).rdma is not sockets


def test_every_run_is_paired_or_says_why_not() -> None:
    runs, skipped = published_runs()[0], {}
    result = pair_runs(runs, skipped)
    assert len(result) + len(skipped) == len(runs)
    assert all(skipped.values())


def test_rates_in_any_unit_are_paired_alike() -> None:
    """A series in tokens or frames per second scales as one in samples does."""
    pair = next(
        pair for pair in pair_runs(published_runs()[0], {}) if pair.run.network == "Transformer-XL base"
    )
    assert pair.run.recalled
    faster = replace(pair.run, rate_per_s=(pair.run.rate_per_s or 0.0) * 2)
    assert replace(pair, run=faster).run_s == pair.run_s / 2
