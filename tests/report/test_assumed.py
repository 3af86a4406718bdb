"""Sentences of assumptions: every fact has a template, and every template a fact and known formats."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

import planner
from planner.note import Topic, fact
from planner.report.assumed import FORMATS, TEMPLATES, fact_note, fill_template

FOLDER = Path(planner.__file__).parent


def test_templates_and_facts_in_the_code_have_the_same_names() -> None:
    named = set[str]()
    for path in FOLDER.rglob("*.py"):
        named.update(re.findall(r'\bfact\(\s*"([a-z-]+)"', path.read_text("utf-8")))
    conditional = {"one-owned-machine", "owned-machines"}
    assert named | conditional == set(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_has_a_topic_and_known_formats(name: str) -> None:
    template = TEMPLATES[name]
    assert template.keys() <= {"topic", "text", "brief"}
    assert template["topic"] in {topic.value for topic in Topic}
    for text in (template["text"], template.get("brief", "")):
        specs = {spec for _, field, spec, _ in Formatter().parse(text) if field and spec}
        plain = {spec for spec in specs if "|" in spec or re.fullmatch(r",|(\.\d)?g", spec)}
        assert specs - plain <= FORMATS.keys()


def test_fill_leaves_out_a_part_with_an_empty_value() -> None:
    assert fill_template("a[, b {x}]{y}.", {"x": None, "y": 1}) == "a1."
    assert fill_template("a[, b {x}]{y}.", {"x": 2, "y": 1}) == "a, b 21."


def test_fill_chooses_the_plural_by_number() -> None:
    template = "{steps:,} {steps:step|steps} of {machines:has|have}"
    assert fill_template(template, {"steps": 1, "machines": ["a"]}) == "1 step of has"
    assert fill_template(template, {"steps": 4, "machines": ["a", "b"]}) == "4 steps of have"


def test_fact_note_states_a_fact_with_its_topic() -> None:
    note = fact_note(fact("budget", usd_per_hour=20.0))
    assert str(note) == "Budget: at most $20/h for the whole cluster, servers included."
    assert note.brief is None
    assert fact_note(fact("every-provider", device="A100")).brief == ""
