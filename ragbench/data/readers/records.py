"""One record of a data file: its content, its fields' types, and the errors that name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictStr,
    ValidationError,
)

from ragbench.errors import DataError

#: Characters of a message: what it quotes may be of any length.
_LONGEST = 500


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


def _whole_number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _value_to_text(value: Any) -> Any:
    """A number as people write it, true and false as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float) and value - value != 0:
        raise ValueError(f"is {value}, which is no answer")
    return str(value) if isinstance(value, int | float) else value


def as_answers(value: Any) -> Any:
    """A single answer as a list of one; an absent one as none."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def same_length(columns: Iterable[Sequence[Any]], names: Iterable[str]) -> Sequence[Sequence[Any]]:
    """`columns`, which are called `names`.

    Raises:
        ValueError: they do not have the same number of values.
    """
    kept = list(columns)
    if len({len(column) for column in kept}) > 1:
        sizes = (f"{len(column)} of {name}" for column, name in zip(kept, names, strict=True))
        raise ValueError(f"has {' and '.join(sizes)}, which must be as many")
    return kept


#: Any text, stripped of nothing.
Text = Annotated[StrictStr, AfterValidator(_printable)]
#: Text with something in it; stripped.
NonBlank = Annotated[Text, AfterValidator(_not_blank)]
#: An id: text, or a whole number that becomes text.
Id = Annotated[NonBlank, BeforeValidator(_whole_number_to_text)]
#: An answer: text, a number, or true or false, which becomes yes or no.
Answer = Annotated[NonBlank, BeforeValidator(_value_to_text)]


class Record(BaseModel):
    """What one record of a file must have; fields that are not named are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    #: Whether the user can name another field to read one from (`--field`).
    renamed: ClassVar[bool] = False


class Row(NamedTuple):
    """A record as read: its place in the file, for messages, and its content.

    `split` is the split that the record belongs to, where the data set or the user says so.
    """

    where: str
    data: Any
    split: Literal["train", "validation", "test"] | None = None


Model = TypeVar("Model", bound=Record)


def validate(model: type[Model], row: Row) -> Model:
    """The row as `model`.

    Raises:
        DataError: a field is missing or of the wrong type; names the row and the field.
    """
    if not isinstance(row.data, dict):
        raise DataError(f"{row.where}: must be an object, not {kind_of(row.data)}")
    try:
        return model.model_validate(row.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        message = (
            first["msg"].removeprefix("Value error, ").replace("\n", " ").replace("tuple", "list")
        )
        if first["type"] == "missing":
            message = "is missing"
            if model.renamed and "." not in field:
                known = ", ".join(map(str, row.data))[:200]
                message += f"; there are {known}: give --field {field}=NAME to read one of these"
        elif first["type"].endswith("_type"):
            message = f"{message}, not {kind_of(first['input'])}"
        fail(row, field, message)


def fail(row: Row, field: str, message: str) -> NoReturn:
    """Raise a DataError that names the row, its id if it has one, and the field."""
    given = row.data.get("id", row.data.get("_id")) if isinstance(row.data, dict) else None
    known = f" (id {str(given)[:60]!r})" if isinstance(given, str | int) else ""
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    raise DataError(f"{row.where}{known}: field {field!r}: {message}")


def map_fields(row: Row, names: Mapping[str, str]) -> Row:
    """The row with our fields taken from the user's: `names` maps ours to theirs.

    A dot in a name steps into an object: `answer.value`. A field that is taken from is not read
    under its own name too.

    Raises:
        DataError: the record has no such field.
    """
    if not names or not isinstance(row.data, dict):
        return row
    taken = {ours: _get(row, theirs) for ours, theirs in names.items()}
    used = {part for name in names.values() for part in (name, name.partition(".")[0])}
    rest = {name: value for name, value in row.data.items() if name not in used}
    return row._replace(data={**rest, **taken})


def _get(row: Row, name: str) -> Any:
    if name in row.data:
        return row.data[name]
    value: Any = row.data
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(sorted(map(str, row.data)))[:200]
            raise DataError(f"{row.where}: has no field {name!r}; it has {known}")
        value = value[part]
    return value


def kind_of(value: Any) -> str:
    """The JSON type of `value`, for people."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number"}
    names[float] = "a number"
    return "null" if value is None else names.get(type(value), type(value).__name__)
