"""Where the build backend gets its compiler, and what it does where there is none."""

import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

BACKEND = Path(__file__).parents[1] / "build_backend/planner_build.py"


@pytest.fixture
def backend(monkeypatch):
    """The backend, with what it hands to scikit-build-core noted instead of built."""
    build = ModuleType("scikit_build_core.build")
    build.given = []
    for hook in ("build_wheel", "build_editable", "build_sdist"):
        setattr(build, hook, lambda folder, settings=None, metadata=None: build.given.append(settings))
    for kind in ("wheel", "editable", "sdist"):
        setattr(build, f"get_requires_for_build_{kind}", lambda settings=None: ["cmake"])
    package = ModuleType("scikit_build_core")
    package.build = build
    monkeypatch.setitem(sys.modules, "scikit_build_core", package)
    monkeypatch.setitem(sys.modules, "scikit_build_core.build", build)
    monkeypatch.delenv("PLANNER_NO_ENGINE", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    spec = importlib.util.spec_from_file_location("planner_build", BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiler(folder, status):
    """A C++ compiler that says yes or no to everything."""
    program = folder / "c++"
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)


PURE = {"wheel.cmake": "false", "wheel.py-api": "py3"}
HOOKS = ("get_requires_for_build_wheel", "get_requires_for_build_editable")


@pytest.mark.parametrize("hook", HOOKS)
def test_no_compiler_requests_one_from_the_package_index(backend, monkeypatch, tmp_path, capsys, hook):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert getattr(backend, hook)() == ["cmake", "ziglang"]
    assert "no C++ compiler was found; compiling the engine with ziglang" in capsys.readouterr().err


@pytest.mark.parametrize("hook", HOOKS)
def test_compiler_on_the_path_is_used(backend, monkeypatch, tmp_path, hook):
    compiler(tmp_path, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert getattr(backend, hook)() == ["cmake"]
    backend.build_wheel(str(tmp_path), {"a": "b"})
    assert backend.skbuild.given == [{"a": "b"}]


def test_compiler_that_is_named_and_not_there_is_an_error(backend, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/g++ -m64")
    with pytest.raises(SystemExit, match="planner: CXX names '/no/such/g\\+\\+', which is not there"):
        backend.get_requires_for_build_wheel()


def test_compiler_that_is_too_old_is_replaced(backend, monkeypatch, tmp_path, capsys):
    compiler(tmp_path, 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend.get_requires_for_build_wheel() == ["cmake", "ziglang"]
    assert f"{tmp_path}/c++ does not compile C++20" in capsys.readouterr().err


def test_machine_that_ziglang_does_not_serve_has_no_engine(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")
    assert backend.get_requires_for_build_wheel() == ["cmake"]
    backend.build_wheel(str(tmp_path))
    assert backend.skbuild.given == [PURE]


def test_without_headers_of_python_there_is_no_engine(backend, monkeypatch, tmp_path, capsys):
    compiler(tmp_path, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert backend.get_requires_for_build_wheel() == ["cmake"]
    backend.build_wheel(str(tmp_path))
    assert backend.skbuild.given == [PURE]
    assert f"without the compiled engine: Python's headers are not installed ({tmp_path}/Python.h" in (
        capsys.readouterr().err
    )


def test_compiler_of_the_package_index_is_called_by_cmake(backend, monkeypatch, tmp_path):
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    zig = package / "zig"
    zig.write_text('#!/bin/sh\necho "$@"\n')
    zig.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = {}

    def build_wheel(folder, settings=None, metadata=None):
        for name, program in {"c++": os.environ["CXX"], **settings}.items():
            done = subprocess.run([program, "x"], capture_output=True, text=True, check=True)
            seen[name] = done.stdout.split()

    monkeypatch.setattr(backend.skbuild, "build_wheel", build_wheel)
    backend.build_wheel(str(tmp_path))
    assert seen == {
        "c++": ["c++", "-mcpu=baseline", "x"],
        "cmake.define.CMAKE_AR": ["ar", "x"],
        "cmake.define.CMAKE_RANLIB": ["ranlib", "x"],
    }
    assert "CXX" not in os.environ


def test_build_without_isolation_and_without_ziglang_has_no_engine(backend, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend.build_wheel(str(tmp_path))
    assert backend.skbuild.given == [PURE]
    assert "ziglang is not installed" in capsys.readouterr().err


def test_planner_no_engine_compiles_nothing(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PLANNER_NO_ENGINE", "1")
    assert backend.get_requires_for_build_wheel({"a": "b"}) == ["cmake"]
    backend.build_wheel(str(tmp_path), {"a": "b"})
    assert backend.skbuild.given == [{"a": "b", **PURE}]
