"""Published scaling: what a row says of its links."""

from __future__ import annotations

from planner.validation.scaling_rows import FABRICS, pairs
from planner.validation.training import training_rows


def test_runs_are_grouped_by_their_links() -> None:
    runs = [run for _, run in pairs(training_rows())]
    inside = {run.fabric: run.link for run in runs if run.nodes == 1}
    assert inside
    for fabric, link in inside.items():
        assert link == f"one machine, {'PCIe' if FABRICS[fabric].kind == 'pcie' else 'NVLink'}"
    assert set(inside.values()) == {"one machine, PCIe", "one machine, NVLink"}
    assert all(run.link.startswith("machines, ") for run in runs if run.nodes > 1)


def test_sockets_have_no_rdma() -> None:
    for network, sockets in (("TCP", True), ("Ethernet", True), ("IB and Ethernet", False), ("", False)):
        rows = [{**row, "inter_net": network} for row in training_rows()]
        assert {run.machine.rdma for _, run in pairs(rows)} == {not sockets}
