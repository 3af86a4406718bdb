"""Reading a file that someone gives us: gzip or not, never more than a stated size."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from planner.errors import BadInput
from planner.units import format_bytes

MAX_BYTES = 2**30  # of the uncompressed content; a 100-step ResNet-152 profile needs a fiftieth of it


def read_bytes(path: Path | str, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a file, uncompressed if it is gzip. A few kilobytes that would unpack to gigabytes stop
    at `max_bytes`."""
    too_large = f"{path}: more than {format_bytes(max_bytes)} of uncompressed data; split it by step"
    try:
        with Path(path).open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            if magic != b"\x1f\x8b":
                data = file.read(max_bytes + 1)
            else:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = unpacked.read(max_bytes + 1)
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
