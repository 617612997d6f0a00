"""The space of a program's knobs that a search goes through, from their types and bounds."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types as at
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic.fields import FieldInfo

from ragbench.errors import ConfigError
from ragbench.programs.core import RAGProgram

#: Never searched unless asked for: which method it is, and limits that only cut off.
LEFT_OUT = frozenset({"variant", "max_calls", "max_retrievals"})

Space = dict[str, BaseDistribution]


def make_space(
    program: type[RAGProgram],
    given: Mapping[str, Any],
    *,
    narrowed: Mapping[str, str],
    only: Collection[str] = (),
) -> Space:
    """The knobs of `program` to search, by name; those `given` are fixed.

    Every bool, Literal and bounded number is searched, or those named in `only`. Numbers go from a
    quarter of their default to four times it, within their bounds; a fraction of 1 goes through all
    of them. `narrowed` says otherwise for a knob: `low:high`, or choices separated by commas.

    Raises:
        KnobError: an unknown knob, or a value that it does not allow.
        ConfigError: a knob that cannot be searched, or none is left.
    """
    defaults = program.resolve_knobs(given)
    for name in (*only, *narrowed):
        if name in given:
            raise ConfigError(f"knob {name} is fixed by --set {name}={given[name]}; leave one out")
        program.resolve_knobs({**given, name: getattr(defaults, name, None)})  # names the near ones
    fields = program.Knobs.model_fields
    wanted = {*(only or fields.keys() - LEFT_OUT), *narrowed} - given.keys()
    space: Space = {}
    for name in (name for name in fields if name in wanted):
        if name in narrowed:
            found: Any = _narrowed(program, given, name, narrowed[name])
        else:
            found = _of_field(fields[name], getattr(defaults, name))
        if found is None and name in only:
            raise ConfigError(f"knob {name} has no bounds to search; give --space {name}=A,B")
        if found is not None:
            for value in getattr(found, "choices", None) or (found.low, found.high):
                program.resolve_knobs({**given, name: value})
            space[name] = found
    if not space:
        raise ConfigError(f"no knob of {program.name} is left to search; leave out a --set")
    return space


def describe(space: Mapping[str, Any]) -> list[str]:
    """One line per knob."""
    return [
        f"  {name}: {', '.join(map(str, values.choices))}"
        if isinstance(values, CategoricalDistribution)
        else f"  {name}: {values.low} to {values.high}{' (log)' if values.log else ''}"
        for name, values in space.items()
    ]


def _of_field(field: FieldInfo, default: Any) -> BaseDistribution | None:
    kind: Any = field.annotation
    if kind is bool:
        return CategoricalDistribution([False, True])
    if get_origin(kind) is Literal:
        return CategoricalDistribution(list(get_args(kind)))
    low: Any = next((m.ge for m in field.metadata if isinstance(m, at.Ge)), None)
    high: Any = next((m.le for m in field.metadata if isinstance(m, at.Le)), None)
    if kind not in (int, float) or None in (low, high, default):
        return None
    if kind is float and high <= 1:
        return FloatDistribution(low, high)
    quarter = default // 4 if kind is int else default / 4
    return _numbers(kind, max(low, quarter), min(high, 4 * (default or 1)))


def _numbers(kind: Any, low: float, high: float) -> BaseDistribution:
    wide = low > 0 and high / low >= 10
    if kind is int:
        return IntDistribution(int(low), int(high), log=wide)
    return FloatDistribution(float(low), float(high), log=wide)


def _narrowed(
    program: type[RAGProgram], given: Mapping[str, Any], name: str, text: str
) -> BaseDistribution:
    kind: Any = program.Knobs.model_fields[name].annotation
    low, colon, high = text.partition(":")
    if not colon:
        resolved = (program.resolve_knobs({**given, name: v.strip()}) for v in text.split(","))
        return CategoricalDistribution([getattr(knobs, name) for knobs in resolved])
    if kind not in (int, float):
        raise ConfigError(f"knob {name} is no number; give --space {name}=A,B")
    try:
        return _numbers(kind, kind(low), kind(high))
    except ValueError:
        raise ConfigError(
            f"{text!r} is no range of knob {name}; give --space {name}=LOW:HIGH"
        ) from None
