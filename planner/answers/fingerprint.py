"""Fingerprints of what is asked: the same for the same values, whichever release counts them.

Only what is set counts: a field that has its default is left out, so that a field which a later release adds
changes nothing until somebody sets it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def fingerprint(*values: Any) -> str:
    """A digest of values: numbers, texts, sequences, mappings and dataclasses of them."""
    return hashlib.sha256(repr([plain(value) for value in values]).encode()).hexdigest()


def plain(value: Any) -> Any:
    """A value as lists, pairs, numbers and texts that are written out the same in every release."""
    if is_dataclass(value) and not isinstance(value, type):
        given = ((one, getattr(value, one.name)) for one in fields(value) if one.repr)
        return sorted((one.name, plain(found)) for one, found in given if found != _default(one))
    if isinstance(value, Mapping):
        return sorted((str(name), plain(found)) for name, found in value.items())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1e9 and 1000000000 are one number
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no fingerprint")


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
