"""Numbers in traces that no recording has: read as unknown or refused, never an exception of Python's."""

from __future__ import annotations

import pytest

from planner.device.recorded.importers.leaves import LARGEST_SIDE, _is_shape, _parse_numbers
from planner.servers.tensorflow.graph import EDGE, RECEIVED, TRANSFER_LABEL

LONG = "9" * 5_000


@pytest.mark.parametrize("digits", ["9" * 16, "9" * 400, LONG])
def test_sizes_of_more_digits_than_any_transfer_has_are_unnamed(digits):
    label = f"[{digits}MB] edge_1_w from /job:ps/task:0 to /job:worker/task:0"
    assert TRANSFER_LABEL.search(label) is None
    assert EDGE.fullmatch(f"edge_{LONG}_w") is None
    assert RECEIVED.fullmatch(f"w_S{LONG}") is None


@pytest.mark.parametrize("dims", [[2**62], [10**400, 1], [2] * 9, [-1], ["4"], [1.5], None])
def test_shapes_whose_products_may_be_infinite_are_none(dims):
    assert not _is_shape(dims)
    assert _is_shape([LARGEST_SIDE] * 8)


def test_numbers_of_ops_out_of_range_are_not_read():
    assert _parse_numbers([f"[{10**30}, 2]"], 0) == []
    assert _parse_numbers([f"[{LONG}]"], 0) == []
    assert _parse_numbers(["[2, 2]"], 0) == [2, 2]
