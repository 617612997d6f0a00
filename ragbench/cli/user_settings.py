"""User settings file: defaults for the options of every command.

It is `~/.config/ragbench.yaml`, or the file in the variable RAGBENCH_CONFIG. ragbench never
reads one from the working folder, because it could send a key to another server. Typed options
and the file of `--config` take precedence. Values from the settings file are recorded like typed
ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

VARIABLE = "RAGBENCH_CONFIG"
#: Settings that belong to the file's LM and do not apply to another LM.
_OF_THE_LM = ("api_base", "header", "ca_file", "price")
#: Spending limits of a command.
_LIMITS = ("max_cost", "max_total_tokens", "max_calls", "max_minutes")


def settings_path() -> Path | None:
    """Return the path of the settings file, or None if there is none.

    Raises:
        ConfigError: RAGBENCH_CONFIG is not the absolute path of a file.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        path = Path.home() / ".config" / "ragbench.yaml"
        return path if path.is_file() else None
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_absolute() or not path.is_file():
        from ragbench.errors import ConfigError

        raise ConfigError(f"{VARIABLE}={value!r} is not the absolute path of a settings file")
    return path


def set_defaults(ctx: click.Context, command: click.Command) -> None:
    """Set the defaults of a command from the settings file, if it exists.

    Args:
        ctx: Context of the command. Changed in place.
        command: The command, whose options the file may set.
    """
    path = settings_path()
    if path is None or ctx.resilient_parsing:
        return
    options = {param.name for param in command.params if isinstance(param, click.Option)}
    values = _read(path)
    if "lm" not in options:  # the judge is a different LM
        for name in _OF_THE_LM:
            values.pop(name, None)
    ctx.default_map = {name: _typed(values[name]) for name in values.keys() & options}


def taken(ctx: click.Context) -> set[str]:
    """Return the names of the options whose values come from the settings file."""
    source = ctx.get_parameter_source
    return {name for name in ctx.params if source(name) is ParameterSource.DEFAULT_MAP}


def without_other_lm(values: dict[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the settings file that fit the LM that the user gives.

    Args:
        values: Values of the settings file.
        typed: Values of options and of the config file.
    """
    if typed.get("lm") not in (None, values.get("lm")):
        for name in _OF_THE_LM:
            values.pop(name, None)
    return values


def _read(path: Path) -> dict[str, Any]:
    from ragbench.experiments.config import CompileConfig, TuneConfig, load_config
    from ragbench.experiments.config.model import check_names

    values = load_config(path)
    also = {*_LIMITS, *CompileConfig.model_fields, *TuneConfig.model_fields}
    check_names(values, str(path), also)
    return values


def _typed(value: Any) -> Any:
    """Return a value of the file in the form of a typed option."""
    if isinstance(value, Mapping):
        return tuple(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None:
        return "0"  # `limit: null` means all
    return value
