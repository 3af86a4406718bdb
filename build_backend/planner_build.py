"""The build backend: scikit-build-core, with a compiler from the package index where the system has none.

CMake and ninja come from the package index where they are missing, and so does a C++20 compiler: the package
`ziglang` contains one and is requested only if none is found. Without Python's headers, which no package
has, and with `PLANNER_NO_ENGINE=1`, the wheel has no compiled engine: its answers are the same and
simulations take about a hundred times as long. A warning at run time says so, as installers hide output.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
ZIG = "ziglang"
ZIG_MACHINES = ("x86_64", "aarch64", "arm64", "armv7l", "i686", "ppc64le", "riscv64", "s390x")
NO_ENGINE = {"wheel.cmake": "false", "wheel.py-api": "py3"}


def toolchain() -> tuple[str, str]:
    """Where the C++ compiler comes from ("system", "zig" or "none") and why it is not the system's."""
    if os.environ.get("PLANNER_NO_ENGINE", "") not in ("", "0"):
        return "none", "PLANNER_NO_ENGINE is set"
    if platform.system() == "Windows":  # where compilers are not found on the path
        return "system", ""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists():
        return "none", f"Python's headers are not installed ({headers}; `apt install python3-dev`)"
    named = shlex.split(os.environ.get("CXX", ""))
    compiler = _system_compiler(named)
    if compiler is None and named:
        sys.exit(f"planner: CXX names {named[0]!r}, which is not there; correct CXX or unset it")
    if compiler is not None and _compiles(compiler):
        return "system", ""
    why = f"{compiler[0]} does not compile C++20" if compiler else "no C++ compiler was found"
    return ("zig" if platform.machine() in ZIG_MACHINES else "none"), why


def _system_compiler(named: list[str]) -> list[str] | None:
    """The words that call a C++ compiler, found as CMake finds it."""
    for words in [named] if named else [[name] for name in COMPILERS]:
        which = shutil.which(words[0])
        if which:
            return [which, *words[1:]]
    return None


def _compiles(compiler: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(PROBE)
        command = [*compiler, "-std=c++20", "-c", str(source), "-o", str(source.with_suffix(".o"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _requirements(settings: Settings, hook: str) -> list[str]:
    source, why = toolchain()
    requires: list[str] = getattr(skbuild, hook)(_settings(settings, source, why))
    return [*requires, ZIG] if source == "zig" else requires


def _settings(settings: Settings, source: str, why: str) -> Settings:
    """The settings for scikit-build-core; says why the wheel has no engine or where its compiler is from."""
    if source == "none":
        print(f"planner: installing without the compiled engine: {why}", file=sys.stderr)
        return {**(settings or {}), **NO_ENGINE}
    if source == "zig":
        print(f"planner: {why}; compiling the engine with {ZIG} from the package index", file=sys.stderr)
    return settings


@contextmanager
def _ready_to_build(settings: Settings) -> Iterator[Settings]:
    """Settings to build with, while the compiler that they need can be called."""
    source, why = toolchain()
    spec = importlib.util.find_spec(ZIG) if source == "zig" else None
    if source == "zig" and (spec is None or spec.origin is None):  # a build without isolation
        source, why = "none", f"{why}, and {ZIG} is not installed"
    settings = _settings(settings, source, why)
    if spec is None or spec.origin is None:
        yield settings
        return
    with tempfile.TemporaryDirectory() as folder:
        programs = _zig_programs(Path(spec.origin).parent / "zig", Path(folder))
        archiver = {f"cmake.define.CMAKE_{name.upper()}": str(programs[name]) for name in ("ar", "ranlib")}
        before = dict(os.environ)
        os.environ["CXX"] = str(programs["c++"])
        os.environ.setdefault("LDFLAGS", "-s")  # zig adds debug information to every build
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(_cache(Path(folder))))
        try:
            yield {**(settings or {}), **archiver}
        finally:
            os.environ.clear()
            os.environ.update(before)


def _zig_programs(zig: Path, folder: Path) -> dict[str, Path]:
    """Scripts that call zig as what CMake looks for; without `-mcpu` zig compiles for this CPU alone."""
    words = {"c++": "c++ -mcpu=baseline", "ar": "ar", "ranlib": "ranlib"}
    programs = {name: folder / name for name in words}
    for name, path in programs.items():
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(zig))} {words[name]} "$@"\n')
        path.chmod(0o755)
    return programs


def _cache(folder: Path) -> Path:
    """Where zig keeps the standard library that it compiles: in the home folder if there is one."""
    try:
        return Path.home() / ".cache" / "zig"
    except RuntimeError:
        return folder / "cache"


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return _requirements(config_settings, "get_requires_for_build_wheel")


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return _requirements(config_settings, "get_requires_for_build_editable")


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    with _ready_to_build(config_settings) as settings:
        return skbuild.prepare_metadata_for_build_wheel(metadata_directory, settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    with _ready_to_build(config_settings) as settings:
        return skbuild.prepare_metadata_for_build_editable(metadata_directory, settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with _ready_to_build(config_settings) as settings:
        return skbuild.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with _ready_to_build(config_settings) as settings:
        return skbuild.build_editable(wheel_directory, settings, metadata_directory)
