"""Arguments of DSPy's and third-party optimizers as parameters under their own names.

An optimizer is a class with a constructor and a method `compile`. `--opt-set` sets the arguments of
both, except those that a task supplies (questions, metric, LMs, seed, workers).
"""

import inspect
import json
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from pydantic import Field, create_model, field_validator

from ragbench.knobs import Knobs
from ragbench.user_code import load_object

K = TypeVar("K", bound=Knobs)
#: Arguments of a function by name, and its parameters.
Arguments = dict[str, Any]
Parameters = dict[str, inspect.Parameter]

#: Arguments that a task supplies, by DSPy's names, and arguments that only write to a terminal
#: or a service.
SUPPLIED = frozenset({
    "student", "trainset", "valset", "devset", "metric", "teacher", "teacher_settings",
    "eval_kwargs", "prompt_model",
    "prompt_lm", "reflection_lm", "task_model", "lm", "num_threads", "max_errors",
    "seed", "log_dir", "display_progress", "verbose", "track_stats", "provide_traceback",
    "requires_permission_to_run", "use_wandb", "wandb_api_key", "wandb_init_kwargs", "use_mlflow",
})  # fmt: skip
_WORDS = {"none": None, "null": None, "true": True, "false": False}
_EXTERNAL = re.compile(r"[\w./\\~-]+:[A-Za-z_]\w*")


class Argued(Knobs):
    """Parameters that parse text values as JSON."""

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: Any) -> Any:
        annotation = cls.model_fields[info.field_name].annotation
        if annotation is not Any or not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            return _WORDS.get(value.strip().lower(), value)


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return the named parameters of `function` without `self`, or none if unknown."""
    try:
        declared = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {n: p for n, p in declared.items() if n != "self" and p.kind not in several}


def student_of(compile: Callable[..., Any]) -> str:
    """Return the name of the argument of `compile` that takes the student."""
    return next(iter(parameters_of(compile)), "student")


def settings_of(function: Callable[..., Any]) -> Parameters:
    """Return the parameters of `function`, without the student of a `compile`."""
    parameters = parameters_of(function)
    if function.__name__ == "compile":
        parameters.pop(student_of(function), None)
    return parameters


def knobs_of(
    base: type[K], functions: Collection[Callable[..., Any]], *, without: Collection[str] = ()
) -> type[K]:
    """Return a subclass of `base` with a parameter for each argument that no task supplies.

    An unset parameter is not passed, so the function's own default applies. Arguments that end in
    `_key` are excluded, because parameters are stored.

    Args:
        base: Class of the parameters.
        functions: Functions whose arguments to add.
        without: Names to exclude.
    """
    fields: Arguments = {}
    for function in functions:
        for name, parameter in settings_of(function).items():
            if name in SUPPLIED or name in without or name in base.model_fields:
                continue
            if name.startswith("_") or name.endswith("_key") or name in fields:
                continue
            fields[name] = (Any, Field(None, description=f"argument {parameter}"))
    bases: Any = (base, Argued)
    argued: Any = create_model(f"{base.__name__}Argued", __base__=bases, **fields)
    return cast(type[K], argued)


def passed_to(function: Callable[..., Any], knobs: Knobs) -> Arguments:
    """Return the arguments of `function` that the user set, and import the code that they name.

    Args:
        function: A constructor or a `compile`.
        knobs: Parameters, from `knobs_of`.

    Raises:
        ConfigError: The code cannot be imported, or the user did not name it in this command.
    """
    arguments = {}
    for name in parameters_of(function):
        field = type(knobs).model_fields.get(name)
        if field is None or field.annotation is not Any or name not in knobs.model_fields_set:
            continue
        value = getattr(knobs, name)
        if isinstance(value, str) and _EXTERNAL.fullmatch(value):
            value = load_object(value, f"--opt-set {name}=")
            if isinstance(value, type):
                value = value()
        arguments[name] = value
    return arguments


def supplied_to(function: Callable[..., Any], supplied: Arguments) -> Arguments:
    """Return those of `supplied` that `function` declares.

    Args:
        function: A constructor or a `compile`. Its `**kwargs` get nothing.
        supplied: Arguments from the task, by name.
    """
    return {name: supplied[name] for name in settings_of(function) if name in supplied}


def shown(knobs: Knobs) -> Arguments:
    """Return `knobs` as JSON values, with the class name of each object."""
    return knobs.model_dump(mode="json", fallback=_class_of)


def _class_of(value: object) -> str:
    named = isinstance(value, type) or inspect.isfunction(value)
    kind: Any = value if named else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"
