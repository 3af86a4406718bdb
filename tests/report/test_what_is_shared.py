"""Small rules of reports: what devices that share state hold, and how many sentences of a kind are shown."""

from __future__ import annotations

import pytest

from planner.device.precision import precision_named
from planner.model.catalog import load_model
from planner.note import Note, Topic
from planner.report.folding import folded
from planner.report.memory import TrainingSettings, layouts
from planner.report.output import Section, Table


def test_devices_share_what_their_stage_shares_and_gather_two_blocks_ahead() -> None:
    model = load_model("gpt2")
    training = TrainingSettings(8, precision_named(model.default_precision), devices=8)
    found = layouts(model, training)
    whole = found["replicated"]
    single = 4 * model.parameters  # gradients in single precision go with state that is spread
    assert found["ZeRO 1"].optimizer_bytes == pytest.approx((whole.optimizer_bytes + single) / 8)
    assert found["ZeRO 1"].gradients_bytes == whole.gradients_bytes
    assert found["ZeRO 2"].gradients_bytes == pytest.approx(whole.gradients_bytes / 8)
    last = found["ZeRO 3, FSDP"]
    assert last.parameters_bytes == pytest.approx(whole.parameters_bytes / 8)
    largest = max(block.parameters for block in model.blocks)
    assert last.buffers_bytes == pytest.approx(2 * largest * training.precision.parameter_bytes)


def test_three_sentences_of_prices_and_of_computing_are_shown_and_all_of_other_topics() -> None:
    def notes(topic: Topic) -> list[Note]:
        return [Note(topic, f"{topic} {at}.") for at in range(5)]

    every = [*notes(Topic.PRICE), *notes(Topic.COMPUTE), *notes(Topic.PLAN)]
    (shown,) = folded([Table.of_notes(Section.ASSUMED, every)], explain=False)
    topics = [note.topic for note in shown.notes if isinstance(note, Note)]
    assert {topic: topics.count(topic) for topic in set(topics)} == {
        Topic.PRICE: 3,
        Topic.COMPUTE: 3,
        Topic.PLAN: 5,
    }
    assert shown.notes[-1] == "4 more with --explain, and all names."
