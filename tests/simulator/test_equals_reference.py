"""The compiled engine does what the reference does: same ops, same workers, same times, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import event, given, settings
from random_plans import Plan, plans

from planner.simulator.run import RunResult, run


def assert_equal(engine: RunResult, reference: RunResult) -> None:
    for name in ("step_starts_s", "step_ends_s", "staleness"):
        for ours, theirs in zip(getattr(engine, name), getattr(reference, name), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    for name in ("end_s", "measured_from_s", "events", "stopped"):
        assert getattr(engine, name) == getattr(reference, name), name
    for name in ("worker_busy_s", "ps_busy_s", "link_bytes"):
        np.testing.assert_allclose(
            getattr(engine, name), getattr(reference, name), rtol=1e-9, atol=1e-9, err_msg=name
        )


@settings(max_examples=400, deadline=None)
@given(plans())
def test_engine_equals_reference(plan: Plan) -> None:
    parts = (plan.profile, plan.cluster, plan.policy, plan.mode, plan.options)
    engine, reference = run(*parts), run(*parts, path="reference")
    assert_equal(engine, reference)
    if plan.options.timeline:
        assert engine.timeline is not None
        assert reference.timeline is not None
        np.testing.assert_array_equal(engine.timeline, reference.timeline)
    # Without a timeline a faster path may run; it must not be seen.
    parts = (*parts[:4], replace(plan.options, timeline=not plan.options.timeline))
    other = run(*parts)
    event(other.path)
    event(engine.path)
    assert_equal(other, reference)
