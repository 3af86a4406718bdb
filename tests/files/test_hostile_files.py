"""Files that would fill the memory, hang or break a parser: one line that says what is wrong, and no more."""

import json
import os

import msgspec
import pytest

from planner.answers.questions import read_scenario
from planner.answers.sweep import read_sweep
from planner.cli import _app
from planner.errors import BadInput
from planner.files.regular_file import LARGEST_TEXT_BYTES
from planner.files.tomlfile import from_json
from planner.hardware.catalog import hardware_names, load_hardware
from planner.model.catalog import load_model, model_names
from planner.simulator.step.files import load

READERS = {
    "model": load_model,
    "hardware": lambda path: load_hardware(str(path)),
    "scenario": read_scenario,
    "sweep": read_sweep,
}
NET = "input = [8, 8, 3]\nlayers = [{ conv = 4, kernel = 3 }, { fc = 2 }]\n"


@pytest.fixture(params=READERS)
def reader(request):
    return READERS[request.param]


def refused(read, path):
    with pytest.raises(BadInput) as said:
        read(path)
    assert "\n" not in str(said.value)
    return str(said.value)


def test_device_without_end_and_a_pipe_without_a_writer_are_not_read(reader, tmp_path):
    os.symlink("/dev/zero", tmp_path / "zero.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("zero", "pipe"):
        assert "not a regular file" in refused(reader, tmp_path / f"{name}.toml")


def test_traces_and_profiles_are_regular_files_too(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in refused(load, tmp_path / "pipe.json")


def test_large_file_is_not_read(reader, tmp_path):
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(LARGEST_TEXT_BYTES + 1)
    assert "larger than 1 MiB" in refused(reader, tmp_path / "large.toml")


def test_integer_of_more_digits_than_python_reads(reader, tmp_path):
    (tmp_path / "digits.toml").write_text(f"samples = {'9' * 5000}\n")
    assert "more than 4,300 digits" in refused(reader, tmp_path / "digits.toml")


def test_key_of_very_many_parts(reader, tmp_path):
    (tmp_path / "parts.toml").write_text(f"\n{'.'.join('a' * 100)} = 1\n")
    assert "parts.toml:2: a key of more than 32 parts" in refused(reader, tmp_path / "parts.toml")


def test_network_of_very_many_layers(tmp_path):
    (tmp_path / "m.toml").write_text("input = [4]\nlayers = [" + "{ fc = 4 }, " * 50_000 + "]\n")
    assert "more than 20,000 layers" in refused(load_model, tmp_path / "m.toml")


def test_json_with_such_an_integer(monkeypatch):
    """Some versions of msgspec pass on what Python says of it."""
    with pytest.raises(msgspec.DecodeError, match="out of range"):
        from_json(b"[" + b"9" * 5000 + b"]", list)

    def python_reads(data, type):
        raise ValueError("Exceeds the limit (4300 digits)")

    monkeypatch.setattr(msgspec.json, "decode", python_reads)
    with pytest.raises(msgspec.DecodeError, match="4300 digits"):
        from_json(b"[1]", list)


def test_profile_with_such_an_integer(tmp_path):
    digits = "9" * 5000
    (tmp_path / "p.json").write_text(f'{{"format": "planner-profile", "version": 1, "batch": {digits}}}')
    assert "out of range" in refused(load, tmp_path / "p.json")


def test_user_that_is_not_there(monkeypatch):
    for read in (load_model, load_hardware):
        assert "there is no such user" in refused(read, "~nosuchuser/x.toml")
    monkeypatch.setenv("PLANNER_PATH", "~nosuchuser/models")
    assert "there is no such user" in refused(load_model, "vgg11")


def test_path_of_a_scenario_under_a_user_that_is_not_there(tmp_path):
    (tmp_path / "s.toml").write_text('model = "~nosuchuser/x.toml"\n')
    assert "there is no such user" in refused(read_scenario, tmp_path / "s.toml")


def test_one_bad_file_in_a_folder_leaves_the_others(tmp_path, monkeypatch, capsys):
    """A pipe, a device, bytes, a network with a mistake and text that is no TOML, beside a good model."""
    shipped, machines = set(model_names()), hardware_names()
    (tmp_path / "good.toml").write_text(NET)
    (tmp_path / "wrong.toml").write_text(NET.replace("conv", "convolution"))
    (tmp_path / "notes.toml").write_text("this is no TOML\n")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe.toml")
    os.symlink("/dev/zero", tmp_path / "zero.toml")
    (tmp_path / "models").mkdir()
    os.mkfifo(tmp_path / "models" / "other-pipe.toml")
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    assert hardware_names() == machines

    def listed(*flags):
        with pytest.raises(SystemExit) as left:
            _app.load_command("models")(list(flags), prog_name="planner models")
        assert left.value.code == 0
        return capsys.readouterr().out

    assert {row["model"] for row in json.loads(listed("--format", "json"))} == shipped | {"good"}
    table = "".join(listed().split())  # which breaks lines at the width of a terminal
    assert "Leftout:" in table
    assert "wrong.toml:2:layers[0]" in table
    assert "other-pipe.toml:itisapipeoradevice,notaregularfile" in table


def test_hardware_of_ones_own_with_a_mistake_is_not_passed_over(tmp_path, monkeypatch):
    """It may hide a machine of the catalog, whose figures would be taken instead."""
    (tmp_path / "mine.toml").write_text('[machines.mine]\ndevice = "V100-SXM2-16GB\n')
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    assert "mine.toml:2: not valid TOML" in refused(load_hardware, "p3.2xlarge")
