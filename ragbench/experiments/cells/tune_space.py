"""Space of a search: the settings that an Optuna sampler draws, and their bounds.

A name is a parameter of the program (`k`), a setting of the retriever (`retriever.rrf_k`), or a
field of the run (`passage_tokens`).
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

import yaml
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic.fields import FieldInfo

from ragbench.errors import ConfigError
from ragbench.experiments.config import RunConfig
from ragbench.programs.core import RAGProgram

#: Never searched unless named: the method itself, and limits that only cut off.
LEFT_OUT = frozenset({"variant", "max_calls", "max_retrievals"})
_RETRIEVER = "retriever."

Space = dict[str, BaseDistribution]


def with_settings(config: RunConfig, drawn: Mapping[str, Any]) -> RunConfig:
    """Return `config` with drawn settings.

    Args:
        config: The run.
        drawn: Value of each name of a space.
    """
    fields: dict[str, Any] = {"set": {**config.set}, "retriever_set": {**config.retriever_set}}
    for name, value in drawn.items():
        if name.startswith(_RETRIEVER):
            fields["retriever_set"][name.removeprefix(_RETRIEVER)] = value
        elif _is_field(name):
            fields[name] = value
        else:
            fields["set"][name] = value
    return config.but(**fields)


def make_space(
    program: type[RAGProgram],
    fixed: Mapping[str, Any],
    *,
    narrowed: Mapping[str, str],
    only: Collection[str] = (),
) -> Space:
    """Choose the settings to search and their bounds.

    Every bool, Literal and bounded number of the program is searched, or those named in `only`.
    If `narrowed` names a setting of the retriever or the run, only named settings are searched.

    Args:
        program: The program.
        fixed: Its parameters that are set, which are not searched.
        narrowed: Range `low:high` or choices `a,b` of a setting.
        only: Names of the settings to search. Empty searches all parameters.

    Raises:
        ConfigError: A name is fixed or has no bounds, or nothing is left to search.
        KnobError: The program has no such parameter, or does not read it.
    """
    defaults = program.resolve_knobs(fixed)
    fields = program.Knobs.model_fields
    space: Space = {}
    for name, text in narrowed.items():
        if name.startswith(_RETRIEVER) or (_is_field(name) and name not in fields):
            space[name] = _narrowed(name, text, [yaml.safe_load(part) for part in _parts(text)])
    named = {*only, *narrowed} - space.keys()
    for name in named:
        if name in fixed:
            raise ConfigError(f"knob {name} is fixed by --set {name}={fixed[name]}; leave one out")
        program.resolve_knobs({**fixed, name: getattr(defaults, name, None)})  # names the near ones
        if name in program.unread:
            value = narrowed.get(name, getattr(defaults, name))
            raise program.unread_error(name, value, program.unread)
    if not (only or space):
        named |= fields.keys() - LEFT_OUT - program.unread.keys() - fixed.keys()
    for name in filter(named.__contains__, fields):
        if name in narrowed:
            values = []
            for part in _parts(narrowed[name]):
                values.append(getattr(program.resolve_knobs({**fixed, name: part}), name))
            space[name] = _narrowed(name, narrowed[name], values)
        elif distribution := _of_field(fields[name], getattr(defaults, name)):
            space[name] = distribution
    if not space:
        raise ConfigError(
            f"no knob of {program.name} is left to search; leave out a --set, or give --space"
        )
    return space


def _is_field(name: str) -> bool:
    return name in RunConfig.model_fields and name != "k"


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(":" if ":" in text else ",")]


def _narrowed(name: str, text: str, values: list[Any]) -> BaseDistribution:
    """Return the distribution of the range or choices in `text`, with these `values`."""
    if ":" not in text:
        return CategoricalDistribution(values)
    kinds = {type(value) for value in values}
    if len(values) != 2 or not kinds <= {int, float} or values[0] > values[1]:
        raise ConfigError(f"--space {name}={text} is not a range; give LOW:HIGH, or A,B")
    return _numbers(float if float in kinds else int, values[0], values[1])


def _of_field(field: FieldInfo, default: Any) -> BaseDistribution | None:
    """Return a quarter of the default to four times it, within the bounds; a fraction in full."""
    kind: Any = field.annotation
    if kind is bool:
        return CategoricalDistribution([False, True])
    if get_origin(kind) is Literal:
        return CategoricalDistribution(list(get_args(kind)))
    low: Any = None
    high: Any = None
    for bound in field.metadata:
        low = getattr(bound, "ge", low)
        high = getattr(bound, "le", high)
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
