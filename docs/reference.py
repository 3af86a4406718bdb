"""Generates what repeats declarations: docs/flags.md, docs/python.md, docs/profile.schema.json and the
keyword arguments in Python.

    python docs/reference.py

writes them into the checkout that it runs from; a test holds them against the declarations.
"""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any

import planner
from planner.cli._app import COMMANDS, load_command
from planner.flags import FlagSection, flags_of
from planner.search.request import Request
from planner.simulator.step.files import schema

ROOT = Path(__file__).parents[1]
FLAGS_PAGE, OPTIONS_MODULE = ROOT / "docs" / "flags.md", ROOT / "planner" / "answers" / "options.py"
PYTHON_PAGE = ROOT / "docs" / "python.md"
SCHEMA = ROOT / "docs" / "profile.schema.json"
ANSWERS = ("compare", "recommend", "saturation", "simulate")
INTRODUCTION = """# Flags

Generated from their declarations (`python docs/reference.py`). `recommend`, `compare`, `saturation`
and `simulate` share most flags. Their flags can also be set by environment variables (`PLANNER_BUDGET`), in a
scenario file (`--config`; `min_throughput` for `--min-throughput`) and, except for most of the section
Output, as Python arguments (`planner.recommend("vgg11", budget=20)`). A flag overrides the variable, which
overrides the file.
"""


PYTHON_INTRODUCTION = """# Python

Generated from signatures and docstrings (`python docs/reference.py`).

```python
import planner

answer = planner.recommend("vgg11", budget=20, hardware=["g5.xlarge", "g4dn.xlarge"])
answer.chosen.plan.cluster_text, answer.chosen.samples_per_s, answer.chosen.usd_per_million_samples
answer.as_dict()  # the JSON of --format json
answer.to_pandas()  # one row per plan, columns as in CSV; needs pandas
answer.to_html("report.html")  # the page of --html
```

Keyword arguments of `recommend`, `compare`, `saturation` and `simulate` are [flags](flags.md) with
underscores: `--seq-length 2048` is `seq_length=2048`. Where a flag takes a list, the argument is a
sequence or a string with commas. Notebooks and `rich.print` show an answer as the terminal does;
`examples/answers.ipynb` is a tour.

Semantic versioning covers the names on this page, their arguments and the keys of `as_dict()`; the flags,
exit statuses and JSON and CSV keys of the command line; and the formats of model, hardware, scenario and
profile files. Predictions change with the data and may change in any release; the changelog says by how much.
Everything else under `planner.` is internal.
"""
PYTHON_SECTIONS = {
    "Answers": ("recommend", "compare", "saturation", "simulate", "sweep"),
    "Recordings": ("record", "import_profile"),
    "Models and machines": ("load_model", "load_hardware", "cluster_of"),
    "Simulation": (
        "simulate_profile", "simulate_many", "profile_for", "compare_orders",
        "Cluster", "Node", "Profile", "Prediction",
    ),
    "Requests and errors": ("Request", "PlannerError", "BadInput", "Infeasible"),
}  # fmt: skip


def python_page() -> str:
    """docs/python.md: every public name with its signature and docstring."""
    parts = [PYTHON_INTRODUCTION]
    for section, names in PYTHON_SECTIONS.items():
        parts.append(f"## {section}\n")
        for name in names:
            public = getattr(planner, name)
            parts.append(f"### `{name}`\n")
            if inspect.isfunction(public):
                parts.append(f"```text\nplanner.{name}{_signature(public)}\n```\n")
            parts.append(f"{inspect.getdoc(public)}\n")
    return "\n".join(parts).rstrip() + "\n"


def _signature(function: Any) -> str:
    """A signature on several lines, annotations as written, without functions as defaults."""
    signature = inspect.signature(function)
    lines = []
    for param in signature.parameters.values():
        if callable(param.default) and param.default is not param.empty:
            param = param.replace(default=...)
        text = str(param.replace(annotation=param.empty)).replace("'", '"').replace("Ellipsis", "...")
        if param.annotation is not param.empty:
            name, equals, default = text.partition("=")
            text = f"{name}: {param.annotation}" + (f" = {default}" if equals else "")
        lines.append(f"    {text},")
    keyword = next((i for i, p in enumerate(signature.parameters.values()) if p.kind is p.KEYWORD_ONLY), None)
    if keyword is not None:
        lines.insert(keyword, "    *,")
    return "(\n" + "\n".join(lines) + f"\n) -> {signature.return_annotation}"


def flags_page() -> str:
    """docs/flags.md: the flags of the answers by section, then those of the other commands."""
    answers: dict[str, dict[str, tuple[str, list[str]]]] = {
        section: {} for section in ("Common", *FlagSection)
    }
    for name in ANSWERS:
        for param in _options_of(load_command(name)):
            rows = answers[param.rich_help_panel]
            rows.setdefault(_spelling(param), (param.help, []))[1].append(name)
    parts = [INTRODUCTION]
    for section, rows in answers.items():
        parts.append(f"## {section}\n\n| flag | commands | meaning |\n|---|---|---|")
        for spelling, (help, commands) in rows.items():
            where = "all four" if len(commands) == len(ANSWERS) else ", ".join(commands)
            parts.append(f"| `{spelling}` | {where} | {help} |")
        parts.append("")
    for name in COMMANDS:
        if name not in ANSWERS:
            for title, command in _leaves(name, load_command(name)):
                parts.append(f"## planner {title}\n\n| flag | meaning |\n|---|---|")
                parts += [f"| `{_spelling(param)}` | {param.help} |" for param in _options_of(command)]
                parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def options_module() -> str:
    """planner/answers/options.py: the keyword arguments of the Python API."""
    lines = [
        '"""The keyword arguments of `planner.recommend`, `compare`, `saturation` and `simulate`; generated.',
        "",
        "Flags are declared on the fields of `planner.search.request.Request`; this file is written by",
        "`python docs/reference.py`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "from typing import TYPE_CHECKING, TypedDict",
        "",
        "if TYPE_CHECKING:",
        "    from planner.simulator.step import Profile",
        "",
        "",
        "class Options(TypedDict, total=False):",
        '    """Options as people write them, by the name of their flag."""',
        "",
    ]
    for flag in flags_of(Request):
        if flag.name == "model":  # the first argument of each function
            continue
        written = flag.kind.written
        shown = flag.kind.python or (
            str(written) if isinstance(written, types.UnionType) else written.__name__
        )
        lines.append(f"    {flag.name}: {shown.replace('collections.abc.', '')} | None")
    return "\n".join(lines) + "\n"


def _leaves(name: str, command: Any) -> list[tuple[str, Any]]:
    """The command, or its subcommands."""
    inner = getattr(command, "commands", None)
    if not inner:
        return [(name, command)]
    return [leaf for sub in sorted(inner) for leaf in _leaves(f"{name} {sub}", inner[sub])]


def _options_of(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def _spelling(param: Any) -> str:
    """`--workers, -w`, `--spot/--on-demand`."""
    long = sorted(param.opts, key=lambda word: not word.startswith("--"))
    return ", ".join(long) + "".join(f"/{word}" for word in param.secondary_opts)


if __name__ == "__main__":
    FLAGS_PAGE.write_text(flags_page())
    OPTIONS_MODULE.write_text(options_module())
    PYTHON_PAGE.write_text(python_page())
    SCHEMA.write_bytes(schema())
