"""From a DataSpec to a Dataset."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

from ragbench.data.base import DATASETS, Dataset, DataSpec, Setting
from ragbench.data.splits import check_fractions
from ragbench.errors import ConfigError, DataError
from ragbench.retrievers.base import View


def load_dataset(spec: DataSpec) -> Dataset:
    """The data set that `spec` describes.

    Raises:
        UnknownNameError: no such data set.
        ConfigError: options that do not go together.
        DataError: a file or a hub repository that is missing or malformed.
    """
    loader = DATASETS.get(spec.dataset)
    check_spec(spec)
    return loader(spec)


def check_spec(spec: DataSpec) -> None:
    """Nothing, where the options of `spec` go together.

    Raises:
        ConfigError: they do not; the message has the cure.
    """
    check_fractions(spec.fractions)
    _choice("setting", spec.setting, get_args(Setting))
    _choice("view", spec.view, get_args(View))
    if spec.hub and spec.data_file:
        raise ConfigError(f"choose one: the hub, or --data-file {spec.data_file}")
    if spec.hub_config and not spec.hub:
        raise ConfigError(f"hub_config {spec.hub_config!r} needs the hub to be chosen too")
    if spec.chunk_file and spec.view != "chunk":
        raise ConfigError(f"--chunk-file {spec.chunk_file} needs --view chunk")
    if spec.alias_file and spec.dataset != "2wikimultihopqa":
        raise ConfigError(f"--alias-file {spec.alias_file} is for 2wikimultihopqa alone")
    if not 10 <= spec.chunk_tokens <= 100_000:
        raise ConfigError(f"chunk_tokens must be from 10 to 100,000, not {spec.chunk_tokens}")


def spec_fingerprint(spec: DataSpec) -> str:
    """SHA-256 over the options and the bytes of the files they name, without parsing them.

    Paths themselves do not count: a moved file is the same file.

    Raises:
        DataError: a named file cannot be read.
    """
    content = {}
    for item in fields(spec):
        value = getattr(spec, item.name)
        content[item.name] = _file_digest(value) if isinstance(value, Path) else value
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
