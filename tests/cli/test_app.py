"""The door of the command line, through real processes where exit codes matter."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import planner
from planner.cli import _app
from planner.errors import ClusterWarning, PlannerError, PlannerWarning
from planner.flags import COMMON, FlagSection


def run(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "planner", *args], capture_output=True, text=True, check=False, **kwargs
    )


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"planner {planner.__version__}\n")


def help_and_heavy_modules(*words, heavy):
    code = (
        f"import sys; sys.argv = {['planner', *words, '--help']}\n"
        "from planner.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.rsplit("HEAVY ", 1)


def test_help_lists_every_command_and_imports_none():
    heavy = {"numpy", "scipy", "optuna", "networkx", "rich", "msgspec", "planner.cli.models"}
    shown, imported = help_and_heavy_modules(heavy=heavy)
    assert imported == "[]\n"
    for name, (_, line) in _app.COMMANDS.items():
        assert f"{name} " in shown
        assert line in shown  # short enough not to be cut


@pytest.mark.parametrize("command", ["recommend", "compare", "saturation", "simulate"])
def test_help_of_an_answer_groups_flags_by_section_without_heavy_imports(command):
    shown, imported = help_and_heavy_modules(command, heavy={"numpy", "scipy", "optuna", "rich", "pydantic"})
    assert imported == "[]\n"
    sections = ["Common", *FlagSection]
    places = [shown.index(f"\n{section}:\n") for section in sections]
    assert places == sorted(places)
    common = shown[places[0] : places[1]]
    assert all(f"--{name}" in common for name in COMMON)


def test_every_command_has_help():
    for name in _app.COMMANDS:
        assert _app.load_command(name).help


def test_misspelt_command_suggests_and_exits_2():
    done = run("modles")
    assert done.returncode == 2
    assert "models" in done.stderr
    assert done.stdout == ""


def test_bad_option_value_exits_2():
    done = run("models", "--format", "yaml")
    assert done.returncode == 2
    assert "markdown" in done.stderr


def test_our_errors_are_one_line():
    done = run("models", "--output", "/no/such/folder/x")
    assert done.returncode == 2
    assert done.stderr.startswith("planner: cannot write /no/such/folder/x")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "words", "see"),
    [
        (("simulate", "--seed", "-1"), "invalid value for '--seed': ", "simulate "),
        (("models", "--format", "xml"), "'xml' is not one of 'table', 'json', 'csv', 'markdown'", "models "),
        (("recommend", "--modle", "vgg11"), "no flag --modle; did you mean --mode or --model?", "recommend "),
        (
            ("order", "--budget", "3"),
            "no flag --budget here; `planner compare` or `planner recommend` has it;",
            "order ",
        ),
        (("compare", "--cards", "p3"), "there is no flag --cards;", "compare "),
        (("recommend", "--model"), "requires an argument", "recommend "),
        (("partition",), "missing option '--machines'", "partition "),
        (("profile", "show"), "missing argument 'FILE'", "profile show "),
        (("--modle",), "there is no flag --modle;", ""),
        (("modles",), "did you mean 'models'?", ""),
    ],
)
def test_usage_errors_are_one_line_too(args, words, see):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words.lower() in done.stderr.lower()
    assert done.stderr.startswith("planner: ")
    assert done.stderr.endswith(f"ee `planner {see}--help`\n")
    assert done.stderr.count("\n") == 1


def test_command_without_its_subcommand_shows_help():
    done = run("profile")
    assert done.returncode == 2
    assert "Usage: planner profile" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("recommend", "--output", "x", "--html", "./x"),
        ("recommend", "--html", "x.json", "--timeline", "link.json"),
        ("recommend", "--study", "x", "--output", "x"),
        ("models", "alexnet", "--html", "x", "--output", "x"),
        ("order", "--export", "x", "--output", "x"),
        ("sweep", "sweep.toml", "--store", "x", "--output", "x"),
        ("validate", "--document", "x", "--html", "x"),
    ],
    ids=" ".join,
)
def test_two_outputs_of_one_name_are_refused(args, tmp_path):
    (tmp_path / "link.json").symlink_to("x.json")
    done = run(*args, cwd=tmp_path)
    first, second = [word for word in args if word.startswith("--")]
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"planner: {first} and {second} both name {Path(args[-1])}; give each a file of its own\n"
    )
    assert not list(tmp_path.glob("x*"))


def test_timeline_has_a_name_that_viewers_open(tmp_path):
    done = run("simulate", "--timeline", "x.txt", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "planner: --timeline is x.txt; name it .json or .json.gz, which trace viewers open\n",
    )


def test_names_in_errors_do_not_act_on_a_terminal(tmp_path):
    """Neither those of flags nor those of variables."""
    done = run("models", "\x1b[31mred\u202e")
    assert done.returncode == 2
    assert done.stderr.rstrip("\n").isprintable()
    done = run(
        "simulate", env={**os.environ, "PLANNER_BANDWIDTH": "\x1b]0;owned\x07", "PLANNER_CONFIG": "\x1b.toml"}
    )
    assert done.returncode == 2
    assert done.stderr.rstrip("\n").isprintable()


def test_terminal_without_unicode_gets_the_nearest_characters():
    done = run("models", "vgg11", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "###" in done.stdout
    assert done.stdout.isascii()


def test_device_may_be_named_twice():
    assert run("models", "alexnet", "--output", "/dev/null", "--html", "/dev/null").returncode == 0


def test_closed_pipe_is_quiet():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m planner models --format csv | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["simulate", "recommend"])
def test_closed_pipe_still_exports(tmp_path, command):
    plan = tmp_path / "plan.sh"
    command = f"{command} --model alexnet --hardware g5.xlarge --quiet --export {plan}"
    subprocess.run(["bash", "-c", f"{sys.executable} -m planner {command} | true"], check=True)
    assert "train.py" in plan.read_text()


def test_completion_names_commands():
    env = {"_PLANNER_COMPLETE": "complete_bash", "COMP_WORDS": "planner mod", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from planner.cli import main; main()"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "models" in done.stdout


def test_ctrl_c_exits_130(monkeypatch, capsys):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_app, "use_plain_converters", interrupted)
    with pytest.raises(SystemExit) as done:
        _app.main()
    assert done.value.code == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "code", "left"),
    [
        (ClusterWarning, 130, (PlannerError.exit_code, "planner: nobody is left\n")),
        (PlannerWarning, 130, (130, "planner: nobody is left\nplanner: interrupted\n")),
        (ClusterWarning, 1, (1, "planner: nobody is left\n")),
    ],
    ids=["a lost cluster", "Ctrl-C", "a claim that fails"],
)
def test_lost_cluster_is_no_ctrl_c(monkeypatch, capsys, kind, code, left):
    """What waits for a lost cluster is interrupted as by Ctrl-C, which nobody pressed."""

    def interrupted(_: object) -> None:
        warnings.warn("nobody is left", kind, stacklevel=1)
        raise SystemExit(code)

    monkeypatch.setattr(_app, "use_plain_converters", interrupted)
    with pytest.raises(SystemExit) as done:
        _app.main()
    assert (done.value.code, capsys.readouterr().err) == left


def test_interruption_prints_its_message():
    leaving = SystemExit(130)
    assert _app._interruption_message(leaving) == "interrupted"
    leaving.__context__ = ValueError("typer's")
    leaving.__context__.__context__ = KeyboardInterrupt("12 of 30 plans are in the store")
    assert _app._interruption_message(leaving) == "12 of 30 plans are in the store"
