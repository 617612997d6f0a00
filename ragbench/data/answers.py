"""Types of the fields of a record: texts, ids, numbers and answers.

An answer is a text, a number, or true or false (yes or no). A field of answers holds one answer or
a list. A list within that list holds alternatives. In a table the list may be written as JSON or as
Python writes it. `answers_of` reads an object in the same way.
"""

import html
import math
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from ragbench.data.values import Cell, plain, unpacked, without_midnight

_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_NUMBER = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*")


def printable(value: str) -> str:
    """Return `value`. Raises ValueError if it holds a NUL or half of a surrogate pair."""
    if "\x00" in value:
        raise ValueError("holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is not a character") from None
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def decoded(text: str) -> str:
    """Decode the HTML entities of `text` once: `&amp;` to `&`, `&amp;lt;` to `&lt;`."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _scalar(value: Any) -> Any:
    """Return a cell or a Python object as a JSON value, and a whole float as a whole number."""
    value = plain(value)
    if isinstance(value, Cell):
        value = value.typed()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def _whole_number_to_text(value: Any) -> Any:
    scalar = _scalar(value)
    if isinstance(scalar, bool):  # A table may have an id such as TRUE.
        return value
    if isinstance(scalar, int):
        return str(scalar)
    return scalar


def _text_to_whole_number(value: Any) -> Any:
    """Return the whole number in a table cell (2, "2" or 2.0); None for a blank cell."""
    value = _scalar(value)
    if not isinstance(value, str):
        return value
    if _NUMBER.fullmatch(value):
        return int(float(value))
    return value if value.strip() else None


def _value_to_text(value: Any) -> Any:
    """Format a number, write true and false as yes and no, and drop a time of midnight."""
    value = _scalar(value)
    if isinstance(value, str):
        return without_midnight(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"is {value}, which is not an answer")
    if isinstance(value, int | float):
        return str(value)
    return value


def as_list(value: Any) -> Any:
    """Return a single value as a list of one, and a missing value as an empty list."""
    value = plain(unpacked(value))
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [value]


def as_answers(value: Any) -> Any:
    """Return `value` as a flat list of single answers, nested lists expanded in place."""
    answers: list[Any] = []
    for answer in as_list(value):
        if isinstance(answer, list):
            answers.extend(item for item in answer if item is not None)
        elif answer is not None:
            answers.append(answer)
    return answers


_Plain = Annotated[StrictStr, AfterValidator(printable)]
#: Any text, not stripped, with decoded HTML entities.
Text = Annotated[_Plain, AfterValidator(decoded)]
#: Non-blank text, stripped.
NonBlank = Annotated[Text, AfterValidator(_not_blank)]
#: An id: unchanged text, or a whole number that becomes text.
Id = Annotated[_Plain, AfterValidator(_not_blank), BeforeValidator(_whole_number_to_text)]
#: Either a single id or a list of ids.
Ids = Annotated[tuple[Id, ...], BeforeValidator(as_answers)]
#: A whole number. In a table it may be text.
Whole = Annotated[StrictInt, BeforeValidator(_text_to_whole_number)]
#: A whole number, or None for a blank cell.
OptionalWhole = Annotated[StrictInt | None, BeforeValidator(_text_to_whole_number)]
#: An answer: text, a number, or true or false, which becomes yes or no.
Answer = Annotated[NonBlank, BeforeValidator(_value_to_text)]
#: Answers: one, or a list of answers and of lists of alternatives. The first is canonical.
Answers = Annotated[tuple[Answer, ...], BeforeValidator(as_answers)]


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number")
    return value


#: Usage that a system reports. An implausibly large number is rejected as a mistake.
_Count = Annotated[int, Field(ge=0, le=100_000_000)]
Count = Annotated[_Count | None, BeforeValidator(_text_to_whole_number), BeforeValidator(_no_bool)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[_Amount | None, BeforeValidator(_no_bool)]


def answers_of(value: Any) -> list[str]:
    """Return the distinct answers that `value` holds, the canonical one first.

    Raises:
        ValueError: An answer is not a text, a number or a truth value. The message is one line.
    """
    adapter: TypeAdapter[tuple[str, ...]] = TypeAdapter(Answers)
    try:
        return list(dict.fromkeys(adapter.validate_python(value)))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(problem["msg"].removeprefix("Value error, ").replace("\n", " ")) from None
