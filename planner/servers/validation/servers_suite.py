"""`servers`: real TensorFlow runs with parameter servers, predicted from the profile of one worker."""

from __future__ import annotations

from planner.servers.validation import testbed
from planner.validation.evidence import Compared, Evidence, ranged_by_others

PEERS = "Cynthia's model and a queueing model on the same points stand under `testbed/summary`"


def found() -> Evidence:
    rows = []
    for one in testbed.compared():
        point = one.point
        rows.append(
            Compared(
                id=f"{point.name}-w{point.workers}",
                source=point.config,
                part="one server" if point.servers == 1 else f"{point.servers} servers",
                what=f"{point.name}, {point.workers} workers",
                unit="samples/s",
                measured=point.samples_per_s,
                predicted=one.prediction.samples_per_s,
                rule=point.samples_per_s * (1 + one.baselines["ideal"]),
            )
        )
    return Evidence(
        suite="servers",
        title="Parameter servers: TensorFlow over shaped links",
        quantity="throughput",
        fitted="nothing fitted",
        rule="linear scaling",
        peers=PEERS,
        rows=ranged_by_others(rows),
        notes=["A source is a configuration here: model, batch and bandwidth."],
    )
