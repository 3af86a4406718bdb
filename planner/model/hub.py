"""Configurations of the Hugging Face hub: from the local cache, or fetched by `huggingface_hub`.

The cache has a folder `models--ORG--NAME` for each network, in it `refs/main` with the name of the revision
and `snapshots/REVISION/config.json`; no library is needed to read it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from planner.errors import BadInput

FILES = ("config.json", "transformer/config.json")  # of transformers; of pipelines of diffusers
_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_NAME = re.compile(rf"{_PART}/{_PART}(?<!\.toml)(?<!\.json)(?<!\.onnx)(?<!\.safetensors)")


def is_hub_name(name: str) -> bool:
    """Whether a text is written as ORG/NAME, and is no file here."""
    return bool(_NAME.fullmatch(name)) and not Path(name).exists()


def hub_config(name: str) -> Path:
    """The config.json of a network of the hub."""
    return _cached(name) or _fetched(name)


def hub_name(config: Path) -> str | None:
    """The name of the network that a file in the cache is of, without its organisation."""
    folder = next((part for part in config.absolute().parts if part.startswith("models--")), None)
    return folder and folder.rpartition("--")[2]


def _cache() -> Path:
    if given := os.environ.get("HF_HUB_CACHE"):
        return Path(given).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{caches}/huggingface")).expanduser() / "hub"


def _cached(name: str) -> Path | None:
    folder = _cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
        revisions = [revision] if re.fullmatch(r"[\w.-]+", revision) else []
    except (OSError, UnicodeDecodeError):
        revisions = []
    revisions += sorted(path.name for path in folder.glob("snapshots/*"))
    paths = (folder / "snapshots" / revision / file for revision in revisions for file in FILES)
    return next((path for path in paths if path.is_file()), None)


def _fetched(name: str) -> Path:
    absent = f"there is no file {name}, and no such network in the Hugging Face cache ({_cache()})"
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
        except Exception as error:  # of the network, in as many classes as there are libraries
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise BadInput(f"{absent}; the hub cannot be reached ({reason})") from None
    raise BadInput(f"{absent}; on the hub it has no config.json")
