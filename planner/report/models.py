"""Tables and page of models: the list, and one model with its layers and largest tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import escape_unprintable
from planner.model import Layer, Model
from planner.model.layers import is_input, workloads
from planner.note import Note, Topic
from planner.report.page import Figure, Page, Table, columns_of, drawn_picture, safe_text
from planner.units import MIB, format_bytes, rate, text_bar

if TYPE_CHECKING:
    from planner.model.importers import ImportedModel

LARGEST = 10  # tensors that are listed one by one
BAR = 20  # characters
SUMMED = ("tensors", "parameters", "bytes", "macs")  # of the layers that a row stands for


def model_summary(model: Model) -> dict[str, Any]:
    """Row of the models table: counts of layers, tensors, parameters, bytes and multiply-adds."""
    return {
        "model": model.name,
        "layers": len(layer_rows(model)),  # as people count them: with its bias and activation one
        "ops": len(model.layers) - 1,  # biases, norms and activations one by one; the input is none
        "tensors": len(model.tensors),
        "parameters": model.parameters,
        "bytes": model.bytes,
        "macs": model.macs,
        "activation_elements": sum(layer.output_elements for layer in model.layers[1:]),
        "input_shape": list(model.layers[0].output_shape),
        "default_batch": model.default_batch,
        "samples_per_epoch": model.samples_per_epoch,
        "description": model.description,
        "source": model.source,
    }


def models_table(models: Iterable[Model], unread: Iterable[str] = ()) -> Table:
    """Table with one row per model; its notes list files that could not be read."""
    return Table(
        [model_summary(model) for model in models],
        columns_of("models", show={"macs": lambda macs: rate(macs / 1e9)}),
        notes=[
            "GMACs: billions of multiply-adds in the forward pass of one sample.",
            "`planner models NAME` shows layers and largest tensors. docs/models.md explains model files.",
            *(f"Left out: {error}" for error in unread),
        ],
    )


def model_tables(model: Model, *, folded: bool = False) -> list[Table]:
    """Tables of one model's layers and largest tensors; with `folded`, equal blocks appear once."""
    about = model_summary(model)
    words = [
        f"{model.name}: {model.description}" if model.description else model.name,
        f"{about['layers']:,} layers, {about['tensors']:,} tensors, {model.parameters:,} parameters,"
        f" {format_bytes(model.bytes)}; {rate(model.macs / 1e9)} GMACs in the forward pass of one sample of "
        f"{_format_shape(model.layers[0].output_shape)}",
    ]
    kinds: dict[str, int] = {}
    for layer in model.layers:
        if layer.bytes:
            kinds[layer.kind] = kinds.get(layer.kind, 0) + layer.bytes
    ranked = sorted(kinds.items(), key=lambda kind: -kind[1])
    shares = ", ".join(f"{kind} {size / model.bytes:.1%}" for kind, size in ranked)
    scope = _common_scope(model)
    notes = {
        f"One epoch is {model.samples_per_epoch or 0:,} samples.": bool(model.samples_per_epoch),
        f"Bytes by kind of layer: {shares}.": bool(ranked),
        f"Source: {model.source}.": bool(model.source),
        f"Names are shown without the prefix {scope}.": bool(scope),
    }

    def without_scope(name: str) -> str:
        """Name of a tensor without the scope that all names share."""
        return name.removeprefix(scope)

    layers = Table(
        folded_rows(model) if folded else layer_rows(model),
        columns_of(
            "layers",
            show={
                "layer": without_scope,
                "output_shape": _format_shape,
                "bytes": _format_mib,
                "macs": lambda macs: f"{macs / 1e6:,.2f}" if macs else "-",
            },
        ),
        title="\n".join(words),
    )
    largest = Table(
        largest_tensors(model),
        columns_of("tensors", show={"tensor": without_scope, "shape": _format_shape, "bytes": _format_mib}),
        title="Largest tensors",
        notes=[note for note, holds in notes.items() if holds],
    )
    return [layers, largest] if model.tensors else [layers]


def model_data(model: Model) -> dict[str, Any]:
    """One model with all layers and tensors as plain values, for JSON."""
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "inputs": layer.inputs,
            "output_shape": layer.output_shape,
            "kernel": layer.kernel,
            "stride": layer.stride,
            "macs": layer.macs,
            "tensors": [{"name": t.name, "shape": t.shape, "bytes": t.bytes} for t in layer.tensors],
        }
        for layer in model.layers
    ]
    return {**model_summary(model), "layer_list": layers}


def import_summary_lines(imported: ImportedModel, file: Path) -> list[str]:
    """Lines on an imported model: parameters, layers by kind, FLOPs, and what was not recognized."""
    model = imported.model
    asked = workloads(model)
    flops = [sum(getattr(layer, way).nominal_flops for layer in asked) for way in ("forward", "backward")]
    kinds: dict[str, int] = {}
    for layer in model.layers:
        if not is_input(layer):
            kinds[layer.kind] = kinds.get(layer.kind, 0) + 1
    listed = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))
    )
    of = (
        f"{model.sequence_length:,} tokens"
        if model.sequence_length
        else _format_shape(model.layers[0].output_shape)
    )
    lines = [
        f"{file}: {model.name}, {model.parameters:,} parameters in {len(model.tensors):,} tensors",
        f"  {sum(kinds.values()):,} layers ({listed})"
        + (f" in {len(model.blocks):,} blocks" if model.blocks else ""),
        f"  {flops[0] / 1e9:,.3f} GFLOPs forward and {flops[1] / 1e9:,.3f} backward for one sample of {of}",
    ]
    return [escape_unprintable(line) for line in (*lines, *(f"  {note}" for note in imported.notes))]


def layer_rows(model: Model) -> list[dict[str, Any]]:
    """Rows of layers; biases, norms and activations count with the layer before them."""
    rows: dict[str, dict[str, Any]] = {}
    stands_in: dict[str, str] = {}
    for layer in model.layers[1:]:
        if layer.follows is not None:
            row = rows[layer.follows]
            row["what"] += f", {layer.kind.removeprefix('batch_')}"
        else:
            row = rows[layer.name] = {
                "layer": layer.name,
                "what": _layer_kind_words(layer),
                "reads": [stands_in.get(name, name) for name in layer.inputs],
                **dict.fromkeys(SUMMED, 0),
            }
        stands_in[layer.name] = row["layer"]
        row["output_shape"] = layer.output_shape
        row["tensors"] += len(layer.tensors)
        row["parameters"] += sum(tensor.elements for tensor in layer.tensors)
        row["bytes"] += layer.bytes
        row["macs"] += layer.macs
    return list(rows.values())


def folded_rows(model: Model) -> list[dict[str, Any]]:
    """Rows of layers, with one row for all repetitions of a block."""
    rows = layer_rows(model)
    block = {layer.name: layer.block for layer in model.layers}
    alike = {
        repeated.name: tuple((layer.kind, layer.output_shape, layer.bytes) for layer in repeated.layers)
        for repeated in model.blocks
    }
    out: list[dict[str, Any]] = []
    shown = None  # the block whose layers are listed
    for name, group in groupby(rows, key=lambda row: block[row["layer"]]):
        part = list(group)
        if name is None or shown is None or alike[name] != alike[shown]:
            out += part
            shown = name
            continue
        if out[-1].get("of") != shown:
            out.append({"layer": f"from {name}", "what": "", "reads": [], "of": shown, "blocks": 0})
            out[-1] |= dict.fromkeys(SUMMED, 0)
        line = out[-1]
        line["blocks"] += 1
        line["what"] = f"{line['blocks']:,} more like {shown}"
        line["output_shape"] = part[-1]["output_shape"]
        for key in SUMMED:
            line[key] += sum(row[key] for row in part)
    return out


def largest_tensors(model: Model) -> list[dict[str, Any]]:
    """Rows of the largest tensors and their shares of all bytes; one row for the rest."""
    ranked = sorted(model.tensors, key=lambda tensor: -tensor.bytes)
    rows: list[dict[str, Any]] = [
        {"tensor": tensor.name, "shape": tensor.shape, "bytes": tensor.bytes} for tensor in ranked[:LARGEST]
    ]
    if rest := ranked[LARGEST:]:
        rows.append({"tensor": f"the other {len(rest):,}", "bytes": sum(tensor.bytes for tensor in rest)})
    running = 0
    for row in rows:
        running += row["bytes"]
        row["share"] = row["bytes"] / model.bytes
        row["cumulative_share"] = running / model.bytes
        row["bar"] = text_bar(row["share"], BAR)
    return rows


def _common_scope(model: Model) -> str:
    """Scope that starts every tensor's name, such as `model/`; empty string if there is none."""
    scopes = {tensor.name.partition("/")[0] for tensor in model.tensors}
    nested = all(tensor.name.count("/") > 1 for tensor in model.tensors)
    return f"{scopes.pop()}/" if len(scopes) == 1 and nested and len(model.tensors) > 1 else ""


def _layer_kind_words(layer: Layer) -> str:
    """Kind of a layer with its kernel size and stride, as text."""
    if layer.kernel is None:
        return layer.kind
    stride = layer.stride or (1, 1)
    step = (
        "" if stride == (1, 1) else f"/{stride[0]}" if stride[0] == stride[1] else f"/{_format_shape(stride)}"
    )
    return f"{layer.kind} {_format_shape(layer.kernel)}{step}"


def _format_mib(value: int) -> str:
    """Formats bytes as a number of MiB; `-` for none."""
    return "-" if not value else f"{value / MIB:,.2f}" if value >= MIB / 100 else "<0.01"


def _format_shape(shape: Iterable[int]) -> str:
    """Formats a shape: `64x3x7x7`."""
    return "x".join(map(str, shape))


def model_page(model: Model) -> Page:
    """Page of a model: its bytes, multiply-adds and activations by layer."""
    from planner.report.profile import ranked_bars_chart

    rows, tables = layer_rows(model), model_tables(model)
    names = [row["layer"] for row in rows]
    words = [f"<b>{safe_text(row['layer'])}</b><br>{safe_text(row['what'])}" for row in rows]
    others = [replace(table, columns=[c for c in table.columns if c.key != "bar"]) for table in tables[1:]]
    pictures = [
        ranked_bars_chart(key, title, unit, list(zip(names, words, map(size, rows), strict=True)), colour)
        for key, title, unit, size, colour in (
            ("bytes", "Parameters, layer by layer", "MiB", lambda r: r["bytes"] / MIB, "@c1"),
            ("macs", "Multiply-adds forward, layer by layer", "MMACs", lambda r: r["macs"] / 1e6, "@c2"),
            (
                "outputs",
                "Outputs of one sample, layer by layer",
                "MiB",
                lambda r: 4 * math.prod(r["output_shape"]) / MIB,
                "@c3",
            ),
        )
    ]
    heaviest = max(rows, key=lambda row: row["bytes"])
    slowest = max(rows, key=lambda row: row["macs"])
    answer = f"{model.name} has {model.parameters:,} parameters, {format_bytes(model.bytes)}"
    if model.bytes and model.macs:
        answer += (
            f"; {heaviest['bytes'] / model.bytes:.0%} of them in {heaviest['layer']}, and "
            f"{slowest['macs'] / model.macs:.0%} of the {model.macs / 1e9:,.3g} GMACs in {slowest['layer']}"
        )
    return Page(
        f"planner models: {model.name}",
        headline=answer + ".",
        figures=[
            Figure("layers", f"{len(rows):,}"),
            Figure("tensors", f"{len(model.tensors):,}"),
            Figure("parameters", f"{model.parameters:,}"),
            Figure("size", format_bytes(model.bytes)),
            Figure("forward, one sample", f"{model.macs / 1e9:,.3g} GMACs"),
        ],
        facts=[[model.description]] if model.description else [],
        pictures=lambda: list(map(drawn_picture, pictures)),
        tables=[*others, replace(tables[0], title="Layers")],
        assumptions=[Note(Topic.SOURCE, model.source)] if model.source else [],
    )
