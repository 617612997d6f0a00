"""Normalize values of cells, JSON and Python to JSON values.

A value has the same meaning in a cell of CSV, Excel or Parquet, in JSON and in Python. Dates become
ISO dates and numbers of any library become numbers. The text of a list becomes that list if JSON,
Python, numpy or pandas wrote it.
"""

import ast
import contextlib
import io
import json
import math
import re
import tokenize
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
_SPACES = frozenset(
    {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_CONSTANTS = {"True": "True", "False": "False", "None": "None", "nan": "None"}
_CALLS = frozenset({"array", "np", "numpy", ".", "str_", "dtype"})
_VALUES = frozenset({tokenize.STRING, tokenize.NUMBER, tokenize.NAME})
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


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
    if value.rstrip()[-1] not in _CLOSING:
        return value
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(value)
    literal: Any = None
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        literal = ast.literal_eval(_with_commas(value))
    if isinstance(literal, tuple):
        return literal[0] if value.startswith("array(") else list(literal)
    if isinstance(literal, list | dict):
        return literal
    return value


def _with_commas(text: str) -> str:
    """Insert commas between the values of a list in text form, and remove calls.

    numpy separates values by a blank, where Python would join texts. Calls such as `array([...],
    dtype=object)` and `np.str_('...')` become their argument.
    """
    tokens: list[str] = []
    is_call: list[bool] = []  # One entry per open bracket.
    before = ""
    try:
        for kind, token, *_ in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
            if kind in _SPACES or token == "=" or (token == "," and before == ","):
                continue
            if before == "dtype":  # its value
                before = ","
                continue
            if token in _CALLS:
                before = "dtype" if token == "dtype" else "call"
                continue
            if kind == tokenize.NAME and token not in _CONSTANTS:
                return text
            if token in _OPENING:
                is_call.append(token == "(" and before == "call")
            begins = kind in _VALUES or token in _OPENING or token == "-"
            if begins and tokens and before == "value":
                tokens.append(",")
            if (token in _CLOSING and is_call and is_call.pop()) or (token == "(" and is_call[-1]):
                continue
            tokens.append(_CONSTANTS.get(token, token))
            before = "value" if kind in _VALUES or token in _CLOSING else token
    except (tokenize.TokenError, SyntaxError):  # Only the beginning looks like a list.
        return text
    return " ".join(tokens)
