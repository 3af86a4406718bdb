"""Small rules of reports: what devices that share state hold, and how many sentences of a kind are shown."""

from __future__ import annotations

import pytest

from planner.device.precision import find_precision
from planner.model.catalog import load_model
from planner.note import Note, Topic
from planner.report.assumed import brief_notes
from planner.report.memory import TrainingSettings, memory_by_layout
from planner.report.page import Page
from planner.report.terminal import page_text


def test_devices_share_what_their_stage_shares_and_gather_two_blocks_ahead() -> None:
    model = load_model("gpt2")
    training = TrainingSettings(8, find_precision(model.default_precision), devices=8)
    result = memory_by_layout(model, training)
    whole = result["replicated"]
    # the loss is the worst moment, before there are gradients
    assert all(memory.gradients_bytes == 0 for memory in result.values())
    for name in ("ZeRO 1", "ZeRO 2", "ZeRO 3, FSDP"):
        assert result[name].optimizer_bytes == pytest.approx(whole.optimizer_bytes / 8)
    last = result["ZeRO 3, FSDP"]
    assert last.parameters_bytes == pytest.approx(whole.parameters_bytes / 8)
    # the table of tokens, which the head shares, and the one of positions behind it
    tables = [tensor.elements for layer in model.layers[:3] for tensor in layer.tensors]
    assert last.buffers_bytes == pytest.approx(sum(tables) * training.precision.parameter_bytes)


def test_brief_notes_join_what_matters_and_keep_warnings() -> None:
    def notes(topic: Topic) -> list[Note]:
        return [Note(topic, f"{topic} {at}.") for at in range(5)]

    every = [*notes(Topic.PRICE), *notes(Topic.COMPUTE), *notes(Topic.PLAN), *notes(Topic.WARNING)]
    clauses, *warnings, last = brief_notes(every)
    assert clauses == "Price 0; Price 1; Price 2; Price 3; Price 4; Compute 0."
    assert warnings == [f"Note: Note {at}." for at in range(5)]
    assert last == "--explain lists all 20 assumptions."
    page = Page("page", assumptions=every)
    assert page_text(page, 80, explain=False)[-1].plain.strip() == last
    assert len(page_text(page, 80)) == 20
