"""From a DataSpec to a Dataset."""

from __future__ import annotations

from typing import get_args

from ragbench.data.base import DATASETS, Dataset, DataSpec, Setting
from ragbench.data.readers import describe_layout
from ragbench.data.sources import question_files
from ragbench.data.splits import check_fractions
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers import View


def load_dataset(spec: DataSpec) -> Dataset:
    """The data set that `spec` describes.

    Raises:
        UnknownNameError: no such data set.
        ConfigError: options that do not go together.
        DataError: a file or a hub repository that is missing or malformed.
    """
    loader = DATASETS.get(spec.dataset)
    check_spec(spec)
    try:
        return loader(spec)
    except (DataError, ConfigError) as error:
        remarks = (describe_layout(path, spec.dataset) for path in question_files(spec).values())
        if remark := next(filter(None, remarks), ""):
            raise type(error)(f"{error}{remark}") from None
        raise


def check_spec(spec: DataSpec) -> None:
    """Nothing, where the options of `spec` go together.

    Raises:
        ConfigError: they do not; the message has the cure.
    """
    check_fractions(spec.fractions)
    _choice("setting", spec.setting, get_args(Setting))
    _choice("view", spec.view, get_args(View))
    files = question_files(spec)
    if spec.hub and files:
        raise ConfigError(f"choose one: the hub, or the file {next(iter(files.values()))}")
    for name in ("hub_config", "hub_repo"):
        if getattr(spec, name) and not spec.hub:
            raise ConfigError(f"{name} {getattr(spec, name)!r} needs the hub to be chosen too")
    if spec.chunk_file and spec.view != "chunk":
        raise ConfigError(f"--chunk-file {spec.chunk_file} needs --view chunk")
    if spec.alias_file and spec.dataset != "2wikimultihopqa":
        raise ConfigError(f"--alias-file {spec.alias_file} is for 2wikimultihopqa alone")
    for name in ("chunk_tokens", "passage_tokens"):
        if not 10 <= getattr(spec, name) <= 100_000:
            raise ConfigError(f"{name} must be from 10 to 100,000, not {getattr(spec, name)}")


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
