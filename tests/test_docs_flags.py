"""Generated pages and typed options are what the declarations of flags and the public functions say."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import planner
from planner.answers import options
from planner.cli._app import COMMANDS, load_command
from planner.flags import COMMON, flags_of
from planner.search.request import Request

DOCS = Path(__file__).parents[1] / "docs"


def _load_reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _load_reference()


def test_flags_page_is_generated_from_the_declarations() -> None:
    assert (DOCS / "flags.md").read_text() == reference.flags_page()


def test_options_module_is_generated_from_the_declarations() -> None:
    source = inspect.getsource(options)
    assert source == reference.options_module()


def test_python_page_is_generated_from_signatures_and_names_all_that_is_public() -> None:
    assert (DOCS / "python.md").read_text() == reference.python_page()
    listed = [name for names in reference.PYTHON_SECTIONS.values() for name in names]
    assert sorted([*listed, "__version__"]) == sorted(planner.__all__)


def test_every_flag_of_an_answer_is_an_option_a_variable_and_a_typed_argument() -> None:
    arguments = get_type_hints(options.Options, localns={"Profile": object})
    for flag in flags_of(Request):
        assert flag.name in arguments or flag.name == "model"
        for command in flag.commands:
            params = {param.name: param for param in load_command(command).params}
            assert params[flag.name].envvar == flag.variable
            assert params[flag.name].help == flag.help


def test_every_flag_has_one_line_of_help() -> None:
    for name in COMMANDS:
        for _, command in reference._leaves(name, load_command(name)):
            for param in reference._options_of(command):
                assert param.help, f"{name} {param.opts}"
                assert param.help.endswith("."), f"{name} {param.opts}: {param.help}"


def test_common_flags_come_first_in_help() -> None:
    names = [param.name for param in load_command("recommend").params]
    assert tuple(names[: len(COMMON)]) == COMMON


def test_help_and_the_pages_name_every_exchange() -> None:
    from planner.parallel.data import EXCHANGES

    (flag,) = (flag for flag in flags_of(Request) if flag.name == "exchange")
    exchanges = (DOCS / "communication.md").read_text()
    for kind in EXCHANGES:
        assert kind in flag.help
        assert re.search(rf"^\|.*`{kind}`", exchanges, re.MULTILINE)
