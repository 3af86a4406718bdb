"""`planner models`, in the process and through the real door."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest

from planner.cli import _app
from planner.model.catalog import load_model, model_names
from planner.report.models import folded_rows

NET = "input = [8, 8, 3]\nlayers = [{ conv = 4, kernel = 3 }, { fc = 2 }]\n"


def run(capsys, *args):
    command = _app.load_command("models")
    with pytest.raises(SystemExit) as done:
        command(list(args), prog_name="planner models")
    return done.value.code, capsys.readouterr().out


def test_json_lists_all_with_their_sizes(capsys):
    code, out = run(capsys, "--format", "json")
    assert code == 0
    listed = {row["model"]: row for row in json.loads(out)}
    assert tuple(listed) == model_names()
    for name, row in listed.items():
        model = load_model(name)
        assert row["tensors"] == len(model.tensors)
        assert row["parameters"] == model.parameters
        assert row["bytes"] == model.bytes
        assert row["macs"] == model.macs


def test_one_model_as_json_has_every_tensor(capsys):
    _, out = run(capsys, "vgg11", "-f", "json")
    data = json.loads(out)
    tensors = [tensor["name"] for layer in data["layer_list"] for tensor in layer["tensors"]]
    assert tensors == [tensor.name for tensor in load_model("vgg11").tensors]


def test_csv_rows_add_up(capsys):
    _, out = run(capsys, "resnet50", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    model = load_model("resnet50")
    assert sum(int(row["bytes"]) for row in rows) == model.bytes
    assert sum(int(row["macs"]) for row in rows) == model.macs
    assert sum(int(row["tensors"]) for row in rows) == len(model.tensors)


@pytest.mark.parametrize("columns", ["80", "140"])
def test_table_says_where_the_bytes_are(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, out = run(capsys, "vgg11")
    assert max(map(len, out.splitlines())) <= int(columns)
    line = next(line for line in out.splitlines() if line.startswith("affine0/weights"))
    assert "392.00" in line
    assert "77.3%" in line


def test_output_file(capsys, tmp_path):
    code, out = run(capsys, "-f", "csv", "-o", str(tmp_path / "models.csv"))
    assert (code, out) == (0, "")
    assert len((tmp_path / "models.csv").read_text().splitlines()) == 1 + len(model_names())


def test_own_folders_come_first_and_paths_work(capsys, tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "vgg11.toml").write_text(NET)
    (tmp_path / "mine.toml").write_text(NET)
    (tmp_path / "machine.toml").write_text("[machines.x]\n")
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    _, out = run(capsys, "-f", "json")
    listed = {row["model"]: row for row in json.loads(out)}
    assert listed["vgg11"]["parameters"] == listed["mine"]["parameters"] == 3 * 3 * 3 * 4 + 8 * 8 * 4 * 2
    assert "machine" not in listed
    monkeypatch.delenv("PLANNER_PATH")
    monkeypatch.chdir(tmp_path)
    _, out = run(capsys, "./mine.toml", "-f", "json")
    assert json.loads(out)["model"] == "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vgg1l", "vgg11"),
        ("resnet5O", "resnet50"),
        ("./none.toml", "no model file"),
        ("inceptian3", "inception3"),
    ],
)
def test_unknown_names_are_one_line_with_the_nearest(name, said):
    done = subprocess.run(
        [sys.executable, "-m", "planner", "models", name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_models_command_starts_without_heavy_packages():
    code = (
        "import sys; sys.argv = ['planner', 'models', '--format', 'csv']\n"
        "from planner.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'optuna', 'networkx', 'rich', 'pydantic'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PLANNER_PATH": ""},
    )
    assert "HEAVY []" in done.stdout


def test_layers_are_counted_as_they_are_listed(capsys):
    """VGG-11: 8 convolutions, 5 pools, 3 fully connected ones and the softmax."""
    assert run(capsys, "vgg11")[1].splitlines()[1].startswith("17 layers, 22 tensors,")
    about = json.loads(run(capsys, "vgg11", "--format", "json")[1])
    assert (about["layers"], about["ops"], len(about["layer_list"])) == (17, 40, 41)


def test_equal_blocks_are_one_line_and_csv_has_them_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    _, out = run(capsys, "llama3-405b")
    assert "125 more like model.layers.0" in out
    assert len(out.splitlines()) < 60
    _, out = run(capsys, "llama3-405b", "-f", "csv")
    assert "model.layers.125.mlp.down_proj" in out
    model = load_model("llama3-405b")
    rows = folded_rows(model)
    assert sum(row["macs"] for row in rows) == model.macs
    assert sum(row["tensors"] for row in rows) == len(model.tensors)


def test_memory_as_json_adds_up(capsys):
    code, out = run(capsys, "llama3-8b", "--memory", "--batch", "1", "--devices", "8", "-f", "json")
    assert code == 0
    data = json.loads(out)
    assert list(data["layouts"]) == ["replicated", "ZeRO 1", "ZeRO 2", "ZeRO 3, FSDP"]
    for held in data["layouts"].values():
        parts = [
            value for key, value in held.items() if key.endswith("_bytes") and isinstance(value, float | int)
        ]
        assert sum(parts) == pytest.approx(2 * held["total_bytes"])
        assert sum(held["activations_by_kind_bytes"].values()) == pytest.approx(held["activations_bytes"])


def test_memory_part_of_one_layout_has_a_row(capsys):
    _, out = run(capsys, "gpt2", "--memory", "--devices", "8")
    assert "prefetched parameters" in out  # by ZeRO 3 alone
    _, out = run(capsys, "gpt2", "--memory")
    assert "prefetched parameters" not in out


def test_memory_as_a_table_has_a_bar(capsys):
    _, out = run(capsys, "gpt2", "--memory", "--seq-length", "512", "--recompute", "full")
    assert "8 x 512 tokens" in out
    assert "one recomputed block" not in out  # the loss is the worst moment, before any is recomputed
    assert "█" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gpt2", "--batch", "2"], "--batch needs --memory"),
        (["--memory"], "--memory needs a model"),
        (["gpt2", "--memory", "--precision", "fp7"], "unknown precision 'fp7'"),
        (["gpt2", "--memory", "--optimizer", "adan"], "nearest: adam"),
        (["vgg11", "--seq-length", "7"], "reads no sequence of tokens"),
        (["gpt2", "--seq-length", "5000"], "longer than its 1,024 positions"),
    ],
)
def test_memory_of_impossible_settings_is_refused(args, said):
    from planner.errors import BadInput

    with pytest.raises(BadInput, match=said):
        _app.load_command("models")(args, prog_name="planner models")


def test_import_writes_a_file_that_shows_the_same(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "vocab_size": 99,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    code, out = run(capsys, "import", "config.json", "-o", "mine.toml")
    assert code == 0
    assert "mine.toml: " in out
    assert "110,528 parameters in 28 tensors" in out
    assert load_model("./mine.toml").parameters == load_model("config.json").parameters == 110_528
