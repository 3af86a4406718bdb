"""Files about the project agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert planner.__version__ == PROJECT["version"] == cited[1]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash_with_their_version(path):
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


def test_action_has_one_hash():
    used = {
        match for path in WORKFLOWS for match in re.findall(r"uses: ([\w./-]+)@(\w+ # \S+)", path.read_text())
    }
    assert len(used) == len({action for action, _ in used})


def test_supported_pythons_are_tested_and_built():
    stated = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/test.yml").read_text())
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    assert set(re.findall(r"3\.\d+", tested[1])) == stated
    assert {f"3.{tag[3:5]}" for tag in built} == stated


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=str)
def test_links_between_pages_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)]*)?\)", text):
        there = (path.parent / target) if target else path
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor[1:] in {
                re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings
            }


def test_benchmarks_readme_lists_every_program():
    folder = ROOT / "benchmarks"
    programs = {
        path.name
        for path in (*folder.rglob("*.py"), *folder.rglob("*.sh"))
        if path.suffix == ".sh" or '__name__ == "__main__"' in path.read_text()
    }
    listed = set(re.findall(r"`([\w-]+\.(?:py|sh))", (folder / "README.md").read_text()))
    assert listed == programs
