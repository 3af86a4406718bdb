"""Model families: each `models/families/NAME.toml` describes the networks of one or more `model_type`s.

A family extends its `base`, table by table. `[config]` lists keys of config.json with their defaults
("required", "optional" or an expression), `[aliases]` other names of them, which take precedence, and
`[values]` the expressions in which families differ. `[file]` and the other tables are those of a model file
(docs/models.md), in which a text that begins with "= " is an expression. A layer may have

- `if`: a condition; the layer is left out where it is false;
- `kind`: an expression for the kind, instead of a key with the kind's name;
- `use`: insert the layers of one of `[blocks]`; other keys are variables in them, `{name}` in texts;
- `block` with `repeat`: repeat the layers of a block, with `i` counting from 0. Equal repetitions in a row
  become one repeated block of the model file.

A new family is a new file, here or in the folder `families` of PLANNER_PATH.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from planner.errors import BadInput, escape_unprintable
from planner.files.regular_file import shipped_folder, user_folders
from planner.files.tomlfile import decode, read_toml
from planner.memoize import memoize
from planner.model.importers.expressions import ExpressionError, evaluate_text

LARGEST = 10_000_000
MOST_LAYERS = 2_000
LONGEST_PROSE = 500  # characters of a description or a note
MOST_NESTED = 30  # levels of references between values and blocks
MOST_EVALUATIONS = 500_000  # of expressions and blocks; the largest family of the catalog takes 2,000
ACTIVATIONS = {word: word for word in ("silu", "relu", "tanh", "sigmoid")} | {"swish": "silu"}
Item = dict[str, Any]
Locals = Mapping[str, Any]


class FamilyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of a family file and their types."""

    description: str = ""
    base: str | None = None
    inside: str | None = None
    model_types: list[str] = []
    config: dict[str, bool | int | float | str | list[Any] | dict[str, Any]] = {}
    aliases: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    file: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    blocks: dict[str, list[Item]] = {}
    refuse: dict[str, str] = {}
    notes: dict[str, str] = {}


TABLES = ("config", "aliases", "values", "file", "tensors", "defaults", "inputs", "blocks", "refuse", "notes")


@dataclass(frozen=True)
class Family:
    """A model family, merged with its bases."""

    name: str
    path: Path
    description: str
    inside: str | None  # key of config.json whose object holds all others
    tables: dict[str, dict[str, Any]] = field(hash=False)


def family_paths() -> dict[str, Path]:
    """Path of each model family's file by name; a user's file overrides the catalog's."""
    folders = [*(folder / "families" for folder in user_folders()), shipped_folder("models") / "families"]
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            paths.setdefault(path.stem, path)
    return paths


@memoize
def families_by_type(_folders: str) -> dict[str, str]:
    """Name of the model family for each `model_type`; cached per PLANNER_PATH."""
    by_type: dict[str, str] = {}
    for name, path in family_paths().items():
        if not name.startswith("_"):
            source = read_toml(path)
            types = decode(source, source.data.get("model_types", [name]), list[str], ["model_types"])
            by_type |= dict.fromkeys(types, name)
    return dict(sorted(by_type.items(), key=lambda entry: entry[0].lower()))


def load_family(name: str) -> Family:
    """Loads a model family by name, merged with the families that it extends."""
    paths = family_paths()
    descriptions: dict[str, FamilyFile] = {}
    current: str | None = name
    while current is not None:
        if current in descriptions or current not in paths:
            raise BadInput(f"{paths.get(name, name)}: base {current!r} is no other family")
        source = read_toml(paths[current])
        descriptions[current] = decode(source, source.data, FamilyFile)
        current = descriptions[current].base
    files = list(descriptions.values())
    tables = {
        table: {key: value for file in reversed(files) for key, value in getattr(file, table).items()}
        for table in TABLES
    }
    inside = next((file.inside for file in files if file.inside is not None), None)
    return Family(name, paths[name], to_one_line(files[0].description or name), inside, tables)


def to_one_line(text: str) -> str:
    """Joins a text to one line of printable characters."""
    return escape_unprintable(" ".join(text.split()))[:LONGEST_PROSE]


def is_table_list(value: Any) -> TypeGuard[list[Item]]:
    """Whether a value is a list of tables, such as a list of layers."""
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


class Description:
    """Model file values of one network: a model family applied to its config.json."""

    def __init__(self, family: Family, path: Path, values: dict[str, Any]) -> None:
        self.family, self.path = family, path
        inner = values.get(family.inside) if family.inside else values
        if not isinstance(inner, dict):
            raise self.error(f"the key {family.inside!r} is missing; a {family.name} network is in it")
        self.values: dict[str, Any] = inner
        self.notes: list[str] = []
        self.keys: dict[str, Any] = {}
        self.blocks: dict[str, list[Item]] = {}
        self.depth = self.evaluations = 0
        self.reads_index = False
        self.functions: dict[str, Callable[..., Any]] = {
            "act": self.activation_kind,
            "given": lambda name: self._find_key(name)[1] is not None,
            "len": len,
            "max": max,
            "min": min,
            "str": str,
        }

    def error(self, message: str) -> BadInput:
        """Builds an error that names the config.json."""
        return BadInput(f"{self.path}: {message}")

    def model_file_values(self) -> dict[str, Any]:
        """Values of a model file for this network."""
        tables = self.family.tables
        for condition, message in tables["refuse"].items():
            if message and self.evaluate_expression(condition, {}):
                raise self.error(to_one_line(self._fill_in(message, self._message_variables(message))))
        file = {key: self.evaluate(value, {}) for key, value in tables["file"].items() if key != "layers"}
        layers, length = tables["file"].get("layers"), file.get("sequence_length")
        if not is_table_list(layers):
            raise BadInput(f"{self.family.path}: file.layers: a list of layers, each a table, is missing")
        if not isinstance(length, int | None) or isinstance(length, bool):
            raise BadInput(f"{self.family.path}: file.sequence_length: {length!r:.40} is no whole number")
        file["layers"] = self.expand_layers(layers, {})
        for key in ("tensors", "defaults", "inputs"):
            if table := {name: self.evaluate(value, {}) for name, value in tables[key].items()}:
                file[key] = table
        file["blocks"] = {name: {"layers": layers} for name, layers in self.blocks.items()}
        for condition, message in tables["notes"].items():
            if self.evaluate_expression(condition, {}):
                self.notes.append(to_one_line(self._fill_in(message, self._message_variables(message))))
        return {key: value for key, value in file.items() if value is not None}

    def expand_layers(self, entries: list[Item], variables: Locals) -> list[Item]:
        """Expands a list of layers: evaluates conditions and expressions, and inserts blocks."""
        out: list[Item] = []
        for entry in entries:
            keys = dict(entry)
            if "if" in keys and not self.evaluate_expression(keys.pop("if"), variables):
                continue
            if "use" in keys:
                name = self.evaluate(keys.pop("use"), variables)
                inner = {**variables, **{key: self.evaluate(value, variables) for key, value in keys.items()}}
                with self._count_evaluation():
                    out += self.expand_layers(self._block_layers(name), inner)
            elif "block" in keys:
                out += self._expand_repeated_block(keys, variables)
            else:
                item = {key: self.evaluate(value, variables) for key, value in keys.items()}
                if "kind" in item:
                    kind = item.pop("kind")
                    if not isinstance(kind, str):
                        raise self.error(f"kind = {kind!r:.60}; it is the name of a kind of layer")
                    item = {kind: True, **item}
                out.append({key: value for key, value in item.items() if value not in (None, [])})
        return out

    def _expand_repeated_block(self, use: Item, variables: Locals) -> list[Item]:
        """Expands a repeated block into block uses, one for each run of equal repetitions."""
        given = {key: self.evaluate(value, variables) for key, value in use.items()}
        block, repeat, label = given.pop("block"), given.pop("repeat", None), given.pop("name", None)
        if not isinstance(label, str):
            raise self.error(f"{block}: name = {label!r:.60}; a repeated block needs a name")
        if not isinstance(repeat, int) or not 0 <= repeat <= MOST_LAYERS:
            raise self.error(f"{block}: repeat = {repeat!r:.60}; it is a whole number to {MOST_LAYERS:,}")
        entries, variants = self._block_layers(block), []
        for index in range(repeat):
            self.reads_index = False
            with self._count_evaluation():
                layers = self.expand_layers(entries, {**variables, **given, "i": index})
            variants.append(self._add_block(block, layers))
            if not self.reads_index:
                variants *= repeat
                break
        uses, first = [], 0
        for variant, run in groupby(variants):
            count = len(list(run))
            uses.append({"block": variant, "name": label, "first": first, "repeat": count})
            first += count
        return uses

    def _add_block(self, block: str, layers: list[Item]) -> str:
        """Adds a block with these layers unless there is an equal one; returns its name."""
        same = (name for name, known in self.blocks.items() if known == layers)
        name = next(same, None) or (block if block not in self.blocks else f"{block}_{len(self.blocks)}")
        self.blocks[name] = layers
        return name

    def _block_layers(self, name: str) -> list[Item]:
        """Layers of one of the family's blocks; raises BadInput if there is none of this name."""
        if not isinstance(name, str) or name not in self.family.tables["blocks"]:
            raise BadInput(f"{self.family.path}: there is no block {name!r}")
        layers: list[Item] = self.family.tables["blocks"][name]
        return layers

    def evaluate(self, nested: Any, variables: Locals) -> Any:
        """Evaluates all expressions inside a value, also in nested lists and tables."""
        if isinstance(nested, str) and nested.startswith("= "):
            return self.evaluate_expression(nested[2:], variables)
        if isinstance(nested, str):
            return self._fill_in(nested, variables)
        if isinstance(nested, list):
            return [value for entry in nested if (value := self.evaluate(entry, variables)) is not None]
        if isinstance(nested, dict):
            return {key: self.evaluate(entry, variables) for key, entry in nested.items()}
        return nested

    def evaluate_expression(self, text: str, variables: Locals) -> Any:
        """Evaluates one expression; errors name the family's file."""
        try:
            with self._count_evaluation():
                return evaluate_text(text, lambda name: self.look_up(name, variables), self.functions)
        except ExpressionError as error:
            raise self.error(f"{self.family.path.name}: {error}") from None

    def look_up(self, name: str, variables: Locals) -> Any:
        """Value of a name: a variable of the block in use, a derived value, or a key of config.json."""
        if name in variables:
            self.reads_index |= name == "i"
            return variables[name]
        tables = self.family.tables
        if name in tables["values"]:
            return self.evaluate_expression(tables["values"][name], variables)
        if name not in tables["config"]:
            raise ExpressionError(f"nothing is called {name!r}")
        if name not in self.keys:
            self.keys[name] = self._config_value(name)
        return self.keys[name]

    @contextmanager
    def _count_evaluation(self) -> Iterator[None]:
        """Context manager around one evaluation; raises BadInput for circular or too many evaluations."""
        self.depth += 1
        self.evaluations += 1
        if self.depth > MOST_NESTED:
            raise BadInput(f"{self.family.path}: values or blocks refer to one another in a circle")
        if self.evaluations > MOST_EVALUATIONS:
            raise BadInput(f"{self.family.path}: more than {MOST_EVALUATIONS:,} expressions to evaluate")
        yield
        self.depth -= 1

    def _message_variables(self, message: str) -> Locals:
        """Values of the names that stand in braces in a message, by name."""
        return {name: self.look_up(name, {}) for name in re.findall(r"\{(\w+)\}", message)}

    @staticmethod
    def _fill_in(text: str, variables: Locals) -> str:
        """Text with a block's variables filled in; `{i}` and unknown names such as `{layer}` stay."""
        known = variables.keys() - {"i"}
        return re.sub(
            r"\{(\w+)\}", lambda name: str(variables[name[1]]) if name[1] in known else name[0], text
        )

    def activation_kind(self, name: str) -> str:
        """Layer kind of an activation: relu, gelu, silu, sigmoid or tanh; unknown ones count as gelu."""
        known = name.lower()
        if "gelu" in known:
            return "gelu"
        if known in ACTIVATIONS:
            return ACTIVATIONS[known]
        note = f"the activation {name[:40]!r} is not known and counted as gelu"
        if note not in self.notes:
            self.notes.append(note)
        return "gelu"

    def _find_key(self, name: str) -> tuple[str, Any]:
        """Finds a key of config.json under any of its names; returns the name found and the value or None."""
        for key in (*self.family.tables["aliases"].get(name, ()), name):
            value: Any = self.values
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                return key, value
        return name, None

    def _config_value(self, name: str) -> Any:
        """Value of a key of config.json, or its default; raises BadInput if it is invalid."""
        (key, raw), default = self._find_key(name), self.family.tables["config"][name]
        if default == "required":
            if raw is None:
                names = " or ".join(map(repr, (*self.family.tables["aliases"].get(name, ())[:1], name)[::-1]))
                raise self.error(
                    f"the key {names} is missing; a {self.family.name} network cannot do without it"
                )
            default = 1
        elif default == "optional":
            return None if raw in (None, 0) else self._validate(key, raw, 1)
        elif isinstance(default, str):
            if raw is not None and default == "''":
                return self._validate(key, raw, "")
            default = self.evaluate_expression(default, {})
        return default if raw is None else self._validate(key, raw, default)

    def _validate(self, name: str, raw: Any, default: Any) -> Any:
        """Checks that a config.json value has the type of its default and is in range; raises BadInput."""
        most = MOST_LAYERS if name.endswith("layers") else LARGEST
        least = 0 if default == 0 else 1
        match default:
            case bool():
                fits, wanted = isinstance(raw, bool), "true or false"
            case int():
                fits = isinstance(raw, int) and not isinstance(raw, bool) and least <= raw <= most
                wanted = f"a whole number from {least} to {most:,}"
            case float():
                fits = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw <= 1
                wanted = "a number from 0 to 1"
            case str():
                fits, wanted = isinstance(raw, str), "a text"
            case list():
                plain = (str, int, bool)
                fits = isinstance(raw, list) and all(isinstance(entry, plain) for entry in raw)
                wanted = "a list of texts or numbers"
            case _:
                fits, wanted = isinstance(raw, dict), "an object"
        if not fits:
            text = repr(raw)
            raise self.error(f"{name}: {text if len(text) <= 40 else text[:37] + '...'}; it is {wanted}")
        return raw
