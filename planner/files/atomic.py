"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from planner.errors import BadInput


def write_file(path: Path | str, content: str | bytes) -> None:
    """Replace a file by new content, whole or not at all."""
    with replacing(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path | str) -> Iterator[IO[bytes]]:
    """A file to write to that takes the place of `path` at the end: a temporary file beside it, synced, then
    renamed.

    Whatever stops us (Ctrl-C, a full disk) leaves the old file as it was and no half of a new one.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a pipe or a device has nothing to lose
            if target.is_dir():
                raise BadInput(f"cannot write {path}: it is a folder; name a file in it")
            with target.open("wb") as file:
                yield file
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
