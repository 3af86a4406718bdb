"""Opening a file that someone names: a regular file, never a pipe or a device that does not end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from planner.errors import BadInput
from planner.units import format_bytes

LARGEST_TEXT_BYTES = 2**20  # of what people write: a hundred times the largest file of the catalogue


def opened(path: Path | str) -> IO[bytes]:
    """The file for reading. Opening a pipe that nobody writes to would wait for ever; this does not."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput(f"cannot read {path}: it is no regular file, but a pipe or a device")
    return file


def text_of(path: Path | str) -> str:
    """The text of a file that people write, in UTF-8."""
    try:
        with opened(path) as file:
            data = file.read(LARGEST_TEXT_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > LARGEST_TEXT_BYTES:
        limit = format_bytes(LARGEST_TEXT_BYTES)
        raise BadInput(f"{path}: larger than {limit}; no file of models, hardware or scenarios is")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8 (byte {error.start})") from error


def expanded(path: Path | str) -> Path:
    """A path with `~` and `~user` as the folders that they mean."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BadInput(
            f"cannot read {path}: there is no such user; write ./{path} for a file here"
        ) from error
