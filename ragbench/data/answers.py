"""What fields of a record may be: texts, ids, numbers, and answers; one set of types for all doors.

An answer is a text, a number, or true or false (yes or no). Answers are one of these or a list of
them, in which a list within holds alternatives; in a table they may be such a list as JSON, or as
Python writes it. `answers_of` reads the same of an object.
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


def _printable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no character") from None
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def decoded(text: str) -> str:
    """`text` with its HTML entities as characters: `&amp;` as `&`. `&amp;lt;` becomes `&lt;`."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _whole_number_to_text(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, Cell) and isinstance(value.typed(), int) and value.endswith(".0"):
        value = value.typed()
    if isinstance(value, float) and value.is_integer():  # as tables with empty cells write it
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _text_to_whole_number(value: Any) -> Any:
    """Return the whole number in a table cell (2, "2" or 2.0); None for a blank cell."""
    value = plain(value)
    if isinstance(value, str):
        if not value.strip():
            return None
        if _NUMBER.fullmatch(value):
            return int(float(value))
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if value.is_integer():
            return int(value)
    return value


def _value_to_text(value: Any) -> Any:
    """Return a number as people write it, true and false as yes and no, a date without a time."""
    value = plain(value)
    if isinstance(value, Cell):
        value = value.typed()
    if isinstance(value, str):
        return without_midnight(value)
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise ValueError(f"is {value}, which is no answer")
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def as_list(value: Any) -> Any:
    """Return a single value as a list of one; a missing one as an empty list."""
    value = plain(unpacked(value))
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [value]


def as_answers(value: Any) -> Any:
    """Returns `value` as a list of single answers; those of a list within follow in its place."""
    answers: list[Any] = []
    for answer in as_list(value):
        if isinstance(answer, list):
            answers.extend(item for item in answer if item is not None)
        elif answer is not None:
            answers.append(answer)
    return answers


_Plain = Annotated[StrictStr, AfterValidator(_printable)]
#: Any text, stripped of nothing, HTML entities decoded.
Text = Annotated[_Plain, AfterValidator(decoded)]
#: Text with something in it; stripped.
NonBlank = Annotated[Text, AfterValidator(_not_blank)]
#: An id: text as it stands, or a whole number that becomes text.
Id = Annotated[_Plain, AfterValidator(_not_blank), BeforeValidator(_whole_number_to_text)]
#: One id, or a list of ids.
Ids = Annotated[tuple[Id, ...], BeforeValidator(as_answers)]
#: A whole number, in a table also as its text.
Whole = Annotated[StrictInt, BeforeValidator(_text_to_whole_number)]
#: A whole number, or none where the cell is blank.
OptionalWhole = Annotated[StrictInt | None, BeforeValidator(_text_to_whole_number)]
#: An answer: text, a number, or true or false, which becomes yes or no.
Answer = Annotated[NonBlank, BeforeValidator(_value_to_text)]
#: Answers: one, or a list of them and of lists of alternatives; the first is the canonical one.
Answers = Annotated[tuple[Answer, ...], BeforeValidator(as_answers)]


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number")
    return value


#: What a system says that it took; more calls or tokens than a person can mean are a mistake.
_Count = Annotated[int, Field(ge=0, le=100_000_000)]
Count = Annotated[_Count | None, BeforeValidator(_text_to_whole_number), BeforeValidator(_no_bool)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[_Amount | None, BeforeValidator(_no_bool)]


def answers_of(value: Any) -> list[str]:
    """Returns the answers that `value` holds, each once, the canonical one first.

    Raises:
        ValueError: one of them is no text, number or truth value; a one-line message.
    """
    adapter: TypeAdapter[tuple[str, ...]] = TypeAdapter(Answers)
    try:
        return list(dict.fromkeys(adapter.validate_python(value)))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(problem["msg"].removeprefix("Value error, ").replace("\n", " ")) from None
