"""Infers shapes of an ONNX file in a child process with limits on memory and time.

Inference over an untrusted graph is unbounded: a constant doubles with every Concat of itself, and functions
that each call the next one twice are entered 2^n times. Counts and sizes are checked first; inference then
runs in a child process, which the parent kills on timeout or Ctrl-C. The child returns the model with all
shapes and without weights.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.model.importers import convert_exceptions

LARGEST_FILE_BYTES = 2**31
MEMORY_BYTES = 2**30  # on top of the file itself
LONGEST_S = 10.0
MOST_NODES = 20_000  # like the layers of a network
MOST_CALLED_NODES = 200_000  # with every function call inlined
MOST_FUNCTIONS = 1_000
MOST_OUTPUTS = 10_000  # of one node
LARGEST_ELEMENTS = 2**40  # of one tensor
MOST_ROUNDS = 100  # of inference and folding
MOST_FOLDED = 2_000  # nodes of one round
OF_SIZES = frozenset(
    (
        *("Add", "Cast", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Gather", "Mul", "Reshape"),
        *("Slice", "Squeeze", "Sub", "Unsqueeze", "Where"),
    )
)
WHOLE_NUMBERS = (6, 7, 9)  # ONNX types: int32, int64, bool
KEPT_ELEMENTS = 1_024  # inference reads small tensors: sizes and axes


def infer_shapes(path: Path, axes: Mapping[str, int]) -> bytes:
    """Infers all shapes in a child process; returns the serialized model without weights."""
    command = [sys.executable, "-m", __name__, str(path), json.dumps(dict(axes))]
    join = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        run = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": join, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{path}: shapes cannot be inferred in {LONGEST_S:.0f} s; simplify the graph (onnxsim)"
        ) from None
    if run.returncode == 0:
        return run.stdout
    if run.returncode == BadInput.exit_code and run.stderr:
        raise BadInput(run.stderr.decode(errors="replace").strip().split("\n")[-1])
    raise BadInput(
        f"{path}: shapes cannot be inferred in {MEMORY_BYTES // 2**20} MiB of memory; simplify the graph "
        "(onnxsim)"
    )


def _main(path: Path, axes: dict[str, int]) -> int:
    """Runs in the child process: writes the model with shapes to stdout; returns the exit status."""
    try:
        _limit_memory(path)
        import onnx
        import onnx.shape_inference

        model = _load_onnx(path, onnx)
        check_graph(path, model)
        set_open_axes(path, model, axes)
        drop_weights(model)
        with convert_exceptions(f"{path}: shapes cannot be inferred"):
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
            for _ in range(MOST_ROUNDS):
                if not fold_sizes(model):
                    break
                model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        sys.stdout.buffer.write(model.SerializeToString())
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except MemoryError:
        return 1
    return 0


def _limit_memory(path: Path) -> None:
    """Limits the address space of this process where the system supports it."""
    try:
        import resource

        size = path.stat().st_size if path.is_file() else 0
        limit = MEMORY_BYTES + 4 * min(size, LARGEST_FILE_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass


def _load_onnx(path: Path, onnx: Any) -> Any:
    """Loads an ONNX model; raises BadInput if it is too large or damaged."""
    from planner.files.regular_file import open_regular_file

    with convert_exceptions(f"{path}: no ONNX file, or not whole"):
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size >= LARGEST_FILE_BYTES:
                raise BadInput(f"{path}: larger than 2 GiB; save its weights as external data")
            data = file.read(size)
        return onnx.load_model_from_string(data)


def check_graph(path: Path, model: Any) -> None:
    """Raises BadInput for graphs that are cyclic or larger than any network."""
    nodes = sum(1 for _ in _all_nodes(model.graph.node, path))
    if nodes > MOST_NODES:
        raise BadInput(f"{path}: {nodes:,} nodes; at most {MOST_NODES:,} are read")
    if len(model.functions) > MOST_FUNCTIONS:
        raise BadInput(f"{path}: {len(model.functions):,} functions; at most {MOST_FUNCTIONS:,} are read")
    _check_calls(path, model)
    for tensor in model.graph.initializer:
        if any(size < 0 for size in tensor.dims):
            raise BadInput(
                f"{path}: the tensor {tensor.name[:60]!r} has a negative size, {list(tensor.dims)}"
            )
        if math.prod(tensor.dims) > LARGEST_ELEMENTS:
            raise BadInput(f"{path}: the tensor {tensor.name[:60]!r} has more than 2^40 values")
    _check_order(path, model.graph)


def _all_nodes(nodes: Any, path: Path) -> Iterator[Any]:
    """Yields all nodes, those of subgraphs included, and checks each."""
    for node in nodes:
        if len(node.output) > MOST_OUTPUTS or len(node.input) > MOST_OUTPUTS:
            raise BadInput(
                f"{path}: the node {node.name[:60]!r} has more than {MOST_OUTPUTS:,} inputs or outputs"
            )
        yield node
        for attribute in node.attribute:
            if attribute.name == "num_outputs" and attribute.i != len(node.output):
                raise BadInput(
                    f"{path}: {node.op_type[:40]} {node.name[:60]!r} has num_outputs = {attribute.i:,} and "
                    f"{len(node.output)} outputs"
                )
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _all_nodes(graph.node, path)


def _check_calls(path: Path, model: Any) -> None:
    """Raises BadInput if inlining every function call gives too many nodes.

    Nodes of a function: f[n] = sum over its nodes of 1 + f[callee].
    """
    functions = {(function.domain, function.name): function for function in model.functions}
    counts: dict[tuple[str, str], int] = {}
    entered: list[tuple[str, str]] = []

    def count_inlined(nodes: Any) -> int:
        """Counts the nodes after inlining every call; raises BadInput for recursion."""
        total = 0
        for node in _all_nodes(nodes, path):
            total += 1
            key = node.domain, node.op_type
            if key not in functions:
                continue
            if key in entered or len(entered) > 64:
                raise BadInput(
                    f"{path}: the function {node.op_type[:60]!r} calls itself, or calls nest too deeply"
                )
            if key not in counts:
                entered.append(key)
                counts[key] = count_inlined(functions[key].node)
                entered.pop()
            total += counts[key]
        return total

    if (called := count_inlined(model.graph.node)) > MOST_CALLED_NODES:
        raise BadInput(
            f"{path}: {called:,} nodes with every call of a function; at most {MOST_CALLED_NODES:,} are read"
        )


def _check_order(path: Path, graph: Any) -> None:
    """Raises BadInput if a node reads the output of a later node: the graph is cyclic or not sorted."""
    made: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name and made.setdefault(name, index) != index:
                raise BadInput(f"{path}: two nodes make {name[:60]!r}")
    for index, node in enumerate(graph.node):
        for name in node.input:
            if made.get(name, -1) >= index:
                raise BadInput(
                    f"{path}: the node {(node.name or node.op_type)[:60]!r} reads {name[:60]!r}, which is "
                    "made by itself or later; the graph has a cycle or is not in order"
                )


def drop_weights(model: Any) -> None:
    """Removes the values of large tensors, which do not affect shapes."""
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > KEPT_ELEMENTS:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)


def fold_sizes(model: Any) -> bool:
    """Folds computations on known sizes into constants; returns whether any was folded."""
    import numpy as np
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    graph, folded = model.graph, 0
    known: dict[str, Any] = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type in WHOLE_NUMBERS and math.prod(tensor.dims) <= KEPT_ELEMENTS
    }  # a few integers may be sizes or axes
    shapes: dict[str, list[int]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        axes = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(axis.dim_value > 0 for axis in axes):
            shapes[value.name] = [axis.dim_value for axis in axes]
    if all(name in shapes for node in graph.node for name in node.output if name):
        return False
    for index, node in enumerate(graph.node):
        given: dict[str, Any] = {name: known.get(name) for name in node.input}
        if node.op_type == "Shape" and not node.attribute and node.input[0] in shapes:
            result = np.array(shapes[node.input[0]], np.int64)
        elif node.op_type in OF_SIZES and all(value is not None for value in given.values()):
            if node.op_type == "ConstantOfShape" and math.prod(given[node.input[0]].tolist()) > KEPT_ELEMENTS:
                continue
            try:
                result = np.asarray(ReferenceEvaluator(node).run(None, given)[0])
            except MemoryError:
                raise
            except Exception:
                continue  # inference reports what is wrong with it
        else:
            continue
        if result.dtype.kind in "iub" and result.size <= KEPT_ELEMENTS and folded < MOST_FOLDED:
            name = node.output[0]
            known[name] = result
            if node.op_type != "Constant":
                constant = helper.make_node(
                    "Constant", [], [name], value=numpy_helper.from_array(result, name)
                )
                graph.node[index].CopyFrom(constant)
                folded += 1
    return folded > 0


def set_open_axes(path: Path, model: Any, axes: Mapping[str, int]) -> None:
    """Sets the sizes of open input axes; raises BadInput with the flags for missing ones."""
    kept = {tensor.name for tensor in model.graph.initializer}
    open_axes: dict[str, None] = {}
    for value in model.graph.input:
        if value.name in kept:
            continue
        for index, axis in enumerate(value.type.tensor_type.shape.dim):
            if axis.HasField("dim_value") and axis.dim_value > 0:
                continue
            name = axis.dim_param or f"{value.name}.{index}"
            if name in axes:
                axis.dim_value = axes[name]
            else:
                open_axes[name] = None
    if open_axes:
        flags = " ".join(f"--axis {name}=SIZE" for name in open_axes)
        raise BadInput(f"{path}: axes of its input have no size; give them with {flags[:200]}")


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), json.loads(sys.argv[2])))
