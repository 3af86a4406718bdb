"""Reading a file that someone gives us: gzip or not, never more than a stated size."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from planner.errors import BadInput
from planner.files.regular_file import opened
from planner.units import format_bytes

MAX_BYTES = 2**30  # of the uncompressed content; a 100-step ResNet-152 profile needs a fiftieth of it
CHUNK_BYTES = 2**20
# Traces and profiles shrink to a tenth. A large file that shrank to a hundredth and less is a gzip bomb, and
# need not be unpacked to the limit to tell.
SMALL_BYTES = 2**26
MAX_RATIO = 150


def read_bytes(path: Path | str, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a file, uncompressed if it is gzip. A few kilobytes that would unpack to gigabytes stop
    at `max_bytes`."""
    too_large = f"{path}: more than {format_bytes(max_bytes)} of uncompressed data; split it by step"
    try:
        with opened(path) as file:
            magic = file.read(2)
            file.seek(0)
            if magic != b"\x1f\x8b":
                data = file.read(max_bytes + 1)
            else:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = _unpack(unpacked, path, max_bytes)
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


def _unpack(unpacked: gzip.GzipFile, path: Path | str, max_bytes: int) -> bytes:
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


def check_values(data: bytes, where: str, sign: bytes, most: int, what: str) -> None:
    """Refuse JSON with more than `most` of a sign (a comma for each value, a brace for each event), before
    decoding makes ten bytes of memory out of each byte."""
    found = data.count(sign)
    if found > most:
        raise BadInput(f"{where}: {found:,} {what}; at most {most:,} can be held, split it by step")
