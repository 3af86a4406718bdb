"""Resources as values and as text."""

from __future__ import annotations

import pytest

from planner.simulator.resource import Resource


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("uplink[0]", Resource("uplink", 0)),
        ("ps[12]", Resource("ps", 12)),
        ("worker", Resource("worker")),
        ("NVLink inside machines", Resource("NVLink inside machines")),
        ("odd]", Resource("odd]")),
        ("named [x]", Resource("named [x]")),
    ],
)
def test_text_and_value_are_the_same(text: str, resource: Resource) -> None:
    assert Resource.read(text) == resource
    assert str(resource) == text
