"""Metadata of a compiled program.

A run uses its program and its knobs. Its origin is only compared with that of the run. The user
names data, LM, retriever and adapter. ragbench never takes them from the folder: whoever made the
folder would decide which code runs, where questions go and which server gets the key.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_origin

from ragbench.data import DATASETS
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import Sidecar, read_sidecar
from ragbench.experiments.config import CHOSEN, SOURCES, RunConfig, differing
from ragbench.experiments.saved_state import is_state_file, read_state
from ragbench.logs import get
from ragbench.retrievers import RETRIEVERS
from ragbench.settings import DataSettings

_log = get(__name__)

#: Fields that identify questions and passages. The seed determines splits and generated sets.
_DATA = (*(name for name in DataSettings.model_fields if name not in CHOSEN), "seed")
#: Fields that identify the LM and its server.
_LM = ("lm", "api_base")


def compiled_fields(folder: Path, program: str | None = None) -> dict[str, Any]:
    """Return the config fields that a compiled program sets: its architecture and its knobs.

    A state that plain DSPy saved sets none.

    Args:
        folder: Folder of the compiled program.
        program: Program that the user named, if any.

    Raises:
        RunError: `folder` is not a compiled program, or it is one of another program.
    """
    if is_state_file(folder):
        read_state(folder)  # Raises first if the state is damaged.
        return {}
    sidecar = read_sidecar(folder)
    if program not in (None, sidecar.program):
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program}; leave --program out"
        )
    return {"program": sidecar.program, "set": sidecar.knobs}


def check_sources_named(
    folder: Path, config: RunConfig, spoken: Mapping[str, Any], words: list[str]
) -> None:
    """Check that the user named data, LM and retriever if the compile had other ones.

    So are settings that a `tune` drew, such as the temperature: the program was chosen with them.

    The folder may be untrusted, so addresses and paths in it are printed as `...`.

    Args:
        folder: Folder of the compiled program.
        config: The run.
        spoken: Fields that the user set.
        words: Words of the command.

    Raises:
        ConfigError: The user did not name them. The message has the complete command.
    """
    if is_state_file(folder):
        return
    sidecar = read_sidecar(folder)
    origin = sidecar.given
    current = config.model_dump(mode="json")
    groups: list[Sequence[str]] = [_DATA, _LM, ["retriever"]]
    if "retriever" not in spoken or current["retriever"] == origin.get("retriever"):
        groups.append(["retriever_set"])
    drawn = sidecar.notes.get("settings")
    if isinstance(drawn, Mapping):
        groups += [[name] for name in drawn if name in RunConfig.model_fields]
    options: dict[str, list[str]] = {}
    for group in groups:
        if any(name in spoken for name in group):
            continue
        for name in group:
            if name in origin and current[name] != origin[name]:
                options[name] = _option(name, origin[name])
    if options:
        flags = list(chain.from_iterable(options.values()))
        command = " ".join([*map(shlex.quote, words), *flags])
        raise ConfigError(
            f"{folder} was compiled with {' '.join(flags)}, and this command would run it with "
            f"the defaults; name your data, LM and retriever, as here: ragbench {command}"
        )


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        if value:
            return [flag]
        return [flag.replace("--", "--no-", 1)]
    if isinstance(value, Mapping):
        options = []
        for key, inner in value.items():
            is_shown = name == "set" or isinstance(inner, bool) or _is_number(str(inner))
            options += [flag, shlex.quote(f"{key}={inner}" if is_shown else f"{key}=...")]
        return options
    return [flag, shlex.quote(str(value)) if _is_harmless(name, value) else "..."]


def _is_number(text: str) -> bool:
    """Return True if `text` is a decimal number."""
    return re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", text) is not None


def _is_harmless(name: str, value: Any) -> bool:
    """Return True if a value from a folder has no address, no path and no code."""
    if isinstance(value, int | float):
        return True
    if name == "lm":
        return not re.search(r"@|://|^\.|^/|\.gguf$|^local:", str(value))
    field = RunConfig.model_fields[name]
    if get_origin(field.annotation) is Literal or str(value) == field.default:
        return True
    names = {"dataset": DATASETS.names(), "retriever": RETRIEVERS.names()}
    return str(value) in names.get(name, ())


def warn_of_other_sources(folder: Path, sidecar: Sidecar, config: RunConfig) -> None:
    """Warn if data, LM, retriever, adapter or seed differ from those of the compile.

    Args:
        folder: Folder of the compiled program.
        sidecar: Metadata of the compiled program.
        config: Config of the run.
    """
    compiled_with = dict(sidecar.config)
    current = config.identity()
    for name in {*compiled_with, *current} - ({*SOURCES, "seed"} - CHOSEN):
        compiled_with.pop(name, None)
        current.pop(name, None)
    if compiled_with.get("retriever") != current.get("retriever"):  # Do not compare their settings.
        compiled_with.pop("retriever_set", None)
        current.pop("retriever_set", None)
    differences = []
    for leaf, was, now in differing(compiled_with, current):
        if str(was).startswith("sha256:") or str(now).startswith("sha256:"):
            differences.append(f"another {leaf}")
        else:
            differences.append(f"{leaf} {was} (here {now})")
    if differences:
        _log.warning("%s was compiled with %s", folder, ", ".join(differences))
