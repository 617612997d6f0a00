"""Values that small models write almost right: "Fully supported.", "85%", a bulleted list.

`read_value` reads a value strictly first, as DSPy does. What fails is mended only where one
meaning is plain: a text that names two labels, negates one, asks, or is missing stays an error.
"""

import ast
import json
import math
import re
import types
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin

import json_repair
from pydantic import BaseModel, TypeAdapter, ValidationError

from ragbench.redact import encodable

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w]|\.\d)")
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/|out of|of)\s*(\d+(?:\.\d+)?)")
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[\d+\])\s+")
_MARKER = re.compile(r"\[\[\s*#+\s*\w*\s*#*\s*\]*\**")  # also one that was cut off
_LONGEST_MARKER = 200
#: A longer text is no label and no number.
_LONGEST_VALUE = 10_000
#: Of a longer text that is no JSON so much is mended, which can take more than in proportion.
_LONGEST_MENDED = 40_000
#: Brackets without an end in what a model meant as JSON: a few.
_MOST_OPEN = 100
_NOTHING = {"none", "null", "n/a", "na", "nil", "empty", "nothing"}
_NO_VALUE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)
_NEGATIONS = {"not", "no", "never", "neither", "nor", "without", "hardly", "cannot", "nothing"}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
#: A text longer than this is an explanation: a label in the midst of it may be there by chance.
_LABEL_WORDS = 8


class UnreadableError(ValueError):
    """A value of no plain meaning for its field's type."""


def read_value(raw: Any, annotation: Any) -> tuple[Any, bool]:
    """`raw` as a value of `annotation`, and whether it had to be mended.

    Raises:
        UnreadableError: it has no plain meaning.
    """
    if raw is None and annotation is str:
        raise UnreadableError("missing")
    value = _unmarked(raw) if isinstance(raw, str) else raw
    if _optional_text(annotation) and isinstance(value, str) and _bare(value) in _NOTHING:
        return None, True
    mended = value is not raw and value != raw
    try:
        return _strict(value, annotation), mended
    except _NO_VALUE as error:
        if items := _readable_objects(value, annotation):
            return items, True
        if not isinstance(value, str) or not value.strip():
            raise UnreadableError(str(error)) from error
        return _mend(value, annotation), True


def _unmarked(text: str) -> str:
    """`text` without the mark of a next field at its end."""
    start = text.rfind("[[")
    tail = text[start:].rstrip() if start >= 0 else ""
    if 0 < len(tail) <= _LONGEST_MARKER and _MARKER.fullmatch(tail):
        return text[:start].rstrip("*").rstrip()
    return text


def repaired_json(text: str) -> Any:
    """The JSON that `text` is, or was meant to be; "" where there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    text = text[:_LONGEST_MENDED]
    if text.count("{") - text.count("}") + text.count("[") - text.count("]") > _MOST_OPEN:
        return ""
    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):  # nested too deeply
        return ""


def _strict(value: Any, annotation: Any) -> Any:
    if isinstance(value, str) and get_origin(annotation) is Literal:
        written = {str(choice): choice for choice in get_args(annotation)}  # a 4 is written "4"
        label = value.strip().strip("\"'")
        if label in written:
            return written[label]
        raise UnreadableError(f"{value[:80]!r} is none of {get_args(annotation)}")
    if isinstance(value, str) and get_origin(annotation) is list:
        value = _parsed(value)
    if annotation in (bool, int, float) or isinstance(value, list):
        read = TypeAdapter(annotation).validate_python(value)
        if isinstance(read, float) and not math.isfinite(read):
            raise UnreadableError(f"{read} is not finite")
        return read
    if annotation is str:
        return str(value)
    if isinstance(value, str) and not _optional_text(annotation):
        value = repaired_json(value) or value
    return TypeAdapter(annotation).validate_python(value)


def _parsed(text: str) -> Any:
    # DSPy would guess at broken JSON here, and read "[1] and [3]" as [3].
    try:
        return encodable(json.loads(text))
    except ValueError:
        return encodable(ast.literal_eval(text))


def _readable_objects(value: Any, annotation: Any) -> list[Any]:
    """Of a list of objects those that can be read: a reply cut short often breaks off in one."""
    kind = next(iter(get_args(annotation)), None)
    if get_origin(annotation) is not list or not isinstance(kind, type):
        return []
    if not issubclass(kind, BaseModel):
        return []
    try:
        items = _parsed(value) if isinstance(value, str) else value
    except _NO_VALUE:
        return []
    read = []
    for item in items if isinstance(items, list) else []:
        with suppress(ValidationError):
            read.append(kind.model_validate(item))
    return read


def _mend(text: str, annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not list and len(text) > _LONGEST_VALUE:
        raise UnreadableError(f"{text[:80]!r} is longer than a {annotation}")
    if origin in (Union, types.UnionType):
        members = [a for a in arguments if a is not type(None)]
        if len(members) == 1:
            return None if _bare(text) in _NOTHING else _mend(text, members[0])
    if origin is Literal:
        return _literal(text, arguments)
    if annotation is bool:
        return _TRUTH[_label(text, {name: name for name in _TRUTH}, same=_TRUTH)]
    if annotation is int:
        return _integer(text)
    if annotation is float:
        return _fraction(text)
    if origin is list and arguments and arguments[0] in (str, int):
        return _list(text, arguments[0])
    raise UnreadableError(f"{text[:80]!r} is not a {annotation}")


def _literal(text: str, allowed: tuple[Any, ...]) -> Any:
    if all(isinstance(choice, int) and not isinstance(choice, bool) for choice in allowed):
        number = _integer(text)
        if number in allowed:
            return number
        raise UnreadableError(f"{number} is none of {allowed}")
    return _label(text, {_plain(str(choice)): choice for choice in allowed})


def _label(text: str, labels: Mapping[str, Any], same: Mapping[str, Any] | None = None) -> Any:
    """The label that `text` names; `same` maps labels to what they mean where several agree."""
    plain = _plain(text)
    if plain in labels:
        return labels[plain]
    if "?" in text:
        raise UnreadableError(f"{text[:80]!r} asks")
    rest, named = f" {plain} ", []
    for label in sorted(labels, key=len, reverse=True):  # "partly supported" before "supported"
        pattern = rf" {re.escape(label)}(?:y|ly|ed)? "
        if re.search(pattern, rest):
            named.append(label)
            rest = re.sub(pattern, "  ", rest)
    meanings = {(same or labels)[label] for label in named}
    if len(meanings) != 1:
        raise UnreadableError(f"{text[:80]!r} names {'several labels' if named else 'no label'}")
    leads = re.match(rf"\W*{re.escape(named[0])}\s*[,.;:\n-]", text.casefold()) is not None
    if set(rest.split()) & _NEGATIONS or "n't" in text:
        leads = leads and named[0] in _TRUTH  # "No, it is not": the first word says it all
        if not leads:
            raise UnreadableError(f"{text[:80]!r} negates")
    if len(plain.split()) > _LABEL_WORDS and not leads:
        raise UnreadableError(f"{text[:80]!r} is an explanation, not a label")
    return labels[named[0]]


def _integer(text: str) -> int:
    parts = _PARTS.findall(text)
    numbers = {parts[0][0]} if len(parts) == 1 else set(_NUMBER.findall(text))
    if not numbers:
        numbers = {str(_WORDS.index(w)) for w in _plain(text).split() if w in _WORDS}
    if len(numbers) != 1 or _is_vague(text):
        raise UnreadableError(f"{text[:80]!r} does not name one number")
    value = float(numbers.pop())
    if not value.is_integer():
        raise UnreadableError(f"{value} is not a whole number")
    return int(value)


def _fraction(text: str) -> float:
    parts = _PARTS.findall(text)
    if len(parts) == 1 and float(parts[0][1]) > 0 and not _is_vague(text):
        return float(Fraction(parts[0][0]) / Fraction(parts[0][1]))
    numbers = set(_NUMBER.findall(text))
    if len(numbers) != 1 or _is_vague(text):
        raise UnreadableError(f"{text[:80]!r} does not name one number")
    number = numbers.pop()
    percent = re.search(rf"{re.escape(number)}\s*(?:%|percent)", text) is not None
    return float(Fraction(number) / 100) if percent else float(number)


def _is_vague(text: str) -> bool:
    return "?" in text or "n't" in text or bool(set(_plain(text).split()) & _NEGATIONS)


def _list(text: str, kind: type) -> list[Any]:
    if _bare(text) in _NOTHING:
        return []
    if kind is int:
        if re.search(r"\d\s*[-\u2013]\s*\d|\d\.\d", text):
            raise UnreadableError(f"{text[:80]!r} is not a list of whole numbers")
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if not numbers or _is_vague(text):
            raise UnreadableError(f"{text[:80]!r} names no numbers")
        return numbers
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if len(lines) > 1 or _BULLET.match(lines[0]):
        bulleted = [line for line in lines if _BULLET.match(line)]
        lines = bulleted or lines  # a heading above bullets is no item
        return [_unquoted(_BULLET.sub("", line)) for line in lines]
    separator = ";" if ";" in text else ","
    return [_unquoted(item) for item in text.strip().strip("[]").split(separator) if item.strip()]


def _unquoted(text: str) -> str:
    return text.strip().strip("\"'“”").strip()


def _plain(text: str) -> str:
    """Lower-case words, single-spaced: "**[Fully_Supported].**" is "fully supported"."""
    return " ".join(re.sub(r"[^\w']|_", " ", text.casefold()).replace("'", "").split())


def _bare(text: str) -> str:
    return text.strip().strip("\"'`*[](). ").casefold()


def _optional_text(annotation: Any) -> bool:
    members = set(get_args(annotation))
    return get_origin(annotation) in (Union, types.UnionType) and members == {str, type(None)}
