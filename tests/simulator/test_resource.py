"""Resources as values and as text."""

from __future__ import annotations

import pytest

from planner.simulator.cluster import Resource, ResourceKind


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("uplink[0]", Resource(ResourceKind.UPLINK, 0)),
        ("ps[12]", Resource(ResourceKind.PS, 12)),
        ("worker", Resource(ResourceKind.WORKER)),
        ("NVLink inside machines", Resource.link("NVLink inside machines")),
        ("worker uplink", Resource(ResourceKind.WORKER_UPLINK)),
        ("network[1]", Resource.link("network", 1)),
        ("link[2]", Resource(ResourceKind.LINK, 2)),
        ("odd]", Resource.link("odd]")),
        ("named [x]", Resource.link("named [x]")),
    ],
)
def test_text_and_value_are_the_same(text: str, resource: Resource) -> None:
    assert Resource.parse(text) == resource
    assert str(resource) == text
