"""Conversion of a model's text in a field to a value of the field's type.

A value is read as in DSPy. A value that DSPy refuses is repaired only if it has one clear meaning
("**Full.**", "85%", a bulleted list). Anything else stays an error.
"""

import ast
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import EnumMeta
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dspy
import json_repair
from dspy import AdapterParseError
from pydantic import BaseModel, TypeAdapter, ValidationError

from ragbench.redact import encodable

#: The mark of a next field at the end of a value, also one that was cut off.
_MARK = re.compile(r"\[\[\s*#+\s*\w*\s*#*\s*\]*\**$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[\d+\])\s+")
#: A longer text is neither a label nor a number.
_LONGEST_VALUE = 1_000
#: Maximum number of characters of broken JSON to repair, because repair can take quadratic time.
_LONGEST_MENDED = 40_000
#: JSON with more open brackets than this is not repaired.
_MOST_OPEN = 100
_NOTHING = {"none", "null", "n a", "na", "nil", "empty", "nothing"}
#: Texts that mean None in an optional field. "Nothing" may be an answer.
_NONE = {"none", "null"}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_NO_VALUE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class UnreadableError(ValueError):
    """A value without a clear meaning for the type of its field."""


def read_value(raw: Any, annotation: Any) -> tuple[Any, bool]:
    """Return `raw` as a value of `annotation`, and True if it had to be repaired.

    Raises:
        UnreadableError: It has no clear meaning.
    """
    if raw is None and annotation is str:
        raise UnreadableError("missing")
    value = raw
    if isinstance(raw, str):
        mark = _MARK.search(raw.rstrip(), max(0, len(raw) - 200))
        if mark:
            value = raw[: mark.start()].rstrip("* \n")
    if annotation == (str | None) and isinstance(value, str) and _plain(value) in _NONE:
        return None, True
    try:
        return _strict(value, annotation), value is not raw
    except _NO_VALUE as error:
        items = _readable_objects(value, annotation)
        if items:
            return items, True
        if not isinstance(value, str) or not value.strip():
            raise UnreadableError(str(error)) from error
        return _mended(value, annotation), True


def repaired_json(text: str) -> Any:
    """Return the JSON in `text`, repaired if necessary. "" if there is none."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    text = text[:_LONGEST_MENDED]
    if _too_open(text):
        return ""
    with suppress(ValueError, RecursionError):  # nested too deeply
        return json_repair.loads(text)
    return ""


def _too_open(text: str) -> bool:
    return text.count("{") - text.count("}") + text.count("[") - text.count("]") > _MOST_OPEN


def _strict(value: Any, annotation: Any) -> Any:
    if annotation is str:
        return str(value)
    if isinstance(value, str):
        if get_origin(annotation) is Literal:
            return _choice(value, annotation)
        if annotation in (bool, int, float):
            value = value.strip()
        elif get_args(annotation) in ((str,), (int,)) and get_origin(annotation) is list:
            # DSPy would guess at broken JSON here, and read "[1] and [3]" as [3].
            value = _parsed(value)
        else:
            return encodable(_as_dspy(value, annotation))
    elif isinstance(annotation, EnumMeta):
        return _as_dspy(value, annotation)
    read = TypeAdapter(annotation).validate_python(value)
    if isinstance(read, float) and not math.isfinite(read):
        raise UnreadableError(f"{read} is not finite")
    return read


def _choice(text: str, annotation: Any) -> Any:
    """Return the choice of a Literal that `text` equals, as text, quoted, or as `Literal[text]`."""
    choices = get_args(annotation)
    written = {str(choice): choice for choice in choices}  # a 4 is written "4"
    label = text.strip()
    if label.startswith(("Literal[", "str[")) and label.endswith("]"):
        label = label[label.find("[") + 1 : -1]
    for form in (text, label, label.strip("\"'")):
        if form in written:
            return written[form]
    raise UnreadableError(f"{text[:80]!r} is none of {choices}")


def _as_dspy(value: Any, annotation: Any) -> Any:
    """Return `value` as DSPy's own adapter reads the field. Raises ValueError if it cannot."""
    if isinstance(value, str) and (len(value) > _LONGEST_MENDED or _too_open(value)):
        value = _parsed(value)  # its repair takes more than linear time
        return TypeAdapter(annotation).validate_python(value)
    try:
        if isinstance(value, str):
            reader: Any = dspy.ChatAdapter()
            fields = reader.parse(_one_field(annotation), f"[[ ## value ## ]]\n{value}")
        else:
            reader = dspy.JSONAdapter()
            fields = reader.parse(_one_field(annotation), json.dumps({"value": value}))
    except AdapterParseError as error:
        raise ValueError(str(error).partition("Error message: ")[2] or "not read") from None
    return fields["value"]


@lru_cache(maxsize=512)
def _one_field(annotation: Any) -> type[dspy.Signature]:
    fields: Any = {"value": (annotation, dspy.OutputField())}
    signature: type[dspy.Signature] = dspy.Signature(fields, "Read.")
    return signature


def _parsed(text: str) -> Any:
    try:
        return encodable(json.loads(text))
    except ValueError:
        return encodable(ast.literal_eval(text))


def _readable_objects(value: Any, annotation: Any) -> list[Any]:
    """Return the readable objects of a list. A truncated reply often ends inside an object."""
    kind = next(iter(get_args(annotation)), None)
    read: list[Any] = []
    if get_origin(annotation) is list and isinstance(kind, type) and issubclass(kind, BaseModel):
        if isinstance(value, str):
            with suppress(*_NO_VALUE):
                value = _parsed(value)
        for item in value if isinstance(value, list) else ():
            with suppress(ValidationError):
                read.append(kind.model_validate(item))
    return read


def _mended(text: str, annotation: Any) -> Any:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    members = [member for member in arguments if member is not type(None)]
    if origin in (Union, UnionType) and len(members) == 1:
        if _plain(text) in _NOTHING:
            return None
        return read_value(text, members[0])[0]
    if origin is list and arguments in ((str,), (int,)):
        return _list(text, arguments[0])
    if len(text) <= _LONGEST_VALUE:
        if origin is Literal:
            return _label(text, {_plain(str(choice)): choice for choice in arguments})
        if annotation is bool:
            return _label(text, _TRUTH)
        if annotation in (int, float):
            number = _number(text, annotation)
            if number is not None:
                return number
    raise UnreadableError(f"{text[:80]!r} is not a {annotation}")


def _number(text: str, annotation: Any) -> Any:
    bare = text.strip(" \n*_`\"'[].")
    try:
        number = float(bare.removesuffix("%"))
    except ValueError:
        return None
    if annotation is float and bare.endswith("%"):
        number = number / 100
    if math.isfinite(number) and (annotation is float or number.is_integer()):
        return annotation(number)
    return None


def _label(text: str, labels: Mapping[str, Any]) -> Any:
    """Return the value of the one label that `text` names, at its beginning and unnegated."""
    plain = _plain(text)
    if plain in labels:
        return labels[plain]
    head, _, remainder = re.sub(r"[,.;:\n]", "\0", text.strip(), count=1).partition("\0")
    head = _plain(head)
    remainder = f" {_plain(remainder)} "
    same = all(labels[label] == labels.get(head) for label in labels if f" {label} " in remainder)
    denied = head not in _TRUTH and re.search(r" (not|no|never|\w+n t) ", remainder)
    if head not in labels or not same or denied:
        raise UnreadableError(f"{text[:80]!r} does not name exactly one label")
    return labels[head]


def _list(text: str, kind: type) -> list[Any]:
    if _plain(text) in _NOTHING:
        return []
    if kind is int:
        if re.sub(r"\d+|\band\b|[\s,;\[\]]", "", text.rstrip(". ")) or not re.search(r"\d", text):
            raise UnreadableError(f"{text[:80]!r} is not a list of whole numbers")
        return list(map(int, re.findall(r"\d+", text)))
    if re.match(r"\s*\[\s*[\"']", text):  # JSON that is broken: commas in quotes part nothing
        with suppress(*_NO_VALUE):
            items: list[str] = _as_dspy(text, list[str])
            return items
    lines = list(filter(str.strip, text.strip().splitlines()))
    if len(lines) > 1 or _BULLET.match(lines[0]):
        # A heading above bullets is not an item.
        lines = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)] or lines
    else:
        lines = text.strip().strip("[]").split(";" if ";" in text else ",")
    return [line.strip(" \"'“”") for line in lines if line.strip()]


def _plain(text: str) -> str:
    """Return lower-case words, single-spaced: "**[Fully_Supported].**" is "fully supported"."""
    return " ".join(re.sub(r"[\W_]", " ", text.casefold()).split())
