"""The space of a program's knobs that a search goes through, from their types and bounds."""

from __future__ import annotations

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
    narrowed: Mapping[str, str] | None = None,
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
    narrowed = narrowed or {}
    fields = program.Knobs.model_fields
    defaults = program.resolve_knobs(given)
    for name in (*only, *narrowed):
        if name in given:
            raise ConfigError(f"knob {name} is fixed by --set {name}={given[name]}; leave one out")
        program.resolve_knobs({**given, name: getattr(defaults, name, None)})  # names the near ones
    names = [n for n in fields if n in only] if only else [n for n in fields if n not in LEFT_OUT]
    names = [n for n in fields if n in {*names, *narrowed} and n not in given]
    space: Space = {}
    for name in names:
        default = getattr(defaults, name)
        distribution = (
            _narrowed(program, given, name, narrowed[name])
            if name in narrowed
            else _of_field(fields[name], default)
        )
        if distribution is None and name in only:
            raise ConfigError(f"knob {name} has no bounds to search; give --space {name}=A,B")
        if distribution is not None:
            _check(program, given, name, distribution)
            space[name] = distribution
    if not space:
        raise ConfigError(f"no knob of {program.name} is left to search; leave out a --set")
    return space


def describe(space: Space) -> list[str]:
    """One line per knob."""
    lines = []
    for name, distribution in space.items():
        if isinstance(distribution, CategoricalDistribution):
            lines.append(f"  {name}: {', '.join(map(str, distribution.choices))}")
        elif isinstance(distribution, IntDistribution | FloatDistribution):
            log = " (log)" if distribution.log else ""
            lines.append(f"  {name}: {distribution.low} to {distribution.high}{log}")
    return lines


def _of_field(field: FieldInfo, default: Any) -> BaseDistribution | None:
    kind = field.annotation
    if kind is bool:
        return CategoricalDistribution([False, True])
    if get_origin(kind) is Literal:
        return CategoricalDistribution(list(get_args(kind)))
    low, high = _bounds(field)
    if kind not in (int, float) or low is None or high is None or default is None:
        return None
    if kind is float and high <= 1:
        return FloatDistribution(low, high)
    if kind is int:
        low, high = max(low, default // 4), min(high, 4 * max(default, 1))
    else:
        low, high = max(low, default / 4), min(high, 4 * (default or 1.0))
    return _numbers(kind, low, high)


def _numbers(kind: Any, low: float, high: float) -> BaseDistribution:
    wide = low > 0 and high / low >= 10
    if kind is int:
        return IntDistribution(int(low), int(high), log=wide)
    return FloatDistribution(float(low), float(high), log=wide)


def _bounds(field: FieldInfo) -> tuple[float | None, float | None]:
    low = next((m.ge for m in field.metadata if isinstance(m, at.Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, at.Le)), None)
    return low, high  # type: ignore[return-value]


def _narrowed(
    program: type[RAGProgram], given: Mapping[str, Any], name: str, text: str
) -> BaseDistribution:
    field = program.Knobs.model_fields[name]
    low, colon, high = text.partition(":")
    if not colon:
        return CategoricalDistribution(
            [
                getattr(program.resolve_knobs({**given, name: part.strip()}), name)
                for part in text.split(",")
            ]
        )
    if field.annotation not in (int, float):
        raise ConfigError(f"knob {name} is no number; give --space {name}=A,B")
    try:
        ends = field.annotation(low), field.annotation(high)
        return _numbers(field.annotation, *ends)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no range of knob {name}; give --space {name}=LOW:HIGH"
        ) from None


def _check(
    program: type[RAGProgram], given: Mapping[str, Any], name: str, distribution: BaseDistribution
) -> None:
    if isinstance(distribution, CategoricalDistribution):
        values = list(distribution.choices)
    else:
        assert isinstance(distribution, IntDistribution | FloatDistribution)
        values = [distribution.low, distribution.high]
    for value in values:
        program.resolve_knobs({**given, name: value})
