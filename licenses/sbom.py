"""What an installation of planner consists of, as CycloneDX 1.6: dependencies, and what wheels carry.

    python licenses/sbom.py [--extra cluster] [-o sbom.cdx.json]

Looks at the environment that runs it, so that versions are those that were installed and tested together.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", action="append", default=[], help="count an optional dependency in")
    parser.add_argument("-o", "--output", type=Path, help="a file instead of stdout")
    asked = parser.parse_args()
    text = json.dumps(bill(asked.extra), indent=1) + "\n"
    if asked.output:
        asked.output.write_text(text)
    else:
        sys.stdout.write(text)


def bill(extras: list[str]) -> dict[str, Any]:
    """The whole document."""
    result = dependencies("dnn-planner", extras)
    own = result.pop("dnn-planner")
    components = [component_of(one) for _, one in sorted(result.items())] + vendored()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": {**component_of(own), "type": "application"}},
        "components": components,
    }


def dependencies(name: str, extras: list[str]) -> dict[str, Distribution]:
    """A distribution and all that it needs in this environment, by normalized name."""
    by_name: dict[str, Distribution] = {}
    wanted = [(name, tuple(extras))]
    while wanted:
        first, extras_of_it = wanted.pop()
        key = re.sub(r"[-_.]+", "-", first).lower()
        if key in by_name and not extras_of_it:
            continue
        try:
            by_name[key] = distribution(first)
        except PackageNotFoundError:  # for another system or another Python
            continue
        for line in by_name[key].requires or []:
            needed = re.match(r"([A-Za-z0-9._-]+)(?:\[([^]]*)\])?", line)
            named = re.search(r"extra *== *['\"]([^'\"]+)['\"]", line)
            if needed and (named is None or named[1] in extras_of_it):
                wanted.append((needed[1], tuple(filter(None, (needed[2] or "").split(",")))))
    return by_name


def component_of(one: Distribution) -> dict[str, Any]:
    name, version = one.metadata["Name"], one.version
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name.lower()}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower()}@{version}",
    }
    expression = one.metadata.get("License-Expression")
    said = one.metadata.get("License") or ""
    if expression:
        component["licenses"] = [{"expression": expression}]
    elif said and "\n" not in said and len(said) < 80:
        component["licenses"] = [{"license": {"name": said}}]
    else:
        kinds = [k for k in one.metadata.get_all("Classifier") or [] if k.startswith("License :: ")]
        if kinds:
            component["licenses"] = [{"license": {"name": kinds[0].rpartition(" :: ")[2]}}]
    return component


def vendored() -> list[dict[str, Any]]:
    """What others wrote and a wheel carries."""
    listed = tomllib.loads((ROOT / "licenses/vendored.toml").read_text())["component"]
    return [
        {
            "type": "library",
            "bom-ref": entry["purl"],
            "name": entry["name"],
            "version": entry["version"] or "as built",
            "purl": entry["purl"],
            "description": entry["what"],
            "licenses": [{"license": {"id": entry["licence"]}}],
        }
        for entry in listed
    ]


if __name__ == "__main__":
    main()
