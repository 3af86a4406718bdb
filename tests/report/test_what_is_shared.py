"""Small rules of reports: what devices that share state hold, and how many sentences of a kind are shown."""

from __future__ import annotations

import pytest

from planner.device.precision import precision_named
from planner.model.catalog import load_model
from planner.note import Note, Topic
from planner.report.layer_pages import TrainingSettings, layouts
from planner.report.page import Page
from planner.report.terminal import brief_notes, page_text


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


def test_brief_notes_keep_the_topics_that_matter_and_count_the_others() -> None:
    def notes(topic: Topic) -> list[Note]:
        return [Note(topic, f"{topic} {at}.") for at in range(5)]

    every = [*notes(Topic.PRICE), *notes(Topic.COMPUTE), *notes(Topic.PLAN)]
    page = Page("page", assumptions=every)
    topics = [note.topic for note in brief_notes(page)]
    assert {topic: topics.count(topic) for topic in set(topics)} == {Topic.PRICE: 5, Topic.COMPUTE: 1}
    assert page_text(page, 80, explain=False)[-1].plain.strip() == "--explain lists 9 more assumptions."
    assert len(page_text(page, 80)) == 15
