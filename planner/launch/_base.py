"""A launch, the interface of a launch format, and serializers that keep every name a value, whatever it
contains."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from planner.errors import escape_unprintable

NAMES: dict[str, Any] = tomllib.loads((files("planner.launch") / "names.toml").read_text("utf-8"))
STRATEGIES: dict[str, str] = NAMES["strategies"]
SET_PRECISION: dict[str, str] = NAMES["set_precision"]
Recompute = Literal["none", "attention", "per-op", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Training settings of a plan, in the terms of training frameworks.

    `strategy` is a key of `STRATEGIES`, or the kind of an exchange that no framework knows. `mesh` holds the
    settings of the mesh's axes that are above 1, by their flags: `{"tensor": 8, "interleave": 2}`. `method`,
    `rank`, `targets`, `base` and `dropout` describe fine-tuning. `model` is a name of the catalog,
    `checkpoint` that of weights to start from, where it is known.
    """

    model: str = "model"
    checkpoint: str = ""
    sequence_length: int | None = None
    epochs: float | None = None
    strategy: str = "ddp"
    mesh: Mapping[str, int] = field(default_factory=dict)
    precision: str = "bf16"
    micro_batch: int = 1
    accumulate: int = 1
    global_batch: int = 1
    recompute: Recompute = "none"
    optimizer: str | None = None
    method: str = "full"
    rank: int | None = None
    targets: str | None = None
    base: str | None = None
    dropout: float | None = None  # of the inputs of adapters
    offload: tuple[str, ...] = ()  # optimizer, parameters, activations
    on_cpu: bool = False

    @property
    def is_bf16(self) -> bool:
        """Whether the launch file sets bf16, as for plans in bf16 or fp8."""
        return self.precision in {"bf16", "fp8"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: machines, processes per machine, environment and training recipe.

    `comments` stand at the top of a file. `parameter_servers` counts processes that no launcher of PyTorch
    starts.
    """

    name: str
    machine: str  # as its provider names it
    machines: int
    processes_per_machine: int
    provider: str | None = None
    region: str | None = None
    spot: bool = False
    fast_network: bool = False
    parameter_servers: int = 0
    comments: tuple[str, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def processes(self) -> int:
        """Number of processes on all machines, one per device."""
        return self.machines * self.processes_per_machine


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """A format of launch files; `targets.toml` has its fields."""

    name: str
    suffixes: tuple[str, ...]
    usage: str

    def unsupported_reason(self, launch: Launch) -> str:
        """Reason why the format cannot express a launch; empty string if it can."""
        if launch.parameter_servers:
            return (
                f"{self.name} starts equal ranks and cannot start {launch.parameter_servers} parameter "
                "servers; choose a plan with --exchange allreduce, sharded or alone"
            )
        return ""

    @abstractmethod
    def render(self, launch: Launch) -> str:
        """Text of the launch file."""

    @abstractmethod
    def plan_comments(self, launch: Launch) -> Iterator[str]:
        """Yields comments about the plan for the top of the file."""

    def header_comments(self, launch: Launch) -> str:
        """Comment lines for the top of the file: how to use it, and remarks about the plan."""
        start = f"{launch.name} on {launch.machines} x {launch.machine}: {self.usage}"
        return comment_lines([start, *launch.comments, *self.plan_comments(launch)])


class ScriptTarget(Target):
    """A file that starts a training script on equal ranks, with the variables of accelerate."""

    def plan_comments(self, launch: Launch) -> Iterator[str]:
        """Yields comments that state the plan, for scripts that ignore accelerate's variables."""
        recipe = launch.recipe
        strategy = STRATEGIES.get(recipe.strategy, recipe.strategy)
        degrees = [f"{name} {value}" for name, value in recipe.mesh.items()]
        words = ", ".join([strategy, *degrees, recipe.precision])
        batch = f"micro-batch {recipe.micro_batch}, gradient accumulation {recipe.accumulate}"
        yield f"The plan: {words}; {batch}."
        yield "accelerate and Hugging Face's Trainer read the variables; other scripts set the plan."
        yield from (
            f"Not in this file: {text}" for text in omitted_settings(launch, accelerate_settings(recipe))
        )


@dataclass(frozen=True, kw_only=True)
class FrameworkTarget(Target):
    """A configuration of a training framework, which sets the whole recipe or refuses the plan.

    Plans beyond `strategies`, `axes` and `methods` are refused. Smaller settings that the file has no place
    for, all but those that it `sets`, are comments in it that say where they belong.
    """

    strategies: frozenset[str] = frozenset(STRATEGIES)
    axes: frozenset[str] = frozenset()  # mesh axes
    methods: frozenset[str] = frozenset({"full"})
    precisions: frozenset[str] = frozenset({"fp32", "bf16", "fp16"})
    sets: frozenset[str] = frozenset()  # keys of `omitted_settings`
    language_models_only: bool = False
    runs_on_cpus: bool = True

    def unsupported_reason(self, launch: Launch) -> str:
        """Settings of the plan that the framework lacks, as one reason; empty string if it has all."""
        recipe = launch.recipe
        if reason := super().unsupported_reason(launch):
            return reason
        lacks = [f"{name} {value}" for name, value in recipe.mesh.items() if name not in self.axes]
        if recipe.strategy not in self.strategies:
            lacks.append(STRATEGIES.get(recipe.strategy, recipe.strategy))
        if recipe.method not in self.methods:
            lacks.append(f"--train {recipe.method}")
        if self.language_models_only and recipe.sequence_length is None:
            lacks.append(f"{recipe.model}, which is no language model")
        if recipe.precision == "fp16" and "fp16" not in self.precisions:
            lacks.append("fp16")
        if recipe.on_cpu and not self.runs_on_cpus:
            lacks.append("CPU machines")
        return f"{self.name} has no setting for {', '.join(lacks)}" if lacks else ""

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        """Yields a note per setting that the file cannot hold: the setting and where it belongs."""
        yield from omitted_settings(launch, self.sets)
        if launch.recipe.precision not in self.precisions:
            how = SET_PRECISION.get(launch.recipe.precision, "the script sets it")
            yield f"{launch.recipe.precision}; {how}"

    def plan_comments(self, launch: Launch) -> Iterator[str]:
        """Yields a comment for each setting that is not in the file."""
        yield from (f"Not in this file: {text}" for text in self.omission_notes(launch))


def accelerate_settings(recipe: Recipe) -> frozenset[str]:
    """Keys of the settings that accelerate's configuration covers."""
    sharded = recipe.strategy in {"fsdp", "hsdp"} and not recipe.mesh
    held = {"processes", "offload optimizer", "offload parameters"}
    return frozenset(held | {"recompute"} if sharded else held)


def omitted_settings(launch: Launch, covered: Collection[str]) -> list[str]:
    """Notes on the plan's settings that are not `covered` by a file, each with where it belongs."""
    recipe = launch.recipe
    notes = {
        "processes": f"processes; start {launch.processes_per_machine} on each of {launch.machines} machines",
        "batch": (
            f"batch sizes; with Hugging Face's TrainingArguments --per_device_train_batch_size "
            f"{recipe.micro_batch} --gradient_accumulation_steps {recipe.accumulate}"
        ),
    }
    if recipe.recompute != "none":
        notes["recompute"] = "recompute; with Hugging Face's TrainingArguments --gradient_checkpointing true"
    if recipe.recompute in {"attention", "per-op"}:
        notes[recipe.recompute] = f"{recipe.recompute} recompute; the nearest setting is used"
    if recipe.optimizer is not None:
        notes["optimizer"] = f"the optimizer, {recipe.optimizer}; the script makes it"
    for part in recipe.offload:
        notes[f"offload {part}"] = f"offload of {part} to host memory"
    if recipe.method != "full":
        notes["method"] = f"--train {recipe.method}; FILE.trl.yaml is a configuration of TRL and PEFT"
    return [note for setting, note in notes.items() if setting not in covered]


LONGEST_COMMENT = 500
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


def comment_lines(lines: Sequence[str]) -> str:
    """Formats lines as `#` comments; unprintable characters are escaped, so none ends a line."""
    return "".join(f"# {escape_unprintable(line)[:LONGEST_COMMENT]}\n" for line in lines)


def to_yaml(document: Mapping[str, Any]) -> str:
    """Serializes mappings, lists, texts, numbers and booleans as one YAML document."""
    return "".join(f"{line}\n" for line in _mapping_lines(document, 0))


def quote_shell_word(text: str) -> str:
    """Quotes a text as one shell word; unprintable characters are escaped."""
    return shlex.quote(escape_unprintable(text))


def dns_label(name: str) -> str:
    """Converts a name to at most 63 lower-case letters, digits and hyphens for Kubernetes and Slurm."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "train"


def _mapping_lines(values: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yields the YAML lines of a mapping in block style, indented by `depth`."""
    for name, value in values.items():
        plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _YAML_WORDS
        yield from _key_value_lines(f"{'  ' * depth}{name if plain else _quote_text(name)}:", value, depth)


def _key_value_lines(head: str, value: Any, depth: int) -> Iterator[str]:
    """Yields the YAML lines of one key and its value, in the shortest style that can hold it."""
    if isinstance(value, Mapping) and value:
        yield head
        yield from _mapping_lines(value, depth + 1)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) and item for item in value):
        yield head
        for item in value:
            first, *rest = _mapping_lines(item, depth + 2)
            yield f"{'  ' * (depth + 1)}- {first.lstrip(' ')}"
            yield from rest
    elif isinstance(value, str) and _can_be_block(value):
        yield f"{head} |"
        yield from (f"{'  ' * (depth + 1)}{line}" for line in value.rstrip("\n").split("\n"))
    else:
        yield f"{head} {flow_value(value)}"


def _can_be_block(text: str) -> bool:
    """Whether a text can be written as a literal YAML block (`|`)."""
    lines = text.removesuffix("\n").split("\n")
    return (
        text.endswith("\n")
        and all(line and line.isascii() and line.isprintable() for line in lines)
        and not lines[0].startswith(" ")
    )


def flow_value(value: Any) -> str:
    """Formats a value as YAML in flow style, on one line."""
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow_value, value))}]"
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{_quote_text(name)}: {flow_value(inner)}' for name, inner in value.items())}}}"
        )
    if value is None or isinstance(value, bool | int | float):
        # YAML 1.1 reads 2e-05 as text: numbers need a point
        return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))
    raise TypeError(f"{type(value).__name__} has no form in YAML here")


def _quote_text(text: str) -> str:
    """Formats a text as double-quoted YAML; non-ASCII characters are escaped by code point."""
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'
