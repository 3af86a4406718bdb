"""`--framework`: the software that computes, in answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from planner.answers.questions import simulation_for
from planner.answers.saturation import saturation_for
from planner.device.rates import constants
from planner.errors import BadInput
from planner.report.assumed import notes_of
from planner.search.request import Request

CUT = Request(
    model="llama3-8b",
    hardware=("p5.48xlarge",),
    workers=(16,),
    tensor=(8,),
    recompute=("full",),
    exchanges=(("sharded", {"stage": "1"}),),
    interval_width=0.05,
)


def compute_notes(answer) -> list[str]:
    return [str(note) for note in notes_of(answer.assumptions) if str(note).startswith("Compute")]


def test_cut_model_is_faster_with_megatron_core_and_says_so():
    usual, named = (simulation_for(entry) for entry in (CUT, replace(CUT, framework="transformer-engine")))
    assert 1.15 < named.scored.samples_per_s / usual.scored.samples_per_s < 1.8
    assert any("synthesized for transformer-engine" in note for note in compute_notes(named))
    assert any("--framework transformer-engine" in str(note) for note in notes_of(usual.assumptions))
    assert not any("--framework" in note for note in compute_notes(named))
    # what PyTorch does not compute again, it does
    done, less = (entry.details.hfu / entry.details.mfu for entry in (named, usual))
    assert done > 1.01 * less


def test_whole_model_gets_no_hint():
    asked = Request(model="gpt2", hardware=("p5.48xlarge",), workers=(8,), interval_width=0.05)
    whole = simulation_for(asked)
    assert not any("--framework" in note for note in compute_notes(whole))


def test_compiler_takes_its_share_of_the_time():
    asked = Request(model="gpt2", hardware=("g5.xlarge",), workers=(1,), interval_width=0.05)
    usual, compiled = (
        simulation_for(entry) for entry in (asked, replace(asked, framework="pytorch-compiled"))
    )
    time = constants().frameworks["pytorch-compiled"].time
    assert usual.scored.samples_per_s / compiled.scored.samples_per_s == pytest.approx(time, rel=0.03)


def test_convolutional_networks_have_it_too_and_old_devices_leave_their_own_fit():
    """Without a name a V100 in fp32 has the rates fitted to TensorFlow's benchmarks."""
    old = Request(model="resnet50", hardware=("p3.2xlarge",), workers=(1,), formats=("fp32",))
    assert not any("synthesized for" in note for note in compute_notes(simulation_for(old)))
    named = simulation_for(replace(old, framework="pytorch"))
    assert any("synthesized for pytorch in fp32" in note for note in compute_notes(named))
    half = replace(old, formats=("fp16",))
    usual, fused = (simulation_for(entry).scored for entry in (half, replace(half, framework="ngc")))
    assert fused.samples_per_s > 1.1 * usual.samples_per_s


def test_all_questions_take_it():
    words = {"framework": "transformer-engine", "interval_width": 0.05}
    recommend = planner.recommend("gpt2-xl", hardware="p5.48xlarge", budget=60, **words)
    assert "transformer-engine" in " ".join(map(str, notes_of(recommend.assumptions)))
    assert recommend.as_dict()["request"]["framework"] == "transformer-engine"
    both = planner.compare("gpt2-xl", hardware="p5.48xlarge,p4d.24xlarge", **words)
    assert "transformer-engine" in " ".join(map(str, notes_of(both.assumptions)))
    asked = Request(model="gpt2-xl", hardware=("p5.48xlarge",), framework="ngc")
    curve = saturation_for(asked, max_workers=16)
    assert "synthesized for ngc" in " ".join(map(str, notes_of(curve.assumptions)))


def test_one_that_is_not_known_names_those_that_are():
    with pytest.raises(
        BadInput, match=r"unknown framework 'megatron-core'; nearest: megatron, .*one of c, fused"
    ):
        Request(model="gpt2", framework="megatron-core")


def test_recorded_steps_have_their_own():
    profile = planner.profile_for(planner.load_model("alexnet"), 8, planner.load_hardware("p3.2xlarge"))
    with pytest.raises(BadInput, match="--framework contradicts --profile"):
        Request(model="alexnet", profile=profile, framework="ngc")
