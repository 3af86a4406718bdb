"""The build backend: scikit-build-core, after a look at what it cannot install by itself.

CMake and ninja come from the package index where the system has none. A C++20 compiler and Python's headers
do not: without them a build would end after a page of CMake. Here it ends with one sentence, the first time
an installer asks what the build needs. `PLANNER_NO_ENGINE=1` builds a wheel without the compiled engine,
which any machine can do; its answers are the same, and simulations in Python a hundred times slower.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from scikit_build_core import build as skbuild
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None
COMPILERS = ("c++", "g++", "clang++")
PROBE = "#include <concepts>\n#include <span>\nint main() { return int(std::span<int>().size()); }\n"
INSTALL = {
    "Darwin": "run `xcode-select --install`",
    "Linux": "install one (`apt install g++ python3-dev`, `dnf install gcc-c++ python3-devel`)",
}
WITHOUT = (
    "or set PLANNER_NO_ENGINE=1 to install without the engine (simulations take about 100 times as long)"
)


def missing() -> str | None:
    """What stands in the way of compiling the engine, and the remedy, in a sentence; None if nothing does."""
    remedy = f"{INSTALL.get(platform.system(), 'install one')}, {WITHOUT}"
    compiler = _compiler()
    if compiler is None:
        named = os.environ.get("CXX")
        what = f"CXX names {named!r}, which is not there" if named else "there is no C++ compiler"
        return f"{what}, and the engine is C++20; {remedy}"
    if not _compiles(compiler):
        return f"{compiler[0]} does not compile C++20, which takes GCC 11, Clang 14 or later; {remedy}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        where = sysconfig.get_path("include")
        return f"Python's headers are not there ({where}/Python.h), and the engine needs them; {remedy}"
    return None


def _compiler() -> list[str] | None:
    """The words that call a C++ compiler, found as CMake finds it."""
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else [[name] for name in COMPILERS]:
        which = shutil.which(words[0])
        if which:
            return [which, *words[1:]]
    return None


def _compiles(compiler: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(PROBE)
        done = subprocess.run(
            [*compiler, "-std=c++20", "-fsyntax-only", str(source)], capture_output=True, check=False
        )
    return done.returncode == 0


def _without_engine() -> bool:
    return os.environ.get("PLANNER_NO_ENGINE", "") not in ("", "0")


def _settings(given: Settings) -> Settings:
    """The settings for scikit-build-core; leaves with a sentence where the engine cannot be compiled."""
    if _without_engine():
        return {**(given or {}), "wheel.cmake": "false", "wheel.py-api": "py3"}
    if platform.system() != "Windows":  # where compilers are not found on the path
        why = missing()
        if why is not None:
            sys.exit(f"planner: {why}")
    return given


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return skbuild.get_requires_for_build_wheel(_settings(config_settings))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return skbuild.get_requires_for_build_editable(_settings(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return skbuild.prepare_metadata_for_build_wheel(metadata_directory, _settings(config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return skbuild.prepare_metadata_for_build_editable(metadata_directory, _settings(config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return skbuild.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return skbuild.build_editable(wheel_directory, _settings(config_settings), metadata_directory)
