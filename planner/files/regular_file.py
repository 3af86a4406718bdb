"""Opens regular files, writes whole files or none, and finds the folders of the catalog and the user."""

from __future__ import annotations

import gzip
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from planner.errors import BadInput
from planner.memoize import memoize
from planner.units import format_bytes

LONGEST_FILE_NAME = 255
LARGEST_TEXT_BYTES = 2**20  # of what people write: a hundred times the largest file of the catalog


def open_regular_file(path: Path | str) -> IO[bytes]:
    """Opens a regular file for reading; pipes and devices are refused, as they could block."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput(f"cannot read {path}: it is a pipe or a device, not a regular file")
    return file


def read_text(path: Path | str) -> str:
    """Reads a UTF-8 text file of at most `LARGEST_TEXT_BYTES`, with Windows line ends normalized."""
    try:
        with open_regular_file(path) as file:
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


MAX_BYTES = 2**30  # of the uncompressed content; a 100-step ResNet-152 profile needs a fiftieth of it
CHUNK_BYTES = 2**20
# Traces and profiles shrink to a tenth. A large file that shrank to a hundredth and less is a gzip bomb, and
# need not be unpacked to the limit to tell.
SMALL_BYTES = 2**26
MAX_RATIO = 150


def read_bytes(path: Path | str, max_bytes: int = MAX_BYTES) -> bytes:
    """Reads a file and uncompresses gzip; refuses more than `max_bytes` of uncompressed data."""
    too_large = f"{path}: more than {format_bytes(max_bytes)} of uncompressed data; split it by step"
    try:
        with open_regular_file(path) as file:
            magic = file.read(2)
            file.seek(0)
            if magic != b"\x1f\x8b":
                size = os.fstat(file.fileno()).st_size  # of a sparse file, nothing need be read to tell
                if size > max_bytes:
                    raise BadInput(too_large)
                data = file.read(size)
            else:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = _read_gzip(unpacked, path, max_bytes)
    except EOFError as error:
        raise BadInput(f"{path}: the gzip data is cut off; copy or record the file again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path}: damaged gzip data ({error}); copy or record the file again") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > max_bytes:
        raise BadInput(too_large)
    if not data:
        raise BadInput(f"{path}: the file is empty")
    return data


def _read_gzip(unpacked: gzip.GzipFile, path: Path | str, max_bytes: int) -> bytes:
    """Uncompresses up to `max_bytes`; raises BadInput for a gzip bomb."""
    packed_bytes = Path(path).stat().st_size
    chunks: list[bytes] = []
    total = 0
    while total <= max_bytes and (chunk := unpacked.read(CHUNK_BYTES)):
        chunks.append(chunk)
        total += len(chunk)
        if total > SMALL_BYTES and total > MAX_RATIO * packed_bytes:
            raise BadInput(
                f"{path}: {format_bytes(packed_bytes)} unpack to more than {format_bytes(total)}; such a "
                "file is no trace; if it is one, unpack it with gunzip first"
            )
    return b"".join(chunks)


def expand_path(path: Path | str) -> Path:
    """Expands `~` and `~user` in a path; names longer than file systems allow are refused."""
    if any(len(part.encode(errors="surrogatepass")) > LONGEST_FILE_NAME for part in Path(path).parts):
        limit = f"file names have at most {LONGEST_FILE_NAME} bytes"
        raise BadInput(f"cannot read {str(path)[:60]}...: {limit}")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BadInput(
            f"cannot read {path}: there is no such user; write ./{path} for a file here"
        ) from error


def write_file(path: Path | str, content: str | bytes) -> None:
    """Writes the whole content of a file atomically: the old file stays if writing fails."""
    with open_for_replacement(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


@contextmanager
def open_for_replacement(path: Path | str) -> Iterator[IO[bytes]]:
    """Opens a temporary file that replaces `path` once it is complete; after an error the old file stays."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a pipe or a device has nothing to lose
            if target.is_dir():
                raise BadInput(f"cannot write {path}: it is a folder; name a file in it")
            with target.open("wb") as file:
                yield file
            return
        os.umask(umask := os.umask(0o022))
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask
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


def home_folder() -> Path:
    """Folder of planner's data, which may not exist: PLANNER_HOME, else in the user's data folder."""
    named, data = os.environ.get("PLANNER_HOME"), os.environ.get("XDG_DATA_HOME")
    return _expand_from_home(named) if named else _expand_from_home(data or "~/.local/share") / "planner"


@memoize(key=lambda path: (path, os.environ.get("HOME")))
def _expand_from_home(path: str) -> Path:
    """Expands `~` in a path; cached until HOME changes."""
    return expand_path(path)


_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(kind: str) -> Path:
    """Folder of the shipped `models`, `hardware` or `configs`, in an installed package or a checkout."""
    inside = _PACKAGE / "catalog_data" / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def user_folders() -> tuple[Path, ...]:
    """Catalog folders that PLANNER_PATH lists, in order."""
    return tuple(
        _expand_from_home(part) for part in os.environ.get("PLANNER_PATH", "").split(os.pathsep) if part
    )


def is_path_like(name: str) -> bool:
    """Whether a name is written as a file path: it has a slash, or ends in .toml or .toml:NAME."""
    return name.endswith(".toml") or ".toml:" in name or "/" in name or os.sep in name
