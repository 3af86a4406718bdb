"""Hostile ONNX files: accepted or refused in one line, within seconds and a bounded memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import BadInput
from planner.model.importers import import_file

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, INT64 = 1, 7


def model(
    nodes: list[Any], weights: tuple[Any, ...] = (), functions: tuple[Any, ...] = (), size: int = 4
) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, size])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        list(weights),
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets)


def chain(length: int, operator: str = "Relu") -> list[Any]:
    names = ["x", *(f"t{index}" for index in range(1, length)), "y"]
    return [helper.make_node(operator, [names[index]], [names[index + 1]]) for index in range(length)]


def doubled(times: int) -> Any:
    nodes = [helper.make_node("Shape", ["x"], ["q0"])]
    nodes += [
        helper.make_node("Concat", [f"q{index}", f"q{index}"], [f"q{index + 1}"], axis=0)
        for index in range(times)
    ]
    return model([*nodes, helper.make_node("Reshape", ["x", f"q{times}"], ["y"])])


def nested(depth: int, calls: int = 2) -> Any:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(depth):
        callee, domain = (f"F{level + 1}", "own") if level + 1 < depth else ("Relu", "")
        names = ["a", *(f"b{index}" for index in range(1, calls)), "c"]
        nodes = [
            helper.make_node(callee, [names[index]], [names[index + 1]], domain=domain)
            for index in range(calls)
        ]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["c"], nodes, opsets))
    return model([helper.make_node("F0", ["x"], ["y"], domain="own")], functions=tuple(functions))


def calling_itself() -> Any:
    opsets = [helper.make_opsetid("own", 1)]
    node = helper.make_node("F", ["a"], ["c"], domain="own")
    function = helper.make_function("own", "F", ["a"], ["c"], [node], opsets)
    return model([helper.make_node("F", ["x"], ["y"], domain="own")], functions=(function,))


def split(outputs: int) -> Any:
    return model([helper.make_node("Split", ["x"], ["y"], axis=1, num_outputs=outputs)])


def weight(*sizes: int) -> Any:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT)
    tensor.dims.extend(sizes)
    return tensor


def product(*sizes: int) -> Any:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], (weight(*sizes),))


def cyclic(nodes: list[tuple[str, str]]) -> Any:
    return model([helper.make_node("Add", ["x", read], [made]) for read, made in nodes])


def in_branches(depth: int) -> Any:
    made = helper.make_node("Relu", ["x"], ["r"])
    for level in range(depth):
        out = helper.make_tensor_value_info(made.output[0], FLOAT, None)
        graph = helper.make_graph([made], "b", [], [out])
        made = helper.make_node("If", ["x"], [f"i{level}"], then_branch=graph, else_branch=graph)
    return model([made, helper.make_node("Relu", [made.output[0]], ["y"])])


def constants(count: int, size: int) -> Any:
    nodes = [helper.make_node("ConstantOfShape", ["s"], [f"c{index}"]) for index in range(count)]
    shape = helper.make_tensor("s", INT64, [1], [size])
    return model([*nodes, helper.make_node("Add", ["x", "c0"], ["y"])], (shape,))


def expanded(size: int) -> Any:
    shape = helper.make_tensor("s", INT64, [2], [size, 4])
    return model([helper.make_node("Expand", ["x", "s"], ["y"])], (shape,))


def ranged(size: int) -> Any:
    given = zip("abc", (0, size, 1), strict=True)
    values = [helper.make_tensor(name, INT64, [], [value]) for name, value in given]
    return model(
        [helper.make_node("Range", ["a", "b", "c"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])],
        tuple(values),
    )


HOSTILE: dict[str, Callable[[], Any]] = {
    **{f"concat doubled {times} times": lambda times=times: doubled(times) for times in (20, 28, 34, 60)},
    **{f"split in {n}": lambda n=n: split(n) for n in (0, -1, 2, 10**6, 2**31, 2**62)},
    **{f"functions {n} deep": lambda n=n: nested(n) for n in (2, 10, 16, 17, 20, 30, 60, 64, 66, 500)},
    **{f"functions of {n} calls": lambda n=n: nested(3, n) for n in (10, 50, 100)},
    "2,000 functions": lambda: nested(2000, 1),
    "a function that calls itself": calling_itself,
    **{f"a chain of {n}": lambda n=n: model(chain(n)) for n in (100, 5_000, 19_000, 20_000, 20_001, 100_000)},
    "a chain of an unknown operator": lambda: model(chain(3_000, "Nonsense")),
    **{
        f"a weight of {sizes}": lambda sizes=sizes: product(*sizes)
        for sizes in ((-4, 8), (4, -8), (4, 0), (0, 0), (4, 2**40), (2**62, 2**62), (-(2**63), 1), (4,), ())
    },
    "a weight of 40 axes": lambda: product(*[2] * 40),
    "a weight of 100,000 axes": lambda: product(*[1] * 100_000),
    "a node that reads itself": lambda: cyclic([("y", "y")]),
    "two nodes that read each other": lambda: cyclic([("y", "a"), ("a", "y")]),
    "nodes in reverse order": lambda: cyclic([("b", "y"), ("a", "b"), ("x", "a")]),
    "two makers of one name": lambda: cyclic([("x", "y"), ("x", "y")]),
    "a name that nobody makes": lambda: cyclic([("nobody", "y")]),
    **{f"branches {n} deep": lambda n=n: in_branches(n) for n in (1, 5, 10, 14)},
    **{f"constants of {n}": lambda n=n: constants(1, n) for n in (-1, 0, 4, 2**20, 2**40, 2**62)},
    "3,000 constants of 2^24": lambda: constants(3_000, 2**24),
    **{f"expanded to {n}": lambda n=n: expanded(n) for n in (-3, 0, 2**30, 2**62)},
    **{f"a range of {n}": lambda n=n: ranged(n) for n in (-1, 4, 2**24, 2**31, 2**62)},
    "an input of 2^62": lambda: model(chain(1), size=2**62),
    "no nodes": lambda: model([]),
    "20,000 inputs of one node": lambda: model([helper.make_node("Sum", ["x"] * 20_000, ["y"])]),
    "an operator without inputs": lambda: model([helper.make_node("Relu", [], ["y"])]),
    "a node without outputs": lambda: model([helper.make_node("Relu", ["x"], [])]),
    "a name of a megabyte": lambda: model([helper.make_node("Relu", ["x"], ["y"], name="n" * 2**20)]),
    "a name with lines": lambda: model([helper.make_node("Relu", ["x"], ["y"], name="a\nb\x1b[2J")]),
}
ACCEPTED = ("functions 2 deep", "a chain of 100", "a name with lines", "a name of a megabyte")


def test_there_are_sixty_files() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_accepted_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(HOSTILE[name]().SerializeToString())
    before = max(
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    try:
        import_file(path)
        refusal = ""
    except BadInput as error:
        refusal = str(error)
    if sys.platform == "linux":  # elsewhere the unit is bytes, and nothing limits a process
        # KiB, of all children so far; a child begins as a copy of this process
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(2**20, before)
    assert refusal.isprintable()
    assert len(refusal) < 600
    if name in ACCEPTED:
        assert not refusal
    for sign in ("concat doubled 34", "split in 2147483648", "functions 30", "reads itself", "each other"):
        if sign in name:
            assert refusal


@pytest.mark.parametrize("sizes", [(-4, 8), (4, -8)])
def test_negative_sizes_are_named(sizes: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(product(*sizes).SerializeToString())
    with pytest.raises(BadInput, match="the tensor 'w' has a negative size"):
        import_file(tmp_path / "net.onnx")


def test_ctrl_c_stops_within_a_second(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(doubled(26).SerializeToString())
    program = "from planner.model.importers import onnx_shapes as o; import sys, time\n"
    program += "o.sys.executable = sys.argv[1]; o.infer_shapes(o.Path('net.onnx'), {})"
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(slow)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stderr=subprocess.PIPE,
    ) as running:
        time.sleep(1.0)
        assert running.poll() is None
        began_s = time.perf_counter()
        running.send_signal(signal.SIGINT)
        running.wait(5)
        assert time.perf_counter() - began_s < 1.0
