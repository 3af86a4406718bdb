"""Placement rules, against the splits that TensorFlow and MXNet make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.model import Layer, Model, Tensor
from planner.servers.placement import RULES, TensorPart, place_model, place_tensors, server_bytes
from planner.units import MIB


def layer(name: str, kind: str, *tensors: Tensor) -> Layer:
    return Layer(name=name, kind=kind, inputs=(), output_shape=(1,), tensors=tensors)


def plain_model(*sizes: tuple[str, int]) -> Model:
    layers = tuple(layer(name, "conv", Tensor(name, (size // 4,))) for name, size in sizes)
    return Model("test", layers)


VGG11 = plain_model(
    ("conv0/weights", 6912), ("conv0/biases", 256),
    ("conv1/weights", 294912), ("conv1/biases", 512),
    ("conv2/weights", 1179648), ("conv2/biases", 1024),
    ("conv3/weights", 2359296), ("conv3/biases", 1024),
    ("conv4/weights", 4718592), ("conv4/biases", 2048),
    ("conv5/weights", 9437184), ("conv5/biases", 2048),
    ("conv6/weights", 9437184), ("conv6/biases", 2048),
    ("conv7/weights", 9437184), ("conv7/biases", 2048),
    ("fc0/weights", 411041792), ("fc0/biases", 16384),
    ("fc1/weights", 67108864), ("fc1/biases", 16384),
    ("fc2/weights", 16400384), ("fc2/biases", 4004),
)  # fmt: skip


def mib(parts: tuple[TensorPart, ...], servers: int) -> list[float]:
    return [round(size / MIB, 2) for size in server_bytes(parts, servers)]


def names_on(server: int) -> list[str]:
    return [VGG11.tensors[p.tensor].name for p in place_model(VGG11, 2, "greedy") if p.server == server]


def test_vgg11_greedy_on_two_servers_is_the_papers_split():
    assert mib(place_model(VGG11, 2, "greedy"), 2) == [100.21, 406.64]
    assert names_on(0) == [
        "conv0/biases", "conv1/weights", "conv2/biases", "conv3/weights", "conv4/biases", "conv5/weights",
        "conv6/biases", "conv7/weights", "fc0/biases", "fc1/weights", "fc1/biases",
        "fc2/weights", "fc2/biases",
    ]  # fmt: skip
    assert names_on(1) == [
        "conv0/weights", "conv1/biases", "conv2/weights", "conv3/biases", "conv4/weights", "conv5/biases",
        "conv6/weights", "conv7/biases", "fc0/weights",
    ]  # fmt: skip


def test_global_step_decides_which_server_is_which():
    sizes = [tensor.bytes for tensor in VGG11.tensors]
    assert mib(place_tensors(sizes, 2, "greedy"), 2) == [406.64, 100.21]


def test_vgg11_greedy_on_four_servers():
    assert mib(place_model(VGG11, 4, "greedy"), 4) == [11.26, 396.51, 25.78, 73.30]


def test_tensorflow_counts_moving_averages_but_does_not_transfer_them():
    gamma, beta = Tensor("bn/gamma", (8,)), Tensor("bn/beta", (8,))
    model = Model(
        "test",
        (
            layer("conv", "conv", Tensor("kernel", (6,))),
            layer("bn", "batch_norm", gamma, beta),
            layer("fc", "fc", Tensor("fc", (2,))),
        ),
    )
    # global_step 8 -> 0, kernel 24 -> 1, gamma 32 -> 0, beta 32 -> 1, mean 32 -> 0, variance 32 -> 1, fc -> 0
    assert [part.server for part in place_model(model, 2, "greedy")] == [1, 0, 1, 0]
    assert [part.tensor for part in place_model(model, 2, "greedy")] == [0, 1, 2, 3]
    assert [part.server for part in place_model(model, 2, "round_robin")] == [1, 0, 1, 0]


def test_round_robin_takes_turns():
    assert [part.server for part in place_tensors([4] * 5, 3, "round_robin")] == [0, 1, 2, 0, 1]


def test_mxnet_hashes_small_arrays_and_splits_large_ones():
    small, large = 4 * 999_999, 4 * 1_000_001
    parts = place_tensors([small, small, large], 3, "mxnet")
    assert parts[:2] == (TensorPart(0, 0, small), TensorPart(1, 9973 % 3, small))
    assert parts[2:] == (
        TensorPart(2, 0, 4 * 333_334),
        TensorPart(2, 1, 4 * 333_333),
        TensorPart(2, 2, 4 * 333_334),
    )


def test_p3_deals_slices_over_servers_across_tensors():
    parts = place_tensors([4 * 100_000, 4 * 39_999, 4 * 40_000], 2, "p3")
    assert parts == (
        TensorPart(0, 0, 160_000), TensorPart(0, 1, 160_000), TensorPart(0, 0, 80_000),
        TensorPart(1, 1, 4 * 39_999),
        TensorPart(2, 1, 160_000),
    )  # fmt: skip


def test_best_fit_balances_what_greedy_does_not():
    sizes = [4, 4, 4, 4, 40, 24]
    assert server_bytes(place_tensors(sizes, 2, "greedy"), 2) == (48, 32)
    assert server_bytes(place_tensors(sizes, 2, "best_fit"), 2) == (40, 40)


def test_one_tensor_can_hold_more_than_an_even_share():
    assert max(mib(place_model(VGG11, 2, "best_fit"), 2)) == 392.0


@given(
    sizes=st.lists(st.integers(1, 3_000_000).map(lambda n: 4 * n), min_size=1, max_size=20),
    servers=st.integers(1, 6),
    rule=st.sampled_from(RULES),
)
def test_every_rule_places_every_byte_once(sizes, servers, rule):
    parts = place_tensors(sizes, servers, rule)
    for index, size in enumerate(sizes):
        assert sum(part.bytes for part in parts if part.tensor == index) == size
    assert all(0 <= part.server < servers and part.bytes > 0 for part in parts)
    assert [part.tensor for part in parts] == sorted(part.tensor for part in parts)


def test_bad_rule_and_bad_count_are_named():
    with pytest.raises(BadInput, match="unknown placement 'gredy'; nearest: greedy"):
        place_tensors([4], 2, "gredy")
    with pytest.raises(BadInput, match="0 servers"):
        place_tensors([4], 0, "greedy")
