"""What stands in the way of compiling the engine is said in a sentence before anything is built."""

import importlib.util
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
        setattr(build, f"get_requires_for_build_{kind}", lambda settings=None: build.given.append(settings))
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


def test_no_compiler(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = backend.missing()
    assert said.startswith("there is no C++ compiler, and the engine is C++20; ")
    assert "PLANNER_NO_ENGINE=1" in said
    assert "\n" not in said


def test_a_compiler_that_is_named_and_not_there(backend, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/g++ -m64")
    assert backend.missing().startswith("CXX names '/no/such/g++ -m64', which is not there")


def test_a_compiler_that_is_too_old(backend, monkeypatch, tmp_path):
    compiler(tmp_path, 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend.missing().startswith(f"{tmp_path}/c++ does not compile C++20")


def test_no_headers_of_python(backend, monkeypatch, tmp_path):
    compiler(tmp_path, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert backend.missing().startswith(f"Python's headers are not there ({tmp_path}/Python.h)")


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_an_installer_hears_it_first_of_all(backend, monkeypatch, tmp_path, hook):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="planner: there is no C"):
        getattr(backend, hook)()
    assert backend.skbuild.given == []


def test_without_the_engine_nothing_is_compiled(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLANNER_NO_ENGINE", "1")
    backend.get_requires_for_build_wheel({"a": "b"})
    backend.build_wheel(str(tmp_path))
    pure = {"wheel.cmake": "false", "wheel.py-api": "py3"}
    assert backend.skbuild.given == [{"a": "b", **pure}, pure]
