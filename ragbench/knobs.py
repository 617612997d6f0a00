"""Knobs: the declared settings of a program, a retriever or an optimizer.

A knob is a field of a frozen pydantic model: type, default, bounds and one line of description. The
command line, config files and Python all go through `resolve`, so a wrong value fails the same way
everywhere, with the value, the bound and the default named.
"""

import contextlib
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from ragbench.errors import KnobError


class Knobs(BaseModel):
    """Base of every set of knobs; declare each as `name: type = Field(default, ge=, le=, ...)`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_guessed(cls, values: Any) -> Any:
        """Reject values that pydantic would convert: True for 1, `yes` for True, `1_0` for 10."""
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if name in cls.model_fields:
                kind = cls.model_fields[name].annotation
            else:
                kind = str
            kinds = {kind, *get_args(kind)}
            for each in get_args(kind):
                if get_origin(each) is Annotated:  # a number within bounds, or a word
                    kinds.add(get_args(each)[0])
            if str in kinds or not isinstance(value, int | float | str):
                continue
            odd = isinstance(value, str) and ("_" in value or not value.isascii())
            if kinds & {int, float} and (odd or (isinstance(value, bool) and bool not in kinds)):
                raise ValueError(f"{name}={value!r} is not allowed; give a number")
            if kind is bool and str(value).lower() not in ("true", "false"):
                raise ValueError(f"{name}={value!r} is not allowed; give true or false")
        return values

    def but(self, **changes: Any) -> Self:
        """Return a copy with `changes`; a mapping is replaced completely."""
        return self.model_copy(update=changes)


K = TypeVar("K", bound=Knobs)
_BOUNDS = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}


def resolve(
    model: type[K], owner: str, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> K:
    """Validate the parameters of `owner`.

    Args:
        model: Class of the parameters.
        owner: Name for messages.
        values: Given values. They override `defaults`.
        defaults: Values of the variant. They override the declared defaults.

    Raises:
        KnobError: A parameter is unknown, has a wrong type or is out of range.
    """
    for name in values:
        if not model.model_fields:
            raise KnobError(f"{owner} has no settings, so nothing reads {name}; leave it out")
        if name not in model.model_fields:
            near = difflib.get_close_matches(name, model.model_fields, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known_knobs = ", ".join(model.model_fields)
            raise KnobError(f"{owner} has no knob {name!r}; {hint}its knobs: {known_knobs}")
    try:
        return model(**{**(defaults or {}), **{n: parse(model, n, v) for n, v in values.items()}})
    except ValidationError as error:
        raise KnobError(_explain(owner, model, error)) from None


def parse(model: type[Knobs], name: str, value: Any) -> Any:
    """Parse the value of a parameter.

    Args:
        model: Class of the parameters.
        name: Name of the parameter.
        value: Value. Text is read by the type of the parameter.

    Returns:
        The parsed value. Text that does not fit is unchanged.
    """
    if not isinstance(value, str):
        return value
    kind = model.model_fields[name].annotation
    kinds = [kind, *get_args(kind)]
    if type(None) in kinds and value.lower() in ("none", "null"):
        return None
    if get_origin(kind) is Literal:
        return next((choice for choice in get_args(kind) if str(choice) == value), value)
    if get_origin(kind) is dict and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    if get_origin(kind) is tuple:
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def describe(
    model: type[Knobs], defaults: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """Describe each parameter.

    Args:
        model: Class of the parameters.
        defaults: Values of a variant that replace the defaults.

    Yields:
        Name, default, allowed values and description.
    """
    for name, field in model.model_fields.items():
        default = str((defaults or {}).get(name, field.default))
        yield name, default, _allowed(field), field.description or ""


def _explain(owner: str, model: type[Knobs], error: ValidationError) -> str:
    problem = error.errors()[0]
    if not problem["loc"] or problem["type"] == "value_error":
        return f"{owner}: {problem['msg'].removeprefix('Value error, ')}"
    name = str(problem["loc"][0])
    field = model.model_fields[name]
    refusal = f"{owner}: {name}={problem['input']!r} is not allowed"
    return f"{refusal}; give {_allowed(field)} (default {field.default!r})"


def _allowed(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal:
        return "any of " + ", ".join(map(str, get_args(get_args(kind)[0])))
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    bounds = _bounds(field.metadata)
    if bounds:
        return f"{_type_name(kind)} {bounds}"
    return _alternatives(kind) or _type_name(kind)


def _bounds(metadata: Iterable[Any]) -> str:
    """Format the bounds in `metadata`, such as `>= 0 and <= 2`."""
    declared = list(metadata)
    bounds = []
    for sign, name in _BOUNDS.items():
        for bound in declared:
            if hasattr(bound, name):
                bounds.append(f"{sign} {getattr(bound, name)}")
    return " and ".join(bounds)


def _alternatives(kind: Any) -> str:
    """Format a bounded number or one of some words, such as `float >= 0, or none`."""
    choices: list[str] = []
    for member in get_args(kind):
        if get_origin(member) is Literal:
            choices += map(str, get_args(member))
        elif get_origin(member) is Annotated:
            number, info = get_args(member)
            choices.append(f"{_type_name(number)} {_bounds(info.metadata)},")
    return " or ".join(choices)


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "choice"
    if get_origin(annotation) is tuple:
        return "list"
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
