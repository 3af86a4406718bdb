"""One plan in full."""

from planner.answers.questions import simulation_for
from planner.search.request import Request


def test_progress_counts_the_runs():
    request = Request(
        model="alexnet", batches=(64,), hardware=("p3.2xlarge",), workers=(2,), interval_width=0.03
    )
    told = []
    simulation = simulation_for(request, progress=lambda *how_far: told.append(how_far))
    runs = simulation.scored.prediction.runs
    assert [done for _, done, _ in told] == list(range(runs + 1))
    assert told[0] == ("simulating", 0, 6)
    assert told[-1] == ("simulating", runs, runs)
    assert simulation.scored.prediction == simulation_for(request).scored.prediction
