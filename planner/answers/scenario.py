"""Scenarios: the options of flags and of `configs/*.toml`, as people write them, made into a request.

A flag wins over an environment variable (`PLANNER_BUDGET`), which wins over the file given with `--config`,
which wins over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from planner.errors import BadInput, unknown_name
from planner.flags import flags_of, parse_names
from planner.search.kinds import profile_paths
from planner.search.request import Request, model_of

if TYPE_CHECKING:
    from planner.answers.options import Options
    from planner.files.tomlfile import TomlSource

FILES = ("model", "hardware", "server_hardware", "profile")  # options that may name files


def read_scenario(path: Path) -> dict[str, Any]:
    """Reads the options of a TOML file; errors name file, line and key."""
    from planner.files.tomlfile import read_toml

    source = read_toml(path)
    return options_in(source, source.data)


def options_in(source: TomlSource, values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks a file's values and returns them as options, with paths relative to the file."""
    import msgspec

    from planner.files.regular_file import expand_path, is_path_like
    from planner.files.tomlfile import LONGEST_OP_NAME, decode, find_faulty_name
    from planner.model.catalog import is_hub_name

    if faulty := find_faulty_name(values, frozenset(("description",)), LONGEST_OP_NAME):
        raise source.error(faulty[1], faulty[0])

    def from_file(path: str) -> str:
        return os.path.join(source.path.parent, expand_path(path))

    keys = [(flag.name, flag.kind.written | None, None) for flag in flags_of(Request)]
    kind = msgspec.defstruct("Scenario", [("description", str, ""), *keys], forbid_unknown_fields=True)
    options = msgspec.structs.asdict(decode(source, values, kind))
    del options["description"]  # for its reader
    options = {name: value for name, value in options.items() if value is not None}
    if "profile" in options:
        paths = [from_file(path) for path in profile_paths(options["profile"])]
        options["profile"] = paths if len(paths) > 1 else paths[0]
    if is_path_like(model := options.get("model", "")):
        here = from_file(model)
        options["model"] = here if os.path.exists(here) or not is_hub_name(model) else model
    for name in {"hardware", "server_hardware"} & options.keys():
        options[name] = [
            from_file(word) if is_path_like(word) else word for word in parse_names(options[name])
        ]
    return options


def merge_options(given: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Options of a scenario file, overridden by the given ones."""
    scenario = read_scenario(config) if config is not None else {}
    return scenario | {name: value for name, value in given.items() if value is not None}


def parse_request(model: str | None = None, **options: Unpack[Options]) -> Request:
    """Builds the request for these options: `parse_request("vgg11", budget=20, workers="1-8")`."""
    known = {flag.name: flag for flag in flags_of(Request)}
    values: dict[str, Any] = {} if model is None else {"model": model}
    for name, value in options.items():
        if name not in known:
            renamed = [flag.name for flag in known.values() if name in flag.fields]
            raise unknown_name("option", name, known, hint="".join(f"write {option}=" for option in renamed))
        if value is None:
            continue
        for field, parsed in known[name].parse_fields(value).items():
            values[field] = values.get(field, {}) | parsed if field == "extra" else parsed
    if not values.get("model") and "profile" in values:
        values["model"] = values["profile"].model
    if not values.get("model"):
        raise BadInput("no model is given; add --model NAME (see `planner models`) or --profile FILE")
    request = Request(**values)
    model_of(request)  # which is refused here if it does not exist
    return request
