from dataclasses import dataclass

from planner.report.saturation import slowdown_sentence


@dataclass(frozen=True)
class Rate:
    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float


def rate(mean, half):
    return Rate(mean, mean - half, mean + half)


def test_first_fall_beyond_the_intervals_is_explained():
    said = slowdown_sentence([(1, rate(94, 1)), (2, rate(183, 6)), (3, rate(154, 9)), (4, rate(100, 1))])
    assert said.startswith("3 workers are 16% slower than 2: they fall into lockstep")


def test_drop_within_intervals_is_no_phase_note():
    assert (
        slowdown_sentence([(1, rate(94, 1)), (2, rate(183, 6)), (3, rate(180, 3)), (4, rate(181, 3))]) == ""
    )
    assert slowdown_sentence([]) == ""


def test_workers_that_exchange_together_do_not_take_turns():
    said = slowdown_sentence([(1, rate(62, 1)), (2, rate(31, 1))], is_asynchronous=False)
    assert said.startswith("2 workers are 50% slower than 1: exchanging gradients takes longer")
