"""What is wrong in a file is one line: file, line, key, what is allowed. Never another exception."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.netlist import read_model

HEAD = "input = [8, 8, 3]\n"
MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("input = [8, 8, 3]\nlayers = [\n  { fc = 1 },\n  { fc = }\n]", 4, "not valid TOML"),
        ("input = [8\n", 2, "not valid TOML"),
        (HEAD, None, "'layers' is missing"),
        ("layers = [{ fc = 1 }]", None, "'input' is missing"),
        (HEAD + "layers = []", 2, "length >= 1"),
        (HEAD + "layers = 3", 2, "expected array, got int"),
        (HEAD + "colour = 1\nlayers = [{ fc = 1 }]", 2, "allowed: layers, input"),
        ("input = [8, 8]\nlayers = [{ fc = 1 }]", 1, "height, width, channels"),
        ("input = [8, 8, -3]\nlayers = [{ fc = 1 }]", 1, "input[2]: expected int >= 1"),
        ("input = [8, 8, 3e9]\nlayers = [{ fc = 1 }]", 1, "expected int"),
        (HEAD + "default_batch = 0\nlayers = [{ fc = 1 }]", 2, "default_batch: expected int >= 1"),
        (HEAD + "layers = [\n  { relu = true },\n  { conv = 4, kernl = 3 },\n]", 4, "did you mean 'kernel'?"),
        (HEAD + "layers = [{ convv = 4 }]", 2, "did you mean 'conv'?"),
        (HEAD + "layers = [{ conv = 4, fc = 3 }]", 2, "exactly one of the keys conv,"),
        (HEAD + "layers = [{}]", 2, "exactly one of the keys"),
        (HEAD + "layers = [{ conv = 0 }]", 2, "expected int >= 1"),
        (HEAD + "layers = [{ conv = 4.5 }]", 2, "expected int"),
        (HEAD + "layers = [{ conv = 99_999_999_999 }]", 2, "layers[0].conv: expected int <="),
        (HEAD + "layers = [{ conv = 4, kernel = [3] }]", 2, "length >= 2"),
        (HEAD + 'layers = [{ conv = 4, padding = "some" }]', 2, "allowed: same, valid"),
        (HEAD + 'layers = [{ conv = 4, then = ["relu", "mish"] }]', 2, "'mish' is not known; allowed: bias"),
        (HEAD + "layers = [{ relu = false }]", 2, "relu = false"),
        (
            HEAD + 'layers = [{ conv = 9, kernel = 9, padding = "valid" }]',
            2,
            "9x9 does not fit into its input of 8x8x3",
        ),
        (HEAD + "layers = [{ conv = 4, groups = 2 }]", 2, "groups = 2 must divide both 3"),
        (HEAD + "layers = [{ fc = 4 }, { conv = 4 }]", 2, "but its input is 4"),
        (HEAD + "layers = [{ fc = 4 }, { global_pool = true }]", 2, "but its input is 4"),
        (
            HEAD + 'layers = [{ conv = 4, name = "a" },\n{ conv = 5, name = "b" },\n{ add = ["a", "b"] }]',
            4,
            "8x8x4, 8x8x5",
        ),
        (
            HEAD + 'layers = [{ conv = 4, name = "a" },\n{ max_pool = 2 },\n{ concat = ["a", "max_pool0"] }]',
            4,
            "4x4x4",
        ),
        (HEAD + 'layers = [{ conv = 4, from = "nowhere" }]', 2, "reads 'nowhere', which is no earlier layer"),
        (
            HEAD + 'layers = [{ conv = 4, name = "stem" },\n{ conv = 4, from = "stemm" }]',
            3,
            "did you mean 'stem'?",
        ),
        (
            HEAD + 'layers = [{ conv = 4, name = "a", from = "b" },\n{ conv = 4, name = "b" }]',
            2,
            "a circle, a reads b reads a",
        ),
        (
            HEAD + 'layers = [{ conv = 4, from = "b" },\n{ relu = true },\n{ conv = 4, name = "b" }]',
            2,
            "it comes later",
        ),
        (HEAD + 'layers = [{ conv = 4, name = "a", from = "a" }]', 2, "a circle, a reads a"),
        (HEAD + 'layers = [{ conv = 4, name = "a" },\n{ conv = 4, name = "a" }]', 3, "'a' is taken"),
        (HEAD + 'layers = [{ conv = 4, name = "conv0" },\n{ conv = 4 }]', 3, "'conv0' is taken"),
        (HEAD + 'layers = [{ block = "b" }]', 2, "unknown block 'b'; blocks of this file: none"),
        (
            HEAD + 'layers = [{ block = "b", n = 3 }]\n[blocks.b]\nlayers = [{ fc = 1 }]',
            2,
            "unknown parameter 'n'",
        ),
        (
            HEAD + 'layers = [{ block = "b" }]\n[blocks.b]\nparameters = ["n"]\nlayers = [{ fc = 1 }]',
            2,
            "'n' is missing",
        ),
        (
            HEAD + 'layers = [{ block = "b" }]\n[blocks.b]\nlayers = [\n{ fc = "$n" }]',
            5,
            "'$n' is no parameter",
        ),
        (HEAD + 'layers = [{ block = "b" }]\n[blocks.b]\nlayers = [{ block = "b" }]', 4, "circle: b -> b"),
        (
            HEAD + 'layers = [{ block = "b", repeat = 0 }]\n[blocks.b]\nlayers = [{ fc = 1 }]',
            2,
            "repeat: expected int >= 1",
        ),
        (HEAD + 'layers = [{ branches = [[]], join = "multiply" }]', 2, "allowed: concat, add"),
        (HEAD + "layers = [{ fc = 1 }]\n[defaults]\nrelu = {}", 4, "only conv"),
        (HEAD + "layers = [{ fc = 1 }]\n[defaults]\nconv = { size = 3 }", 4, "unknown key"),
        (HEAD + 'layers = [{ fc = 1 }, { fc = 1 }]\n[tensors]\nfc = "w"', 2, "tensor name 'w' is taken"),
        (HEAD + 'base = "elsewhere"\nlayers = [{ fc = 1 }]', 2, "no model 'elsewhere'"),
        (HEAD + 'base = "net"\nlayers = [{ fc = 1 }]', 2, "circle: net -> net"),
        ("input = [10_000_000, 10_000_000, 9]\nlayers = [{ conv = 1_000 }]", 2, "absurdly large"),
        ("input = [10_000_000]\nlayers = [{ fc = 10_000_000 }]", 2, "absurdly large"),
    ],
)
def test_bad_files(tmp_path, text, line, said):
    path = tmp_path / "net.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        read_model(path)
    message = str(error.value)
    assert message.startswith(f"{path}:{line}" if line else f"{path}: "), message
    assert said in message
    assert "\n" not in message


def test_blocks_that_multiply_are_cut_off(tmp_path):
    text = HEAD + 'layers = [{ block = "b0", repeat = 1000 }]\n'
    for i in range(3):
        inner = f'{{ block = "b{i + 1}", repeat = 1000 }}' if i < 2 else "{ relu = true }"
        text += f"[blocks.b{i}]\nlayers = [{inner}]\n"
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(BadInput, match="more than 20,000 layers"):
        read_model(tmp_path / "net.toml")


def test_blocks_nested_without_end(tmp_path):
    text = HEAD + 'layers = [{ block = "b0" }]\n'
    text += "".join(f'[blocks.b{i}]\nlayers = [{{ block = "b{i + 1}" }}]\n' for i in range(2000))
    (tmp_path / "net.toml").write_text(text + "[blocks.b2000]\nlayers = [{ relu = true }]\n")
    with pytest.raises(BadInput, match=":2: layers: blocks are nested too deeply"):
        read_model(tmp_path / "net.toml")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="UTF-8"):
        read_model(tmp_path / "binary.toml")
    with pytest.raises(BadInput, match="cannot read"):
        read_model(tmp_path)
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(BadInput):
        read_model(tmp_path / "deep.toml")


def test_folder_in_the_path_that_is_none(monkeypatch):
    monkeypatch.setenv("PLANNER_PATH", "/no/such/folder")
    with pytest.raises(BadInput, match="PLANNER_PATH names /no/such/folder"):
        load_model("vgg11")


WORDS = st.sampled_from(
    [
        "conv",
        "fc",
        "=",
        "{",
        "}",
        "[",
        "]",
        ",",
        '"',
        "-1",
        "0",
        "1e999",
        "$width",
        "block",
        "from",
        "name",
        "\n",
        "#",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["resnet50", "inception3", "slim-inception-v2"]), st.data())
def test_damaged_file_loads_or_is_refused_in_one_line(tmp_path_factory, name, data):
    """Words put in, or pieces cut out, anywhere in a real file."""
    text = (MODELS / f"{name}.toml").read_text()
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 30))
    text = text[:start] + data.draw(WORDS | st.text(max_size=3)) + text[start + length :]
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "net.toml"
    path.write_text(text, encoding="utf-8", errors="ignore")
    said = ""
    try:
        read_model(path, lambda base: MODELS / f"{base}.toml")
    except BadInput as error:
        said = str(error)
    assert not said or str(folder) in said or str(MODELS) in said
    assert "\n" not in said
