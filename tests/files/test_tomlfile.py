"""Lines of keys in real and contrived files, and messages that name what is allowed."""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from planner.errors import BadInput
from planner.files.tomlfile import decode, line_number, read_toml

CHECKOUT = Path(__file__).parents[2]
TEXT = """\
a = 1
layers = [
  { conv = 64, kernel = 3 },  # [ {
  { branches = [
      [ { conv = 1 } ],
      [ { conv = 2, name = "x[,}" },
        { conv = 3, kernel = [1, 7] } ],
  ], join = "add" },
  { fc = 3 },
]
[blocks.b]
layers = [
  { conv = 1 },
  { conv = 2 },
]
[[m]]
x = 1
[[m]]
y = 2
"""


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (["a"], 1),
        (["layers", 0, "kernel"], 3),
        (["layers", 1, "branches", 1, 1, "kernel"], 7),
        (["layers", 1, "join"], 8),
        (["layers", 2], 9),
        (["blocks", "b", "layers", 1, "conv"], 14),
        (["blocks", "b", "absent"], 11),
        (["m", 1, "y"], 19),
        (["absent"], None),
    ],
)
def test_line_number(at, line):
    assert line_number(TEXT, at) == line


@pytest.mark.parametrize("path", sorted((CHECKOUT / "models").glob("*.toml")), ids=lambda path: path.stem)
def test_line_number_every_layer_of_the_catalog(path):
    source = read_toml(path)
    lines = source.text.splitlines()
    if "config" in source.data:  # a network of a family is described by settings instead of layers
        for key, value in source.data["config"].items():
            line = lines[line_number(source.text, ["config", key]) - 1]
            assert tomllib.loads(line) == {key: value}
        return
    lists = {("layers",): source.data["layers"]}
    for name, block in source.data.get("blocks", {}).items():
        lists["blocks", name, "layers"] = block["layers"]
    for at, items in lists.items():
        for index, item in enumerate(items):
            key = next(iter(item))
            line = lines[line_number(source.text, [*at, index, key]) - 1]
            assert f"{key} = " in line
            if not isinstance(item[key], list | bool):
                assert str(item[key]) in line.replace("_", "") or str(item[key]) in line


class Part(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    kind: Literal["small", "large"] = "small"


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[Part]
    named: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "parts = [{ size = 1 }, { sise = 1 }]",
            ":1: parts[1].sise: unknown key; did you mean 'size'? allowed: size, kind",
        ),
        ("parts = []\n[named.x]\nsize = 'a'", ":3: named.x.size: expected int, got str"),
        ("parts = []\n[named.x]\nkind = 'small'", ":2: named.x: the key 'size' is missing"),
        (
            "parts = [{ size = 1, kind = 'huge' }]",
            ":1: parts[0].kind: 'huge' is not known; allowed: small, large",
        ),
    ],
)
def test_messages(tmp_path, text, said):
    path = tmp_path / "f.toml"
    path.write_text(text)
    source = read_toml(path)
    with pytest.raises(BadInput) as error:
        decode(source, source.data, Whole)
    assert str(error.value) == f"{path}{said}"
