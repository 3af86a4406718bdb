import pytest

from planner.errors import BadInput
from planner.units import parse_bandwidth, parse_size


@pytest.mark.parametrize(
    ("text", "value"), [("3Gbit", 3.75e8), ("100 Mbit/s", 1.25e7), ("2.5gbps", 3.125e8), ("8kbit", 1e3)]
)
def test_bandwidth(text, value):
    assert parse_bandwidth(text) == value


@pytest.mark.parametrize(
    "text", ["3", "", "-1Gbit", "0Gbit", "3 GiB", "nanGbit", "1e999Gbit", "1bit", "1e12Gbit"]
)
def test_bandwidth_refuses(text):
    with pytest.raises(BadInput):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "value"), [("4MiB", 4 * 2**20), ("64 KiB", 65536), ("1000", 1000), ("4MB", 4_000_000)]
)
def test_size(text, value):
    assert parse_size(text) == value


def test_large_numbers_are_words():
    from planner.units import format_count

    assert [format_count(n) for n in (61_440, 1e9, 15.6e12, 9_035_582_198, 300e6)] == [
        "61,440",
        "1 billion",
        "15.6 trillion",
        "9.04 billion",
        "300 million",
    ]


def test_long_times_are_years():
    from planner.units import format_seconds

    assert format_seconds(999 * 86400) == "999 d"
    assert format_seconds(3560 * 86400) == "9.75 years"
    assert format_seconds(0.34) == "340 ms"
