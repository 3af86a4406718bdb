"""Expands a model file to a flat list of layers with names and inputs.

Blocks and branches are unrolled in written order, which is the order of creation. Types define what a file
may hold: msgspec checks them and names the wrong key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

from msgspec import Meta, Struct, defstruct

from planner.errors import BadInput
from planner.files.tomlfile import Key, TomlSource, convert, decode
from planner.memoize import memoize
from planner.model.layers import FILE_KINDS, modifier_kinds
from planner.model.layers.base import After, Join, Name, Size, Weighted, inputs_key

Count = Annotated[int, Meta(ge=1, le=10_000)]
Start = Annotated[int, Meta(ge=0, le=10_000)]
Large = Annotated[int, Meta(ge=1, le=10**18)]
Item = dict[str, Any]  # an entry of a list of layers: a layer, the use of a block, or branches


class Branches(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lists of layers that read the same layer and are joined; an empty list passes it on unchanged."""

    branches: Annotated[list[list[Item]], Meta(min_length=1)]
    join: Join
    name: Name | None = None
    repeat: Count = 1  # of the whole list of branches
    unit: Name | None = None
    then: list[After] = []


class BlockDefinition(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block: layers written once, where `"$depth"` stands for a parameter of its use."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    parameters: list[Name] = []


class BlockUse(Struct, frozen=True, kw_only=True):
    """A use of a block; other keys are its parameters. `{i}` in the name counts repetitions from `first`."""

    block: Name
    name: Name | None = None
    repeat: Count = 1
    first: Start = 1


# Default names of layers; `{n}` counts layers of the kind from 0.
Names: Any = defstruct(
    "Names", [(kind, Name, f"{kind}{{n}}") for kind in FILE_KINDS], frozen=True, forbid_unknown_fields=True
)
# Names of parameter tensors: `{layer}` is the layer (for what follows by `then`, the layer it follows), `{n}`
# counts the kind from 0, `{e}` the experts. Batch norm has one tensor of channels for each name. Of a mixture
# of experts: the router, then up (gate and up where it is gated) and down of an expert.
Tensors: Any = defstruct(
    "Tensors",
    [(key, *kept) for kind in FILE_KINDS.values() for key, kept in kind.tensor_names.items()]
    + [(key, Name, "{layer}/weights") for key, kind in FILE_KINDS.items() if issubclass(kind, Weighted)],
    frozen=True,
    forbid_unknown_fields=True,
)


class File(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a model file."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    input: Annotated[list[Size], Meta(min_length=1, max_length=3)] | None = None  # or a sequence
    sequence_length: Size | None = None  # tokens, where samples are text
    target_length: Size | None = None  # tokens of a translation, the layer `targets`
    inputs: dict[Name, Annotated[list[Size], Meta(min_length=1, max_length=3)]] = {}  # further ones, by name
    base: Name | None = None
    scope: str = ""
    separator: Literal["/", "."] = "/"  # between the name of a block's use and a name inside it
    layout: Literal["tensorflow", "torch"] = "tensorflow"  # of weights: outputs last or first
    description: str = ""
    source: str = ""
    default_batch: Count = 32
    default_precision: Literal["fp32", "tf32", "fp16", "bf16"] = "fp32"
    samples_per_epoch: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    tokens_per_epoch: Large | None = None
    defaults: dict[str, Item] = {}
    names: Names = Names()
    tensors: Tensors = Tensors()
    blocks: dict[str, BlockDefinition] = {}


T = TypeVar("T")
LARGEST_NETWORK = 20_000  # layers: ten times the deepest in use
MOST_INPUTS = 1_000_000  # of all layers together


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A place in the file: its path, and the block uses that led there."""

    at: tuple[Key, ...]
    blocks: tuple[str, ...] = ()

    def __truediv__(self, key: Key) -> FilePosition:
        """Position of a key or index inside this one."""
        return FilePosition((*self.at, key), self.blocks)

    def error(self, source: TomlSource, message: str) -> BadInput:
        """Builds an error at this place of the file."""
        used = f" (in block {' > '.join(self.blocks)})" if self.blocks else ""
        return source.error(message + used, self.at)


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """A layer with its name and inputs; `owner`: the layer that it follows by `then`, else itself."""

    kind: str
    spec: Any
    name: str
    owner: str
    inputs: tuple[str, ...]
    position: FilePosition
    block: str | None = None  # the repeated unit that the layer belongs to


@dataclass(frozen=True, slots=True)
class _Context:
    """Position, name scope, entry layer and block of a list of layers."""

    position: FilePosition
    scope: str  # prefix of its names
    entry: str  # the input of the list
    block: str | None = None


def expand_layers(source: TomlSource, file: File) -> list[PlacedLayer]:
    """Expands a model file into its layers in order of creation."""
    for kind, defaults in file.defaults.items():
        position = FilePosition(("defaults", kind))
        smallest = FILE_KINDS[kind].smallest if kind in FILE_KINDS else None
        if smallest is None:
            allowed = ", ".join(name for name, known in FILE_KINDS.items() if known.smallest is not None)
            raise position.error(source, f"only {allowed} have defaults")
        decode(source, {**smallest, **defaults}, FILE_KINDS[kind], position.at)
    expansion = _Expansion(source, file)
    scope = f"{file.scope}{file.separator}" if file.scope else ""
    expansion.unroll_items(file.layers, _Context(FilePosition(("layers",)), scope, "input"))
    return expansion.placed


@memoize
def _parse_following_layer(kind: str) -> Any:
    """Parses an entry of `then`, which names the kind of a layer and nothing else."""
    return convert({kind: True}, FILE_KINDS[kind])


class _Expansion:
    """State of an expansion: the layers placed so far, and the names that inputs may refer to."""

    def __init__(self, source: TomlSource, file: File) -> None:
        self.source, self.file = source, file
        self.placed: list[PlacedLayer] = []
        self.ends = {"input": "input"}  # for each name the last layer it stands for: of `then`, of a block
        if file.target_length:
            self.ends["targets"] = "targets"
        self.ends |= {name: name for name in file.inputs}
        self.counts: dict[str, int] = {}
        self.known: dict[int, tuple[Item, Any]] = {}  # parsed items, by identity
        self.uses: dict[str, int] = {}  # counts of unnamed uses, by block
        self.inputs = 0

    def unroll_items(self, items: list[Item], context: _Context) -> str:
        """Unrolls consecutive layers, blocks and branches; returns the name of the last layer."""
        previous = context.entry
        for index, item in enumerate(items):
            inner = _Context(context.position / index, context.scope, context.entry, context.block)
            if "block" in item:
                previous = self._unroll_block(item, previous, inner)
            elif "branches" in item:
                previous = self._unroll_branches(item, previous, inner)
            else:
                previous = self._place_item(item, previous, inner)
        return previous

    def _place_item(self, item: Item, previous: str, context: _Context) -> str:
        """Parses one layer of a list and places it; returns the name of its last layer."""
        kind, spec = self._parse_item(item, lambda: self._parse_layer(item, context))
        if key := inputs_key(FILE_KINDS[kind]):
            inputs = tuple(self._resolve_name(name, context) for name in item[key])
        else:
            inputs = (previous if spec.from_ is None else self._resolve_name(spec.from_, context),)
        return self._place_layer(kind, spec, inputs, context)

    def _parse_item(self, item: Item, make: Callable[[], T]) -> T:
        """Parses an item by `make`; repetitions of its block reuse the result."""
        known = self.known.get(id(item))
        if known is None:
            known = self.known[id(item)] = (item, make())
        return cast(T, known[1])

    def _parse_layer(self, item: Item, context: _Context) -> tuple[str, Any]:
        """Parses a layer; returns its kind and its keys."""
        kinds = [kind for kind in FILE_KINDS if kind in item]
        if len(kinds) > 1:
            kinds = [kind for kind in kinds if kind not in modifier_kinds()] or kinds
        if len(kinds) != 1:
            allowed = [*FILE_KINDS, "branches", "block"]
            hint = "" if kinds else next(filter(None, (_nearest_hint(key, allowed) for key in item)), "")
            raise context.position.error(
                self.source,
                f"{{ {', '.join(item)} }}: a layer has exactly one of the keys {', '.join(allowed)}{hint}",
            )
        kind = kinds[0]
        values = {**self.file.defaults[kind], **item} if kind in self.file.defaults else item
        spec: Any = decode(self.source, values, FILE_KINDS[kind], context.position.at)
        if item[kind] is False:
            raise context.position.error(self.source, f"{kind} = false means nothing; leave the layer out")
        return kind, spec

    def _unroll_branches(self, item: Item, previous: str, context: _Context) -> str:
        """Unrolls branches and places the layer that joins them; returns its name."""
        spec, joined = self._parse_item(item, lambda: self._parse_branches(item, context))
        ends = []
        for index, branch in enumerate(spec.branches * spec.repeat):
            position = context.position / "branches" / (index % len(spec.branches))
            ends.append(self.unroll_items(branch, _Context(position, context.scope, previous, context.block)))
        return self._place_layer(spec.join, joined, tuple(ends), context)

    def _parse_branches(self, item: Item, context: _Context) -> tuple[Branches, Any]:
        """Parses branches; returns them and the keys of the layer that joins them."""
        spec = decode(self.source, item, Branches, context.position.at)
        join: Any = FILE_KINDS[spec.join]
        return spec, join(**{spec.join: []}, name=spec.name, unit=spec.unit, then=spec.then)

    def _unroll_block(self, item: Item, previous: str, context: _Context) -> str:
        """Unrolls each repetition of a block; returns the name of the last layer."""
        use, layers = self._parse_item(item, lambda: self._parse_block_use(item, context))
        name = use.block
        position = FilePosition(("blocks", name, "layers"), (*context.position.blocks, name))
        for index in range(use.first, use.first + use.repeat):
            label = context.scope + use.name.replace("{i}", str(index)) if use.name else None
            scope = f"{label}{self.file.separator}" if label else context.scope
            block = context.block or label
            if block is None:  # an unnamed use is counted, as `stage0`
                self.uses[name] = self.uses.get(name, -1) + 1
                block = f"{name}{self.uses[name]}"
            previous = self.unroll_items(layers, _Context(position, scope, previous, block))
            if label:
                self.ends[label] = previous
        return previous

    def _parse_block_use(self, item: Item, context: _Context) -> tuple[BlockUse, list[Item]]:
        """Parses the use of a block; returns it and the block's layers with parameters filled in."""
        own = BlockUse.__struct_fields__
        use = decode(
            self.source, {key: item[key] for key in own if key in item}, BlockUse, context.position.at
        )
        block, name = self.file.blocks.get(use.block), use.block
        if block is None:
            near = difflib.get_close_matches(name, self.file.blocks, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(self.file.blocks) or "none"
            raise context.position.error(
                self.source, f"unknown block {name!r}; {hint}blocks of this file: {known}"
            )
        given = {key: value for key, value in item.items() if key not in own}
        wrong = [f"unknown parameter {key!r}" for key in given if key not in block.parameters]
        wrong += [f"parameter {key!r} is missing" for key in block.parameters if key not in given]
        if wrong:
            wants = ", ".join(block.parameters) or "none"
            raise context.position.error(self.source, f"block {name!r}: {'; '.join(wrong)}; it has: {wants}")
        if name in context.position.blocks:
            circle = " -> ".join([*context.position.blocks, name])
            raise context.position.error(self.source, f"blocks use one another in a circle: {circle}")
        position = FilePosition(("blocks", name, "layers"), (*context.position.blocks, name))
        return use, [
            self._substitute(item, given, position / index) for index, item in enumerate(block.layers)
        ]

    def _substitute(self, value: Any, arguments: dict[str, Any], position: FilePosition) -> Any:
        """Replaces each `"$parameter"` inside a value by its given value."""
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in arguments:
                known = ", ".join(arguments) or "none"
                raise position.error(self.source, f"{value!r} is no parameter of this block; it has: {known}")
            return arguments[value[1:]]
        if isinstance(value, dict):
            return {key: self._substitute(inner, arguments, position) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._substitute(inner, arguments, position) for inner in value]
        return value

    def _place_layer(self, kind: str, spec: Any, inputs: tuple[str, ...], context: _Context) -> str:
        """Places a layer and those that it lists in `then`; returns the name of the last."""
        if spec.name is not None:
            name: str = context.scope + spec.name
        else:
            count = self.counts.get(kind, 0)
            self.counts[kind] = count + 1
            template: str = getattr(self.file.names, kind)
            name = template.replace("{n}", str(count))
        if name in self.ends:
            raise context.position.error(self.source, f"the name {name!r} is taken; names must be unique")
        if len(self.placed) + len(spec.then) >= LARGEST_NETWORK:
            raise context.position.error(self.source, f"more than {LARGEST_NETWORK:,} layers")
        self.inputs += len(inputs)
        if self.inputs > MOST_INPUTS:
            raise context.position.error(self.source, f"layers read more than {MOST_INPUTS:,} inputs in all")
        block = context.block or spec.unit
        self.placed.append(PlacedLayer(kind, spec, name, name, inputs, context.position, block))
        last = name
        for after in spec.then:
            part = f"{name}/{after}"
            self.placed.append(
                PlacedLayer(
                    after, _parse_following_layer(after), part, name, (last,), context.position, block
                )
            )
            last = self.ends[part] = part
        self.ends[name] = last
        return last

    def _resolve_name(self, name: str, context: _Context) -> str:
        """Full name of the layer that an input refers to, searched from the innermost scope outwards."""
        if name == "input":
            return context.entry
        separator = self.file.separator
        parts = context.scope.split(separator)
        for depth in range(len(parts) - 1, -1, -1):
            full = separator.join([*parts[:depth], name])
            if full in self.ends:
                return self.ends[full]
        hint = self._forward_reference_hint(name, context.position) or _nearest_hint(
            context.scope + name, self.ends
        )
        raise context.position.error(self.source, f"reads {name!r}, which is no earlier layer{hint}")

    def _forward_reference_hint(self, name: str, position: FilePosition) -> str:
        """Explains that an unknown input is defined later or closes a cycle; else empty string."""
        *path, index = position.at
        blocks = {name: {"layers": block.layers} for name, block in self.file.blocks.items()}
        items: Any = {"layers": self.file.layers, "blocks": blocks}
        for key in path:
            items = items[key]
        reads = {
            item["name"]: _input_names(item, items[i - 1] if i else {})
            for i, item in enumerate(items)
            if isinstance(item.get("name"), str)
        }
        if name not in reads:
            return ""
        import networkx as nx

        own = items[index].get("name")
        graph = nx.DiGraph((reader, source) for reader, sources in reads.items() for source in sources)
        if {own, name} <= graph.nodes and nx.has_path(graph, name, own):
            return f": a circle, {' reads '.join([own, *nx.shortest_path(graph, name, own)])}"
        return ": it comes later; list layers in the order in which they are computed"


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    """Clause that suggests the nearest of the known names; empty string if none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _input_names(item: Item, previous: Item) -> Sequence[str]:
    """Names of the inputs that an item lists, or else of the item before it."""
    keys = ((key, name) for name, kind in FILE_KINDS.items() if (key := inputs_key(kind)))
    listed = next((item.get(key) for key, name in keys if item.get(name)), None)
    names = listed or item.get("from") or previous.get("name") or ()
    return [names] if isinstance(names, str) else [str(name) for name in names]
