"""Map the fields of any file to ours: questions, passages and predictions.

A path locates a value in a record: `answer`, `answer.value` within an object, `output[].answer` in
each object of a list (as one flat list), `output[0].answer` in one of them. A negative number
counts from the end (`messages[-1].content`). Paths also lead into text that is JSON. `Record` is
the base class of all records. An invalid record becomes a one-line DataError with the file, the
record, the field and the option that maps it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ragbench.data.readers import Row, kind_of
from ragbench.data.values import unpacked
from ragbench.errors import DataError

#: Maximum length of a message, because a quoted value may have any length.
_LONGEST = 500
_STEP = re.compile(r"\[(?:-?\d+)?\]|[^.\[\]]+")


class Record(BaseModel):
    """Required fields of one record of a file. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    #: Option that maps the user's field names to ours. Blank if there is none.
    option: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """Return the fields without nulls: a null is an absent field."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


Model = TypeVar("Model", bound=Record)


def validate(model: type[Model], row: Row) -> Model:
    """Validate a row as `model`.

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
    try:
        return model.model_validate(row.data)
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
    present = ", ".join(str(k) for k, v in row.data.items() if v is not None)[:200]
    ours = field.removeprefix("_")
    return f"is missing; there are {present}: give {model.option} {ours}=NAME to read one of these"


def fail(row: Row, field: str, message: str) -> NoReturn:
    """Raise a DataError that names the row, its id if it has one, and the field.

    Args:
        row: The row.
        field: Name of the field.
        message: The problem. Long messages are cut.
    """
    label = ""
    if isinstance(row.data, dict):
        record_id = row.data.get("id", row.data.get("_id"))
        if isinstance(record_id, str | int):
            label = f" (id {str(record_id)[:60]!r})"
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    raise DataError(f"{row.where}{label}: field {field!r}: {message}")


def map_rows(rows: Iterable[Row], paths: Mapping[str, str], option: str) -> Iterator[Row]:
    """Yield the rows with our field names. A record may lack a mapped field.

    Args:
        rows: Rows of a file.
        paths: Our field names -> paths in a row.
        option: Option that gave the paths, for messages.

    Raises:
        DataError: A path leads to no value in any row.
    """
    unseen = dict(paths)
    present = ""
    for row in rows:
        mapped = map_fields(row, paths)
        if unseen and isinstance(row.data, dict):
            present = present or ", ".join(sorted(map(str, row.data)))[:200]
            for ours in list(unseen):
                if mapped.data[ours] is not None:
                    del unseen[ours]
        yield mapped
    for ours, path in unseen.items():
        raise DataError(
            f"no record has {path!r}; there are {present}: change {option} {ours}={path}"
        )


def map_fields(row: Row, paths: Mapping[str, str]) -> Row:
    """Replace the user's field names by ours. A mapped field is not also read under its own name.

    Args:
        row: Row of the file.
        paths: Our field names -> paths in the row.

    Returns:
        The row with our fields. A field is None if its path leads to no value.
    """
    if not paths or not isinstance(row.data, dict):
        return row
    used = {*paths.values()}
    for path in paths.values():
        used.update(_STEP.findall(path)[:1])
    data = {name: value for name, value in row.data.items() if name not in used}
    for ours, path in paths.items():
        data[ours] = value_at(row.data, path)
    return row._replace(data=data)


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path, or None. Values of the objects of a list form one flat list.

    Args:
        data: Record.
        path: Path of the value, see the module.
    """
    if isinstance(data, dict) and path in data:
        return data[path]
    return _follow(data, _STEP.findall(path))


def _follow(value: Any, steps: Sequence[str]) -> Any:
    for place, step in enumerate(steps, start=1):
        value = unpacked(value)
        if step == "[]":
            return _each(value, steps[place:])
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.startswith("["):
            number = int(step[1:-1])
            value = value[number] if -len(value) <= number < len(value) else None
        else:
            return None
    return value


def _each(value: Any, steps: Sequence[str]) -> list[Any] | None:
    values: list[Any] = []
    for entry in value if isinstance(value, list | tuple) else ():
        found = _follow(entry, steps)
        if isinstance(found, list | tuple):
            values.extend(found)
        elif found is not None:
            values.append(found)
    return values or None
