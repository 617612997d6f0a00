"""Normalize values of cells, JSON and Python to JSON values.

A value has the same meaning in a cell of CSV, Excel or Parquet, in JSON and in Python. Dates become
ISO dates and numbers of any library become numbers. The text of a list becomes that list if JSON,
Python, numpy or pandas wrote it.
"""

import ast
import contextlib
import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

_TRUTH = {"True": True, "TRUE": True, "False": False, "FALSE": False}
#: A whole number as written by a program if its column has empty cells.
_WHOLE = re.compile(r"[+-]?\d{1,15}\.0")
#: A date as written by a program that supports only dates with a time.
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00(?::00(?:\.0+)?)?")
_NO_VALUE = frozenset({"NAType", "NaTType"})  # Types of pandas.
#: Parts of a list as numpy and pandas write it: an argument, the name of a call, or a value and the
#: blanks after it, where Python wants a comma.
_PART = re.compile(
    r"""
    ,\s*dtype=[^)]*
    | (?:(?:np|numpy)\.\w+|array)(?=\()
    | ('(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | [\w.+-]+ | [\])}]) (\s+(?=['"\[({\w+-]))?
    """,
    re.VERBOSE | re.DOTALL,
)


class Cell(str):
    """Text of a table without types, such as CSV. It may be a number or a truth value."""

    __slots__ = ()

    def typed(self) -> Any:
        """Return the truth value or whole number in the cell, or the text unchanged."""
        if self in _TRUTH:
            return _TRUTH[self]
        if _WHOLE.fullmatch(self):
            return int(float(self))
        return self


def plain(value: Any) -> Any:
    """Convert a value to a JSON value.

    Args:
        value: Cell, JSON value or Python object: also scalars and arrays of numpy, missing values
            of pandas, decimals, dates and UTF-8 bytes.

    Returns:
        A text, number, truth value, list or object, or None for a missing value. Other objects are
        returned unchanged, and the type of their field rejects them.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if type(value).__name__ in _NO_VALUE:
        return None
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        if value.dtype.kind == "M":  # Nanoseconds would become a number.
            value = value.astype("datetime64[us]")
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        if math.isnan(value):
            return None
        if isinstance(value, Decimal) and math.isfinite(value):
            return int(value) if value == value.to_integral_value() else f"{value.normalize():f}"
        return float(value)
    if isinstance(value, bytes | bytearray):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    if isinstance(value, datetime):
        return without_midnight(value.isoformat(sep=" "))
    if isinstance(value, date | time):
        return value.isoformat()
    return value


def without_midnight(text: str) -> str:
    """Return only the date if the time is 00:00, else the text unchanged."""
    if match := _MIDNIGHT.fullmatch(text):
        return match[1]
    return text


def unpacked(value: Any) -> Any:
    """Parse a text that holds a list or an object. Return any other value unchanged.

    Accepts JSON, Python literals, and arrays as numpy and pandas write them (`['Ann Bo' 'A. Bo']`,
    `array(['Ann Bo'], dtype=object)`).
    """
    if not isinstance(value, str) or not value.startswith(("[", "{", "(", "array(")):
        return value
    if value.rstrip()[-1] not in ")]}":
        return value
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(value)
    literal: Any = None
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        literal = ast.literal_eval(_PART.sub(_as_python, value))
    if isinstance(literal, tuple):
        return list(literal)
    return literal if isinstance(literal, list | dict) else value


def _as_python(part: re.Match[str]) -> str:
    if part[1] is None:
        return ""
    value = "None" if part[1] == "nan" else part[1]
    return f"{value}," if part[2] else value
