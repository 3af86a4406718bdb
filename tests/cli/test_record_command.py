"""What `planner record` says when the program that it started has ended."""

import pytest

from planner.cli import _app


def record(monkeypatch, status, *, writes=None):
    def started(words, output, **asked):
        if writes is not None:
            output.write_text(writes)
        return status

    monkeypatch.setattr("planner.recorder.record_command", started)

    def run(output):
        with pytest.raises(SystemExit) as left:
            _app.load_command("record")(
                ["-o", str(output), "--", "python", "train.py"], prog_name="planner record"
            )
        return left.value.code

    return run


def test_recording_is_announced_beside_the_result(monkeypatch, tmp_path, capsys):
    path = tmp_path / "p.json.gz"
    assert record(monkeypatch, 0, writes="x")(path) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{path}: recorded; see `planner profile show {path}`\n")


def test_status_of_the_program_is_ours(monkeypatch, tmp_path, capsys):
    assert record(monkeypatch, 7, writes="x")(tmp_path / "p.json.gz") == 7
    assert "recorded" not in capsys.readouterr().err


def test_program_that_recorded_nothing_is_an_error(monkeypatch, tmp_path):
    from planner.errors import BadInput

    path = tmp_path / "p.json.gz"
    with pytest.raises(BadInput, match="nothing was recorded"):
        record(monkeypatch, 0)(path)
    path.write_text("old")  # of another day
    with pytest.raises(BadInput, match="nothing was recorded"):
        record(monkeypatch, 0)(path)
