"""Synthesized profiles: their graph, their bytes, and that their times are those of the compute model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.device.computation import Variation
from planner.device.rates.times import FITTED_KINDS, step_times
from planner.errors import BadInput
from planner.hardware import Device, Hardware, KernelRates
from planner.model import Layer, Model, Tensor
from planner.model.layers import kernel_kind
from planner.servers.placement import RULES
from planner.servers.synthesis import (
    GRPC_PARSING,
    NO_PARSING,
    NO_VARIATION,
    Parsing,
    profile_for,
)
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, Profile

RATES = KernelRates(
    {"conv1x1": 6e12, "conv3x3": 14e12, "conv": 4e12, "fc": 6e12, "memory": 5e11}, 50e-6, "published", "test"
)


def hardware(kernels: KernelRates | None = RATES) -> Hardware:
    device = Device("V100", "gpu", {"fp32": 15.7e12}, 16e9, 9e11)
    return Hardware("box", device, vcpus=8, nic_baseline_bytes_per_s=1.25e9, kernels=kernels)


def conv(name, source, size, channels, *, kernel=(3, 3), stride=(1, 1), tensors=()):
    macs = size * size * channels * 9
    return Layer(
        name, "conv", (source,), (size, size, channels), tensors, macs, kernel, stride, size * size * 8
    )


def branching(width: int = 8) -> Model:
    """input -> conv a -> {conv b -> relu, conv c} -> concat -> flatten -> fc, with a pool on the data."""
    kernel = (3, 3, 8, width)
    return Model(
        f"branching{width}",
        (
            Layer("input", "input", (), (32, 32, 8)),
            Layer("shrink", "pool", ("input",), (16, 16, 8), input_elements=8192),
            conv("a", "shrink", 16, width, tensors=(Tensor("a/w", kernel), Tensor("a/b", (width,)))),
            conv("b", "a", 16, width, tensors=(Tensor("b/w", kernel),)),
            Layer("relu", "relu", ("b",), (16, 16, width), input_elements=256 * width),
            conv("c", "a", 16, width, kernel=(1, 1), tensors=(Tensor("c/w", (1, 1, width, width)),)),
            Layer("join", "concat", ("relu", "c"), (16, 16, 2 * width), input_elements=512 * width),
            Layer("flat", "flatten", ("join",), (512 * width,), input_elements=512 * width),
            Layer(
                "fc", "fc", ("flat",), (10,), (Tensor("fc/w", (512 * width, 10)), Tensor("fc/b", (10,))),
                5120 * width, input_elements=512 * width,
            ),
        ),
    )  # fmt: skip


def deps_by_name(profile: Profile) -> dict[str, set[str]]:
    return {name: {profile.names[dep] for dep in profile.deps(op)} for op, name in enumerate(profile.names)}


def test_every_op_waits_for_what_it_needs():
    deps = deps_by_name(profile_for(branching(), 4, hardware(), parsing=NO_PARSING))
    assert deps == {
        "a/w/down": set(), "a/b/down": set(), "b/w/down": set(), "c/w/down": set(), "fc/w/down": set(),
        "fc/b/down": set(),
        "shrink/forward": set(),
        "a/forward": {"shrink/forward", "a/w/down", "a/b/down"},
        "b/forward": {"a/forward", "b/w/down"},
        "relu/forward": {"b/forward"},
        "c/forward": {"a/forward", "c/w/down"},
        "join/forward": {"relu/forward", "c/forward"},
        "fc/forward": {"join/forward", "fc/w/down", "fc/b/down"},
        "fc/backward": {"fc/forward"},
        "join/backward": {"fc/backward"},
        "relu/backward": {"join/backward"},
        "c/backward": {"join/backward"},
        "b/backward": {"relu/backward"},
        "a/backward": {"b/backward", "c/backward"},
        "a/w/up": {"a/backward"}, "a/w/update": {"a/w/up"},
        "a/b/up": {"a/backward"}, "a/b/update": {"a/b/up"},
        "b/w/up": {"b/backward"}, "b/w/update": {"b/w/up"},
        "c/w/up": {"c/backward"}, "c/w/update": {"c/w/up"},
        "fc/w/up": {"fc/backward"}, "fc/w/update": {"fc/w/up"},
        "fc/b/up": {"fc/backward"}, "fc/b/update": {"fc/b/up"},
    }  # fmt: skip


def test_parsing_stands_between_a_download_and_its_layer():
    profile = profile_for(
        branching(), 4, hardware(), parsing=Parsing(1e-9, 1e-4), variation=NO_VARIATION, steps=1
    )
    deps = deps_by_name(profile)
    assert deps["b/forward"] == {"a/forward", "b/w/parse"}
    assert deps["b/w/parse"] == {"b/w/down"}
    parse = profile.names.index("b/w/parse")
    assert profile.resource[parse] == WORKER
    beside = profile_for(branching(), 4, hardware(), parsing=Parsing(1e-9, 1e-4), on_host=True)
    assert beside.names == profile.names
    assert [name for name, kind in zip(beside.names, beside.resource, strict=True) if kind == HOST] == [
        name for name in profile.names if name.endswith("/parse")
    ]
    assert profile.durations_s[0, parse] == pytest.approx(1e-9 * 2304 + 1e-4)


def test_parsing_is_the_transports_unless_given():
    def parse_s(placement):
        profile = profile_for(
            branching(), 4, hardware(), placement=placement, variation=NO_VARIATION, steps=1
        )
        return profile.durations_s[0, profile.names.index("b/w/parse")]

    assert parse_s("greedy") == pytest.approx(2304 * 8e-9 / 9 + 0.26e-3)
    assert parse_s("mxnet") == pytest.approx(2304 * 8e-9 / 9)
    with pytest.raises(BadInput, match="beta_s is -1"):
        Parsing(0.0, -1.0)


def test_update_reads_and_writes_the_servers_memory():
    profile = profile_for(branching(), 4, hardware(), parsing=NO_PARSING, variation=NO_VARIATION)
    assert profile.durations_s[0, profile.names.index("fc/w/update")] == pytest.approx(163840e-9 / 4 + 2e-6)


def test_inference_has_no_gradients():
    profile = profile_for(branching(), 4, hardware(), training=False)
    assert set(profile.resource.tolist()) == {DOWNLINK, WORKER}
    assert not any(name.endswith(("/backward", "/up", "/update")) for name in profile.names)
    assert profile.names[-1] == "fc/forward"


def test_split_tensors_have_a_transfer_for_each_part():
    model = Model(
        "wide", (Layer("fc", "fc", (), (1500,), (Tensor("w", (1000, 1500)),), 1500000, input_elements=1000),)
    )
    profile = profile_for(model, 1, hardware(), servers=3, placement="mxnet", parsing=NO_PARSING)
    assert profile.tensors == ("w/part0", "w/part1", "w/part2")
    assert profile.names[:3] == ("w/part0/down", "w/part1/down", "w/part2/down")
    assert profile.server[:3].tolist() == [0, 1, 2]
    assert profile.bytes[:3].tolist() == [2_000_000] * 3
    assert deps_by_name(profile)["fc/forward"] == {"w/part0/down", "w/part1/down", "w/part2/down"}


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 40),
    batch=st.integers(1, 256),
    servers=st.integers(1, 4),
    rule=st.sampled_from(RULES),
    parsing=st.sampled_from((NO_PARSING, GRPC_PARSING, None)),
)
def test_bytes_and_times_are_conserved(width, batch, servers, rule, parsing):
    model = branching(width)
    profile = profile_for(
        model, batch, hardware(), servers, rule, parsing=parsing, variation=NO_VARIATION, steps=1
    )
    for direction in (DOWNLINK, UPLINK):
        assert profile.bytes[profile.resource == direction].sum() == model.bytes
    assert not profile.bytes[~profile.is_transfer].any()
    assert not profile.durations_s[:, profile.is_transfer].any()
    computes = np.array([name.endswith(("/forward", "/backward")) for name in profile.names])
    times = step_times(model, batch, RATES)
    trained = [layer.name != "shrink" for layer in model.layers]
    expected = times.forward_s.sum() + times.backward_s[trained].sum()
    assert profile.durations_s[0, computes].sum() == pytest.approx(expected, rel=1e-12)
    # a tensor's downlink, uplink and update share its index and its server
    for index in range(len(profile.tensors)):
        mine = profile.tensor == index
        assert sorted(profile.resource[mine].tolist()) == [DOWNLINK, UPLINK, PS]
        assert len(set(profile.server[mine].tolist())) == 1


@given(first=st.integers(1, 200), gap=st.integers(1, 200))
def test_step_time_is_affine_in_batch(first, gap):
    model = branching()
    a, b, c = (step_times(model, batch, RATES).step_s for batch in (first, first + gap, first + 2 * gap))
    assert c - b == pytest.approx(b - a, rel=1e-9)
    assert a > step_times(model, first, RATES, training=False).step_s


def test_time_of_one_convolution_by_hand():
    layer = Layer(
        "c", "conv", ("x",), (10, 10, 20), (Tensor("w", (3, 3, 5, 20)),), 90_000, (3, 3), (1, 1), 500
    )
    times = step_times(Model("one", (Layer("d", "relu", (), (10, 10, 5)), layer)), 8, RATES)
    moved = (500 + 2000) * 4
    rest = 50e-6 + (8 * moved + 3600) / 5e11
    assert times.forward_s[1] == pytest.approx(8 * 90_000 / 14e12 + rest)
    assert times.backward_s[1] == pytest.approx(2 * (1.2 * 8 * 90_000 / 14e12 + rest))


def test_normalisation_reads_its_input_once_more_in_training():
    norm = Layer("n", "batch_norm", (), (10, 10, 5), (Tensor("n/beta", (5,)),), input_elements=500)
    model = Model("one", (norm,))
    times = [step_times(model, 8, RATES, training=flag).forward_s[0] for flag in (True, False)]
    assert times[0] - times[1] == pytest.approx(8 * 500 * 4 / 5e11)


def test_kernel_kinds():
    def kind(kernel, stride):
        return kernel_kind(Layer("x", "conv", (), (1, 1, 1), (), 1, kernel, stride, 1))

    assert kind((1, 1), (2, 2)) == "conv1x1"
    assert kind((3, 3), (1, 1)) == "conv3x3"
    assert kind((5, 5), (1, 1)) == "conv3x3"
    assert kind((3, 3), (2, 2)) == "conv"
    assert kind((1, 7), (1, 1)) == "conv_long"
    assert kernel_kind(Layer("x", "batch_norm", (), (1,))) == "memory"


def test_steps_vary_as_asked_and_by_seed():
    model = branching()
    variation = Variation(step_sigma=0.1, op_sigma=0.0)
    profile = profile_for(model, 4, hardware(), steps=4000, variation=variation)
    still = profile_for(model, 4, hardware(), steps=1, variation=NO_VARIATION)
    factor = profile.durations_s.sum(axis=1) / still.durations_s.sum()
    assert factor.mean() == pytest.approx(1, abs=0.01)
    assert np.log(factor).std() == pytest.approx(0.1, rel=0.05)
    assert profile.order is None
    again, other = (profile_for(model, 4, hardware(), seed=seed) for seed in (0, 1))
    assert (again.durations_s == profile_for(model, 4, hardware()).durations_s).all()
    assert (again.durations_s != other.durations_s).any()


def test_estimated_rates_make_an_estimated_profile():
    guessed = KernelRates(RATES.rates, 50e-6, "estimated", "scaled")
    assert profile_for(branching(), 4, hardware(guessed)).basis == "estimated"
    assert profile_for(branching(), 4, hardware()).basis == "synthesized"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"servers": 0}, "servers is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"placement": "best"}, "unknown placement 'best'"),
        ({"hardware": hardware(None)}, "'box' has no kernel rates for its device 'V100'"),
        ({"hardware": hardware(KernelRates({"fc": 1.0}, 0.0, "estimated", ""))}, "lack conv1x1"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(BadInput, match=message):
        profile_for(**({"model": branching(), "batch": 4, "hardware": hardware()} | change))


def test_model_without_kernels_is_refused():
    with pytest.raises(BadInput, match="no layer that computes"):
        profile_for(Model("empty", (Layer("input", "input", (), (1,)),)), 1, hardware())


def test_kinds_are_those_of_the_hardware_files():
    assert set(RATES.rates) == set(FITTED_KINDS)
