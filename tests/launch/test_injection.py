"""Text of strangers' files in everything that planner writes: parsed back, no payload leaves its place.

Two lines of defence, each tested by itself: readers refuse names that are no single line of printable text,
and every writer goes through a serializer, so that even a name made by a program stays the value that it is.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.answers.answer_files import read_chosen_plan
from planner.answers.checking import measured_speed
from planner.answers.launching import launch_of
from planner.answers.questions import Simulation, parse_request, read_scenario
from planner.answers.timeline import timeline_of
from planner.calibrate.accelerator import to_toml
from planner.device.recorded import open_profile
from planner.device.recorded.importers import import_profile
from planner.errors import BadInput, escape_unprintable
from planner.files.tomlfile import LONGEST_NAME
from planner.hardware.catalog import load_hardware
from planner.hardware.inventory import MachineAnswers, machine_tables
from planner.hardware.prices.lists import read_list
from planner.launch import TARGETS, Launch, Recipe
from planner.launch._base import dns_label
from planner.model.catalog import load_model
from planner.model.importers import import_file
from planner.report.chrome import write_chrome
from planner.report.html import notebook_html, render_page
from planner.report.output import Format, render
from planner.report.page import Page, Remark, Table, page_of
from planner.report.simulate import saved_run_lines
from planner.validation.own import read_user_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/robustness"))

import readers as fuzzed
from seeds import small_run_metadata

yaml = pytest.importorskip("yaml")
DATA = Path(__file__).parents[1] / "data"

BREAKING = (  # hold a character that no name has
    "x\ntouch OWNED",
    "x\rtouch OWNED",
    "x\r\ntouch OWNED\r\n",
    "\n# heading",
    "\n---\napiVersion: v1\nkind: Pod\nspec: {privileged: true}",
    "g5\napiVersion: v1\nkind: Pod",
    "x\u2028touch OWNED",
    "x\u2029touch OWNED",
    "x\u0085touch OWNED",
    "x\x0btouch OWNED",
    "x\x0ctouch OWNED",
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b1mred",
    "\u202etxt.exe",
    "\u200bzero width",
    "a\tb",
    "a\x00b",
    "x\n$(touch OWNED)",
    "x'\ntouch OWNED\n'",
    'x"\ntouch OWNED\n"',
    "x\\\ntouch OWNED",
    "x\n| a | b |",
    "x\n```\ncode",
    "\ufeffbom",
    "\ud800lone",
)
QUOTING = (  # one line of printable text that would act where it is pasted
    "$(touch OWNED)",
    "`touch OWNED`",
    "; touch OWNED #",
    "' ; touch OWNED ; '",
    '" ; touch OWNED ; "',
    "&& touch OWNED",
    "> OWNED",
    "${IFS}touch${IFS}OWNED",
    "!!python/object/apply:os.system [touch OWNED]",
    "{a: b}",
    "- item",
    "key: value # comment",
    "&anchor *anchor",
    "%TAG ! tag:x",
    "<script>touch()</script>",
    "</script><script>alert(1)//",
    "<img src=x onerror=alert(1)>",
    "]]><b>",
    "[link](javascript:alert(1))",
    "![i](http://x)",
    "=cmd|'/c calc'!A1",
    "+1+1",
    "@SUM(A1)",
    "a|b|c",
    "a\\|b",
    "# heading",
    "no",
    "1e3",
    "null",
    "\U0001f600 smile",
)
PAYLOADS = BREAKING + QUOTING
IDS = [ascii(payload) for payload in PAYLOADS]


# Readers: what breaks a line is refused in one line that names the place.


def toml_text(text: str) -> str:
    """A text in TOML; JSON's escapes are TOML's but for one character and those by units of UTF-16."""
    return json.dumps(text, ensure_ascii=not text.isprintable()).replace("\x7f", "\\u007f")


def hardware_file(**texts: str) -> str:
    values = {
        "machine": "box", "device": "mine", "offered_as": "box-1", "alias": "b", "region": "here",
        "other_region": "there", "provider": "lab", "family": "f", "nic_label": "n", "cpu": "c",
    } | texts  # fmt: skip
    quoted = {
        name: json.dumps(text, ensure_ascii=not text.isprintable()).replace("\x7f", "\\u007f")
        for name, text in values.items()
    }
    return """
provider = {provider}
family = {family}
[machines.{machine}]
device = {device}
offered_as = {offered_as}
aliases = [{alias}]
region = {region}
nic_label = {nic_label}
cpu = {cpu}
on_demand_usd_per_hour = 1.0
memory_gib = 64.0
other_regions = {{ {other_region} = [1.0] }}
[devices.{device}]
kind = "gpu"
fp32_tflops = 10.0
memory_gib = 16.0
memory_gbyte_per_s = 500.0
""".format(**quoted)


PROFILE = {
    "format": "planner-profile", "version": 1, "model": "net", "batch": 4, "hardware": "V100",
    "tensors": ["w"], "basis": "measured",
    "ops": [
        {"name": "download/w", "resource": "downlink", "server": 0, "bytes": 4, "tensor": 0},
        {"name": "forward", "resource": "worker", "deps": [0]},
        {"name": "upload/w", "resource": "uplink", "server": 0, "bytes": 4, "deps": [1], "tensor": 0},
    ],
    "durations_s": [[0.0, 0.1, 0.0]],
}  # fmt: skip
ANSWER = {
    "model": "net", "batch": 4, "worker_hardware": "p3.2xlarge", "workers": 2, "cluster": "2 x",
    "device": "V100", "samples_per_s": 10.0, "number_format": "fp32", "bottleneck": "worker",
}  # fmt: skip


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def read_hardware(folder: Path, field: str, payload: str) -> Any:
    return load_hardware(str(written(folder / "h.toml", hardware_file(**{field: payload}))))


def read_profile(folder: Path, field: str, payload: str) -> Any:
    record: dict[str, Any] = json.loads(json.dumps(PROFILE))
    if field == "tensors":
        record["tensors"] = [payload]
    elif field == "op":
        record["ops"][1]["name"] = payload
    else:
        record[field] = payload
    return open_profile(written(folder / "p.json", json.dumps(record)))


def read_answer(folder: Path, field: str, payload: str) -> Any:
    answer = {"version": 2, "plan": ANSWER | {field: payload}}
    return read_chosen_plan(written(folder / "a.json", json.dumps(answer)))


def read_network(folder: Path, field: str, payload: str) -> Any:
    if field == "file name":
        if "/" in payload or "\x00" in payload or "\ud800" in payload or len(payload) > 250:
            raise BadInput("no file has this name")
        path = folder / f"{payload}.toml"
        return load_model(written(path, "input = [4]\nlayers = [{ fc = 2 }]\n"))
    keys = {"layer": "", "tensor": ""} | {field: payload}
    name, kernel = json.dumps(keys["layer"] or "f"), json.dumps(keys["tensor"] or "{layer}/w")
    text = f"input = [4]\nlayers = [{{ fc = 2, name = {name} }}]\n[tensors]\nfc = {kernel}\n"
    return load_model(written(folder / "m.toml", text))


CONFIG = {
    "model_type": "llama", "_name_or_path": "org/net", "hidden_act": "silu", "torch_dtype": "bfloat16",
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
    "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip


TENSORS_OF = ("tensor of the index", "tensor of the weights")


def read_config(folder: Path, field: str, payload: str) -> Any:
    """A config.json of Hugging Face with an index of weights beside it."""
    config = CONFIG | ({field: payload} if field in CONFIG else {})
    tensors = {payload if field == "tensor of the index" else "w": "a.safetensors"}
    written(folder / "model.safetensors.index.json", json.dumps({"weight_map": tensors}))
    header = json.dumps({payload if field == "tensor of the weights" else "w": {"shape": [1]}}).encode()
    (folder / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return import_file(written(folder / "config.json", json.dumps(config)))


def read_family(folder: Path, field: str, payload: str) -> Any:
    """A family of the user's own, and a network of it."""
    texts = {"description": "f", "layer": "extra", "note": "n"} | {field: payload}
    layer, note = json.dumps(texts["layer"]), json.dumps(texts["note"])
    (folder / "families").mkdir(exist_ok=True)
    text = f"base = 'llama'\ndescription = {json.dumps(texts['description'])}\n"
    text += f"[notes]\n'hidden_size > 1' = {note}\n"
    text += f"[file]\nlayers = [{{ embedding = 9, features = 4 }}, {{ linear = 4, name = {layer} }}]\n"
    written(folder / "families" / "own.toml", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANNER_PATH", str(folder))
        config = json.dumps(CONFIG | {"model_type": "own"})
        return import_file(written(folder / "config.json", config))


def read_prices(folder: Path, field: str, payload: str) -> Any:
    """A price list; of the machines that the catalog lacks nothing is kept."""
    rows = {"machine": "p3.2xlarge", "region": "us-east-1"} | {field: payload}
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("InstanceType", "Price", "SpotPrice", "Region"))
    writer.writerow(("p3.2xlarge", 3.06, 1.0, "us-east-2"))
    writer.writerow((rows["machine"], 3.06, 1.0, rows["region"]))
    return read_list(written(folder / "vms.csv", table.getvalue()), "aws")


def read_trace(folder: Path, field: str, payload: str) -> Any:
    """A recorded step of PyTorch."""
    trace = json.loads(gzip.decompress((DATA / "pytorch" / "plain.json.gz").read_bytes()))
    first = next(event for event in trace["traceEvents"] if event.get("cat") == "cpu_op")
    words = {"op": first["name"], "model": "m", "device": "V100"} | {field: payload}
    for event in trace["traceEvents"]:
        if event["name"] == first["name"]:
            event["name"] = words["op"]
    trace["planner"] = {"version": 1, "batch": 8, "model": words["model"], "device": words["device"]}
    return import_profile([written(folder / "t.json", json.dumps(trace))], batch=8)


def read_inventory(folder: Path, field: str, payload: str) -> Any:
    """A hardware file made of what lscpu prints."""
    lscpu = f"Model name: {payload}\nCPU(s): 8\n"
    tables = machine_tables(MachineAnswers("own", gpu="V100-SXM2-16GB", gpus=1, lscpu=lscpu))
    return load_hardware(str(written(folder / "own.toml", to_toml(tables))))


def read_onnx(folder: Path, field: str, payload: str) -> Any:
    helper = pytest.importorskip("onnx").helper
    names = {"tensor": "w", "node": "n", "graph": "g"} | {field: payload}
    if "\ud800" in payload:
        raise BadInput("no text in protobuf")
    node = helper.make_node("MatMul", ["x", names["tensor"]], ["y"], name=names["node"])
    weight = helper.make_tensor(names["tensor"], 1, [4, 2], [0.0] * 8)
    given, made = (helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy")
    graph = helper.make_graph([node], names["graph"], [given], [made], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return import_file(folder / "net.onnx")


def read_runs(folder: Path, field: str, payload: str) -> Any:
    """A user's table of runs."""
    row = {
        "model": "resnet50", "device": "V100-SXM2", "devices": "8", "devices_per_node": "8",
        "micro_batch": "128", "precision": "fp16", "samples_per_s_global": "6000", "framework": "PyTorch",
        "source": "mine",
    } | {field: payload}  # fmt: skip
    table = io.StringIO()
    writer = csv.DictWriter(table, row, lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return read_user_rows(written(folder / "runs.csv", table.getvalue()))


def read_measured(folder: Path, field: str, payload: str) -> Any:
    """Runs that `planner check` kept, as it lists them."""
    run = {
        "device": "V100", "reach": "device", "model": "alexnet", "precision": "fp32", "as_of": "2026-11-01",
        "note": "n", "predicted_samples_per_s": 900.0, "measured_samples_per_s": 850.0,
    } | {field: payload}  # fmt: skip
    written(folder / "measured.json", json.dumps({"version": 1, "runs": [run]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANNER_HOME", str(folder))
        return [escape_unprintable(line) for line in saved_run_lines()]


def read_training_log(folder: Path, field: str, payload: str) -> Any:
    """The speed of a run from a series with a hostile name."""
    rows = [{field: 0.5, f"{field} {payload}": 0.5} for _ in range(4)]
    return measured_speed(written(folder / "log.json", json.dumps(rows)), 8)


def read_scenario_file(folder: Path, field: str, payload: str) -> Any:
    values = {"model": "vgg11", "hardware": "p3.2xlarge", "region": "us-east-1"} | {field: payload}
    text = "".join(f"{key} = {toml_text(value)}\n" for key, value in values.items())
    request = parse_request(**read_scenario(written(folder / "s.toml", text)))
    return planner.simulate(**{"workers": 1, **values}) and request


def read_tensorflow(folder: Path, field: str, payload: str) -> Any:
    """RunMetadata of TensorFlow with a hostile name of a variable."""
    path = folder / "step.pb"
    variable = payload.encode("utf-8", "replace").decode()  # protobuf texts hold no lone surrogates
    path.write_bytes(small_run_metadata(variable))
    return import_profile([path], batch=8)


READERS: dict[str, tuple[Callable[[Path, str, str], Any], tuple[str, ...]]] = {
    "hardware": (
        read_hardware,
        (
            "machine",
            "device",
            "offered_as",
            "alias",
            "region",
            "other_region",
            "provider",
            "family",
            "nic_label",
            "cpu",
        ),
    ),
    "profile": (read_profile, ("model", "hardware", "basis", "tensors", "op")),
    "answer": (read_answer, ("model", "worker_hardware", "cluster", "device", "number_format")),
    "model": (read_network, ("file name", "layer", "tensor")),
    "config": (
        read_config,
        (
            "_name_or_path",
            "model_type",
            "hidden_act",
            "torch_dtype",
            "tensor of the index",
            "tensor of the weights",
        ),
    ),
    "family": (read_family, ("description", "layer", "note")),
    "prices": (read_prices, ("machine", "region")),
    "trace": (read_trace, ("op", "model", "device")),
    "inventory": (read_inventory, ("cpu",)),
    "onnx": (read_onnx, ("tensor", "node", "graph")),
    "runs": (read_runs, ("model", "device", "precision", "framework", "source")),
    "measured": (read_measured, ("device", "model", "precision", "as_of")),
    "training log": (read_training_log, ("step_time",)),
    "scenario": (read_scenario_file, ("model", "hardware", "region")),
    "tensorflow": (read_tensorflow, ("variable",)),
}
COVERED_BY = {  # readers that are fuzzed, by the one here that reads their names; without names: None
    "config": "scenario", "sweep": "scenario", "run_metadata": "tensorflow",
    "pytorch": "trace", "priorities": "profile", "simulated": "profile", "window": None, "aws": "prices",
    "transfers": None, "weights_index": "config", "layouts": "runs", "log_table": "training log",
    "log_rows": "training log", "mlflow": "training log", "tensorboard": "training log",
    "hugging_face": "config", "safetensors": "config",
}  # fmt: skip
FIELDS = [(reader, field) for reader, (_, fields) in READERS.items() for field in fields]


def texts_in(value: Any) -> Iterator[str]:
    """All texts inside an object that a reader made."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts_in(key)
            yield from texts_in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from texts_in(inner)
    elif names := getattr(value, "__dataclass_fields__", getattr(value, "__struct_fields__", ())):
        for name in names:
            yield from texts_in(getattr(value, name, None))


TOO_LONG = "n" * (LONGEST_NAME * 10)
REPLACED = {  # fields whose text is not kept as it is, or not as a name
    ("config", "_name_or_path"), ("config", "hidden_act"), ("config", "torch_dtype"),
    ("prices", "machine"), ("prices", "region"), ("trace", "op"), ("family", "description"),
    ("family", "note"), ("inventory", "cpu"), ("tensorflow", "variable"),
    *(("runs", field) for field in ("model", "device", "precision", "framework", "source")),
    ("onnx", "node"), ("onnx", "graph"),
}  # fmt: skip


def test_every_reader_that_is_fuzzed_has_hostile_names_here() -> None:
    missing = {name for name in fuzzed.READERS if COVERED_BY.get(name, name) not in {*READERS, None}}
    assert not missing


@pytest.mark.parametrize(("reader", "field"), FIELDS)
def test_readers_refuse_names_that_break_a_line(reader: str, field: str, tmp_path: Path) -> None:
    read, _ = READERS[reader]
    if reader != "scenario" and (reader, field) != ("config", "model_type"):  # known names only
        read(tmp_path, field, "plain-name")
    for payload in (*BREAKING, TOO_LONG):
        try:
            result = read(tmp_path, field, payload)
        except BadInput as refused:
            result = str(refused)
        else:
            assert (reader, field) in REPLACED, payload
        assert all(text.isprintable() and TOO_LONG not in text for text in texts_in(result)), payload


# Writers: every text field of a launch, in every target. A file is parsed with a plain word in the field and
# with a payload: both have the same shape, and the payload is where the word was.


WORD = "plainword"
KNOWN_WORDS = {  # fields that planner fills from its own lists
    "provider", "strategy", "mesh", "precision", "recompute", "optimizer", "method", "targets", "base",
    "offload",
}  # fmt: skip
LAUNCH_FIELDS = [
    field.name
    for record in (Launch, Recipe)
    for field in dataclasses.fields(record)
    if "str" in str(field.type) and field.name not in KNOWN_WORDS
]
RECIPE = Recipe(model="llama3-8b", sequence_length=2048, method="full", global_batch=16)


def launch(field: str, payload: str) -> Launch:
    plain = Launch(
        "net",
        "p5.48xlarge",
        2,
        8,
        "aws",
        "us-east-1",
        comments=("c",),
        recipe=RECIPE,
    )
    if field in {"model", "checkpoint"}:
        return dataclasses.replace(plain, recipe=dataclasses.replace(RECIPE, **{field: payload}))
    value: Any = (payload,) if field == "comments" else payload
    return dataclasses.replace(plain, **{field: value})


def run_script(script: str, folder: Path) -> dict[str, Any]:
    """What a script starts: the words that its torchrun gets, and its lines."""
    stubs = {
        "torchrun": 'for word in "$@"; do printf "%s\\0" "$word"; done',
        "srun": '"$@"',
        "scontrol": "echo first",
    }
    for name, body in stubs.items():
        stub = folder / name
        stub.write_text(f"#!/bin/sh\n{body}\n")
        stub.chmod(0o755)
    (folder / "p.sh").write_text(script)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "a", "MODULE": "m", "CONFIG": "c"}
    run = subprocess.run(["bash", "p.sh"], cwd=folder, env=env, capture_output=True, check=True)
    assert not run.stderr
    assert not (folder / "OWNED").exists()
    batch = [line for line in script.split("\n") if line.startswith("#SBATCH")]
    return {"words": run.stdout.decode().split("\0")[:-1], "batch": batch, "lines": script.count("\n")}


def parsed(target: Any, given: Launch, folder: Path) -> Any:
    """A launch file as what reads it sees it."""
    text = target.render(given)
    assert all(line.isprintable() for line in text.split("\n"))
    suffix = target.suffixes[0]
    if suffix.endswith(".json"):
        return json.loads(text)
    if suffix.endswith(".yaml"):
        (document,) = yaml.safe_load_all(text)
        return document
    assert text.startswith("#!/usr/bin/env bash\n"), "no parser for this format: add one"
    return run_script(text, folder)


def assert_same_shape(plain: Any, given: Any, payload: str) -> None:
    """The same keys, lengths and types; and texts differ by the payload in the place of the word."""
    assert type(plain) is type(given), payload
    if isinstance(plain, dict):
        assert list(plain) == list(given), payload
        for key in plain:
            assert_same_shape(plain[key], given[key], payload)
    elif isinstance(plain, list):
        assert len(plain) == len(given), payload
        for before, after in zip(plain, given, strict=True):
            assert_same_shape(before, after, payload)
    elif isinstance(plain, str) and WORD in plain:
        last = payload.rpartition("/")[2] or RECIPE.model  # the folder of a checkpoint
        forms = (payload, escape_unprintable(payload), dns_label(payload), last, escape_unprintable(last))
        shown = {plain.replace(WORD, form) for form in forms}
        assert given in shown, payload
    else:
        assert given == plain, payload


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("field", LAUNCH_FIELDS)
def test_launch_files_keep_their_shape(target: Any, field: str, tmp_path: Path) -> None:
    plain = launch(field, WORD)
    if target.unsupported_reason(plain):  # a network that it does not know: of any name
        assert field == "model"
        assert all(target.unsupported_reason(launch(field, payload)) for payload in PAYLOADS)
        return
    expected = parsed(target, plain, tmp_path)
    for payload in PAYLOADS:
        assert_same_shape(expected, parsed(target, launch(field, payload), tmp_path), payload)


# Reports: every text of a page, in every format.


PAGE_FIELDS = ("title", "answer", "fact", "label", "sentence", "cell", "caption", "note")


def page(field: str, payload: str) -> Page:
    texts = dict.fromkeys(
        ("title", "answer", "fact", "label", "sentence", "cell", "caption", "note"), "plain"
    )
    texts[field] = payload
    table = Table([{"name": texts["cell"], "n": 1}], title=texts["caption"], notes=[texts["note"]])
    return Page(
        title=texts["title"],
        headline=texts["answer"],
        facts=[[texts["fact"]]],
        why=[Remark(texts["label"], [texts["sentence"]])],
        tables=[table],
    )


class Answer:
    """Something whose page a notebook shows."""

    page_maker = f"{__name__}.page_of_answer"

    def __init__(self, page: Page) -> None:
        self.page = page


def page_of_answer(answer: Answer, *_: Any, **__: Any) -> Page:
    return answer.page


def in_notebook(page: Page) -> str:
    return notebook_html(Answer(page))


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag + "".join(sorted(f" {name}" for name, _ in attrs)))


@pytest.mark.parametrize("field", PAGE_FIELDS)
def test_reports_keep_their_structure(field: str) -> None:
    plain = page(field, "plain")
    lines = {
        format: render(plain, format).count("\n") for format in (Format.json, Format.csv, Format.markdown)
    }
    plain_tags = {write: Tags(write(plain)).tags for write in (render_page, in_notebook)}
    for payload in PAYLOADS:
        if "\ud800" in payload:
            continue  # no text in UTF-8: refused where it is read, and by JSON
        given = page(field, payload)
        rows = list(csv.reader(io.StringIO(render(given, Format.csv))))
        assert [len(row) for row in rows] == [2, 2], payload
        if field == "cell":
            assert json.loads(render(given, Format.json))[0]["name"] == payload
            assert rows[1][0].lstrip("'") == escape_unprintable(payload).lstrip("'"), payload
            assert rows[1][0][0] not in "=+-@", payload
        markdown = render(given, Format.markdown)
        assert markdown.count("\n") == lines[Format.markdown], payload
        assert not any(line.startswith(("#", "```", "---", "- ")) for line in markdown.split("\n")), payload
        assert not re.search(r"<[a-z/!]|(?<!\\)\]\(", markdown), payload
        for format in (Format.table, Format.markdown, Format.csv, Format.json):
            assert all(line.isprintable() for line in render(given, format).split("\n")), payload
        for write, expected in plain_tags.items():
            # a table's title may have several lines, each with its own tags
            lines_of_title = ("p", "b") if field == "caption" and payload.splitlines()[1:] else ()
            tags = [tag for tag in Tags(write(given)).tags if tag not in lines_of_title]
            assert tags == [tag for tag in expected if tag not in lines_of_title], payload


# Whole answers: a stranger's network on a stranger's machine, in every format of results and launch files.


def answer_of(folder: Path, payload: str) -> Simulation:
    """A plan in which every name that files give is the payload, or begins with it."""
    folder.mkdir()
    fields = READERS["hardware"][1]
    names = {name: payload if name == "machine" else f"{payload}{k}" for k, name in enumerate(fields)}
    for kind in ("machine", "device", "alias"):
        names[kind] = re.sub(r"[*?[\],:/]", "", names[kind])  # which such names may not hold
    hardware = written(folder / "h.toml", hardware_file(**names))
    file_name = payload.replace("/", "").lstrip(".")
    layer = toml_text(re.sub("[{}/]", "", payload))
    network = f"input = [4]\nlayers = [{{ fc = 8 }}, {{ fc = 2, name = {layer} }}]\n"
    model = written(folder / f"{file_name}.toml", network)
    settings: dict[str, Any] = {"workers": 2, "exchange": "allreduce", "bandwidth": "10Gbit"}
    return planner.simulate(str(model), hardware=str(hardware), **settings)


def shape_of(value: Any) -> Any:
    """Types, keys and lengths of a parsed document."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in value.items()}
    return [shape_of(inner) for inner in value] if isinstance(value, list) else type(value)


PARSERS: dict[Format, Callable[[str], Any]] = {
    Format.json: lambda text: shape_of(json.loads(text)),
    Format.csv: lambda text: [len(row) for row in csv.reader(io.StringIO(text))],
    Format.markdown: lambda text: [line.count(" | ") for line in text.split("\n") if line.startswith("| ")],
    Format.table: lambda text: None,
}


def outputs_of(answer: Simulation, folder: Path) -> dict[str, Any]:
    """Every output that planner writes of an answer, parsed."""
    page, out = page_of(answer), dict[str, Any]()
    for format in Format:
        text = render(page, format)
        assert all(line.isprintable() for line in text.split("\n"))
        out[format] = PARSERS[format](text)
    out["html"] = Tags(render_page(page)).tags
    out["notebook"] = Tags(notebook_html(answer)).tags
    write_chrome(timeline_of(answer.request, answer.scored.plan, steps=1), folder / "t.json")
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    out["timeline"] = [shape_of(event) for event in events]
    launch = launch_of(answer.scored, answer.request)
    for target in TARGETS:
        if not target.unsupported_reason(launch):
            out[target.name] = shape_of(parsed(target, launch, folder))
    return out


def test_every_output_of_an_answer_keeps_its_structure(tmp_path: Path) -> None:
    assert set(PARSERS) == set(Format)
    plain = outputs_of(answer_of(tmp_path / "plain", WORD), tmp_path)
    for index, payload in enumerate(QUOTING):
        outputs = outputs_of(answer_of(tmp_path / str(index), payload), tmp_path)
        assert outputs.keys() == plain.keys(), payload
        for name, expected in plain.items():
            assert outputs[name] == expected, (name, payload)


def test_strangers_profile_adds_no_line_to_a_script(tmp_path: Path) -> None:
    """The attack of the report: the model of a profile ends the comment at the head of the script."""
    (tmp_path / "evil.json").write_text(json.dumps(PROFILE | {"model": "x\ntouch OWNED"}))
    done = subprocess.run(
        [sys.executable, "-m", "planner", "simulate", "--profile", "evil.json", "--export", "p.sh"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "evil.json: model: the name 'x\\ntouch OWNED'" in done.stderr
    assert not (tmp_path / "p.sh").exists()
