"""Options made of the fields of a config model, so that nothing is said twice.

Name, type, choices, help and default of an option come from its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from ragbench.cli.command import Finite, option, pairs
from ragbench.experiments.config import Option, option_of
from ragbench.knobs import Knobs


class Name(click.ParamType[str]):
    """The name of a registered thing of `kind`, which a shell completes; checked where it is used.

    Retrievers may be specs with settings, and plug-ins may add names, so any text is taken here.
    """

    name = "name"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin as what was typed."""
        from ragbench.cli.listing import names_of

        return [CompletionItem(name) for name in names_of(self.kind) if name.startswith(incomplete)]


def field_options(
    model: type[Knobs],
    group: str,
    *,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    defaults: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Callable[[Any], Any]]:
    """An option for each field of `model`, or for those in `only`, in declared order.

    `defaults` are what the help of a command says in place of a field's default; a field whose
    default is None there is taken by the command and not in its help.
    """
    names = [n for n in only or model.model_fields if n not in {*without}]
    return [field_option(n, model.model_fields[n], group, defaults.get(n, "")) for n in names]


def field_option(
    name: str, field: FieldInfo, group: str, default: str | None
) -> Callable[[Any], Any]:
    """The option that sets `field`; not given, it is None, so that a config file's value holds."""
    about = option_of(field)
    flat = about.name or name
    flags = ["--" + each.replace("_", "-") for each in (flat, *about.aliases)]
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    kind = field.annotation
    if get_origin(kind) is not Literal and NoneType in get_args(kind):
        kind = kinds[0]
    settings: dict[str, Any] = {"default": None, "help": _help(field, default or about.default)}
    settings["hidden"] = default is None
    if about.metavar:
        settings["metavar"] = about.metavar
    if kind is bool:
        flags[0] += f"/--no-{flags[0][2:]}"
    elif get_origin(kind) is dict:
        settings |= {"multiple": True, "callback": pairs, "default": ()}
    else:
        settings["type"] = _type(kind, about)
    return option(*flags, flat, group=_TITLES.get(about.group, group), **settings)


_TITLES = {"limits": "Limits", "run": "Run", "program": "Program", "control": "Program"}


def _type(kind: Any, about: Option) -> Any:
    if about.choices:
        return Name(about.choices)
    if get_origin(kind) is Literal:
        return click.Choice([str(choice) for choice in get_args(kind)])
    if kind is Path:
        return click.Path(path_type=Path)
    return Finite() if kind is float else str if get_origin(kind) is tuple else kind


def _help(field: FieldInfo, default: str) -> str:
    text = field.description or ""
    default = default or _shown(field.default)
    shown = f" [default: {default}]" if default else ""
    return f"{text[:1].upper()}{text[1:]}.{shown}"


def _shown(value: Any) -> str:
    if value is None or value is False or value in ({}, ()):
        return ""
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
