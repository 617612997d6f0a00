"""Map the fields of any file to ours: questions, passages and predictions.

A path locates a value in a record: `answer`, `answer.value` within an object, `output[].answer` in
each object of a list (as one flat list), `output[0].answer` in one of them. A negative number
counts from the end (`messages[-1].content`). Paths also lead into text that is JSON. `Record` is
the base class of all records. An invalid record becomes a one-line DataError with the file, the
record, the field and the option that maps it.
"""

import re
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

from ragbench.data.readers import Row, kind_of
from ragbench.data.values import plain, unpacked
from ragbench.errors import DataError

#: Maximum length of a message, because a quoted value may have any length.
_LONGEST = 500
_STEP = re.compile(r"\[(?:-?\d+)?\]|[^.\[\]]+")


class Record(BaseModel):
    """Required fields of one record of a file. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    #: Option that maps the user's field names to ours. Blank if there is none.
    option: ClassVar[str] = ""


Model = TypeVar("Model", bound=Record)


def validate(model: type[Model], row: Row) -> Model:
    """Validate a row as `model`. A null is an absent field.

    In a field of lists or objects, a text that is a JSON list or object is parsed.

    Args:
        model: Class of the record.
        row: Row of the file.

    Returns:
        The record.

    Raises:
        DataError: A field is missing or has the wrong type. The message names it.
    """
    if not isinstance(row.data, dict):
        raise DataError(f"{row.where}: must be an object, not {kind_of(row.data)}")
    structured = _structured(model)
    data: dict[str, Any] = {}
    for name, value in row.data.items():
        if value is not None:
            data[name] = plain(unpacked(value)) if name in structured else value
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, problem["loc"])) or "record"
    message = problem["msg"].removeprefix("Value error, ")
    message = message.replace("\n", " ").replace("tuple", "list")
    if problem["type"] == "missing":
        message = "is missing"
        if "." not in field:
            message = missing(model, row, field)
    elif problem["type"].endswith("_type"):
        message = f"{message}, not {kind_of(problem['input'])}"
        if model.option and isinstance(problem["input"], dict):
            within = next(iter(problem["input"]), "NAME")
            name = str(problem["loc"][0])
            message += f"; {model.option} {name}={name}.{within} reads what is within"
    fail(row, field, message)


def missing(model: type[Record], row: Row, field: str) -> str:
    """Return the message for a missing field, with the option that maps it.

    Args:
        model: Class of the record.
        row: Row without the field.
        field: Name of the field.
    """
    if not model.option:
        return "is missing"
    present = ", ".join(map(str, row.data))[:200]
    ours = field.removeprefix("_")
    return f"is missing; there are {present}: give {model.option} {ours}=NAME to read one of these"


@cache
def _structured(model: type[Record]) -> frozenset[str]:
    """Return the names, in a file, of the fields that are lists or objects."""
    fields: set[str] = set()
    for name, field in model.model_fields.items():
        if not _is_structured(field.annotation):
            continue
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            fields.update(choice for choice in alias.choices if isinstance(choice, str))
        else:
            fields.add(alias if isinstance(alias, str) else name)
    return frozenset(fields)


def _is_structured(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Annotated:
        return _is_structured(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return any(map(_is_structured, get_args(kind)))
    return origin is not None


def fail(row: Row, field: str, message: str) -> NoReturn:
    """Raise a DataError that names the row, its id if it has one, and the field."""
    label = ""
    if isinstance(row.data, dict):
        record_id = row.data.get("id", row.data.get("_id"))
        if isinstance(record_id, str | int):
            label = f" (id {str(record_id)[:60]!r})"
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    raise DataError(f"{row.where}{label}: field {field!r}: {message}")


class MissingPathError(Exception):
    """Error of a path that leads to no value. The message names the failing step."""


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path. Values of the objects of a list form one flat list.

    Args:
        data: Record.
        path: Path of the value, see the module.

    Raises:
        MissingPathError: The path leads to no value.
    """
    if isinstance(data, dict) and path in data:
        return data[path]
    return _follow(data, _STEP.findall(path))


def _follow(value: Any, steps: list[str]) -> Any:
    if not steps:
        return value
    value = unpacked(value)
    step = steps[0]
    remaining = steps[1:]
    if step == "[]":
        return _each(value, remaining)
    if step.startswith("["):
        number = int(step[1:-1])
        if not isinstance(value, list) or not -len(value) <= number < len(value):
            size = kind_of(value)
            if isinstance(value, list):
                size += f" of {len(value)}"
            raise MissingPathError(f"{step} is not there: it is {size}")
        return _follow(value[number], remaining)
    if isinstance(value, list):
        raise MissingPathError(f"a list holds {step!r}: write []. before it")
    if not isinstance(value, dict) or step not in value:
        raise MissingPathError(f"{step!r} is not there")
    return _follow(value[step], remaining)


def _each(value: Any, remaining: list[str]) -> list[Any]:
    """Return the values of the entries at `remaining`. Skips absent ones, unless all are."""
    if not isinstance(value, list | tuple):
        raise MissingPathError(f"[] needs a list, not {kind_of(value)}")
    values: list[Any] = []
    absent: MissingPathError | None = None
    for entry in value:
        try:
            value_of_entry = _follow(entry, remaining)
        except MissingPathError as error:
            absent = error
            continue
        if isinstance(value_of_entry, list | tuple):
            values.extend(value_of_entry)
        else:
            values.append(value_of_entry)
    if absent is not None and not values:
        raise absent
    return values


def has(data: Any, path: str) -> bool:
    """Return True if `path` leads to a value in `data`."""
    try:
        value_at(data, path)
    except MissingPathError:
        return False
    return True


def absent_fields(row: Row, paths: Mapping[str, str]) -> set[str]:
    """Return our fields whose paths lead to no value in the row."""
    return {ours for ours, path in paths.items() if not has(row.data, path)}


def map_fields(row: Row, paths: Mapping[str, str], option: str = "--field") -> Row:
    """Replace the user's field names by ours.

    A mapped field is not also read under its own name.

    Args:
        row: Row of the file.
        paths: Our field names -> paths in the row.
        option: Option that gave the paths, for messages.

    Returns:
        The row with our fields.

    Raises:
        DataError: A path leads to no value.
    """
    if not paths or not isinstance(row.data, dict):
        return row
    taken: dict[str, Any] = {}
    used: set[str] = set()
    for ours, path in paths.items():
        try:
            taken[ours] = value_at(row.data, path)
        except MissingPathError as error:
            present = ", ".join(sorted(map(str, row.data)))[:200]
            end = ""
            if len(_STEP.findall(path)) > 1:
                end = f" ({error})"
            raise DataError(
                f"{row.where}: has no field {path!r}; it has {present}: "
                f"change {option} {ours}={path}{end}"
            ) from None
        used |= {path, *_STEP.findall(path)[:1]}
    unmapped = {}
    for name, value in row.data.items():
        if name not in used:
            unmapped[name] = value
    return row._replace(data={**unmapped, **taken})
