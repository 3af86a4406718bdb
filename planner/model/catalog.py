"""Finds networks by name or path: `models/*.toml`, and configurations of the Hugging Face hub.

A user's folder may hold the files itself or a folder `models`; a name there hides the catalog's. The hub's
cache has a folder `models--ORG--NAME` per network, in it `refs/main` with the name of the revision and
`snapshots/REVISION/config.json`; reading it needs no library, fetching needs `huggingface_hub`.
"""

from __future__ import annotations

import os
import re
import tomllib
from importlib.resources import files
from pathlib import Path

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import expand_path, is_path_like, read_text, shipped_folder, user_folders
from planner.files.tomlfile import read_toml
from planner.memoize import memoize
from planner.model import Model

IMPORTED = (".json", ".onnx", ".safetensors")  # files that are imported


def model_paths() -> dict[str, Path]:
    """Path of each model's file by model name, sorted; user files override the catalog's."""
    by_name: dict[str, Path] = {}
    for folder in user_folders():
        if not folder.is_dir():
            raise BadInput(f"PLANNER_PATH names {folder}, which is no folder")
        for path in folder.glob("models/*.toml"):
            by_name.setdefault(path.stem, path)
        for path in folder.glob("*.toml"):
            if _is_model_file(path):
                by_name.setdefault(path.stem, path)
    for path in shipped_folder("models").glob("*.toml"):
        by_name.setdefault(path.stem, path)
    return dict(sorted(by_name.items()))


def model_names() -> tuple[str, ...]:
    """Names of all models, sorted."""
    return tuple(model_paths())


def normalize_network_name(name: str) -> str:
    """Normalizes a network's name: Llama-3-8B, LLAMA3_8B and llama3 8b become equal."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@memoize
def _network_names() -> dict[str, list[str]]:
    """Names under which each network of the catalog is published."""
    text = (files("planner.model") / "network_names.toml").read_text("utf-8")
    names: dict[str, list[str]] = tomllib.loads(text)["networks"]
    return names


@memoize
def _published_names() -> dict[str, str]:
    """Catalog names of networks by the normalized names under which they are published."""
    shipped = {
        normalize_network_name(path.stem): path.stem for path in shipped_folder("models").glob("*.toml")
    }
    names = _network_names().items()
    return shipped | {normalize_network_name(called): name for name, words in names for called in words}


def catalog_name(name: str) -> str:
    """Catalog name of a network published under another name; unknown names are returned unchanged."""
    return name if name in model_paths() else _published_names().get(normalize_network_name(name), name)


def checkpoint_name(name: str) -> str:
    """Name of a network's weights on the Hugging Face hub; empty if unknown."""
    if is_hub_name(name):
        return name
    names = _network_names().get(catalog_name(name), ())
    return next(filter(is_hub_name, names), "")


def load_model(name_or_path: str | Path) -> Model:
    """Loads a model by catalog name (`vgg11`), file (`./mine.toml`) or hub name (`Qwen/Qwen3-8B`)."""
    name = str(name_or_path)
    if not isinstance(name_or_path, Path) and is_hub_name(name):
        path = model_paths().get(catalog_name(name)) or find_hub_config(name)
    elif isinstance(name_or_path, Path) or is_path_like(name) or name.endswith(IMPORTED):
        path = expand_path(name)
        if not path.exists():
            raise BadInput(f"there is no model file {name}; a bare name such as vgg11 reads the catalog")
    else:
        paths = model_paths()
        name = catalog_name(name)
        if name not in paths:
            hint = "`planner models` lists them; a file of your own needs its path, e.g. ./mine.toml"
            raise unknown_name("model", name, paths, hint)
        path = paths[name]
    status = path.stat()
    return _read_model_file(path, status.st_mtime_ns, status.st_size, os.environ.get("PLANNER_PATH", ""))


@memoize
def _read_model_file(path: Path, _changed_ns: int, _size: int, _folders: str) -> Model:
    """Reads or imports a model file; cached until the file changes."""
    if path.is_dir() or path.name.endswith(IMPORTED):
        from planner.model.importers import import_file

        return import_file(path).model
    from planner.model.netlist import read_model

    source = read_toml(path)
    if "config" in source.data:
        from planner.model.importers.hugging_face import read_config_table

        return read_config_table(source)
    return read_model(path, lambda base: model_paths().get(base))


def _is_model_file(path: Path) -> bool:
    """Whether a TOML file in a user's folder is a model, not hardware or a scenario."""
    try:
        lines = read_text(path).splitlines()
    except BadInput:
        return False
    return any(line.replace(" ", "").startswith("layers=") for line in lines)


FILES = ("config.json", "transformer/config.json")  # of transformers, and of pipelines of diffusers
_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_NAME = re.compile(rf"{_PART}/{_PART}(?<!\.toml)(?<!\.json)(?<!\.onnx)(?<!\.safetensors)")


def is_hub_name(name: str) -> bool:
    """Whether a text has the form ORG/NAME and is not a local file."""
    return bool(_NAME.fullmatch(name)) and not Path(name).exists()


def find_hub_config(name: str) -> Path:
    """Path of the config.json of a network on the hub, from the local cache or downloaded."""
    return _find_cached_config(name) or _fetch_config(name)


def hub_name(config: Path) -> str | None:
    """Name, without organization, of a network whose config lies in the hub's cache; None elsewhere."""
    folder = next((part for part in config.absolute().parts if part.startswith("models--")), None)
    return folder and folder.rpartition("--")[2]


def _hub_cache_folder() -> Path:
    """Folder of the Hugging Face hub's local cache."""
    if given := os.environ.get("HF_HUB_CACHE"):
        return Path(given).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{caches}/huggingface")).expanduser() / "hub"


def _find_cached_config(name: str) -> Path | None:
    """Path of a network's configuration in the hub's cache; None if it is not there."""
    folder = _hub_cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
        revisions = [revision] if re.fullmatch(r"[\w.-]+", revision) else []
    except (OSError, UnicodeDecodeError):
        revisions = []
    revisions += sorted(path.name for path in folder.glob("snapshots/*"))
    paths = (folder / "snapshots" / revision / file for revision in revisions for file in FILES)
    return next((path for path in paths if path.is_file()), None)


def _fetch_config(name: str) -> Path:
    """Downloads a network's configuration from the hub; raises BadInput if it fails."""
    absent = f"there is no file {name}, and no such network in the Hugging Face cache ({_hub_cache_folder()})"
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError
    except ImportError:
        raise BadInput(f"{absent}; pip install 'dnn-planner[hf]' fetches its config.json") from None
    for file in FILES:
        try:
            return Path(hf_hub_download(name, file))
        except GatedRepoError:
            raise BadInput(f"{absent}; on the hub it is gated: accept its terms, run hf auth login") from None
        except RepositoryNotFoundError:
            raise BadInput(f"{absent} nor on the hub; is the name right?") from None
        except EntryNotFoundError:
            continue
        except Exception as error:  # network errors differ by library
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise BadInput(f"{absent}; the hub cannot be reached ({reason})") from None
    raise BadInput(f"{absent}; on the hub it has no config.json")
