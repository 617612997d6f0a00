"""The identity of a run: what decides its records, resolved, and the folder named after it.

Two configs that come to the same knobs, data, retriever, LM, adapter and seeds have one identity,
however each of them was given: `--k 3` and `--set k=3`, a default left out or written down, a data
file by one path or another. What changes neither a question nor its answer (price, limits, number
of workers) is no part of it, and neither is an optional field that is not used, so that a field
added later changes no identity.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, LMSetupError, RagbenchError
from ragbench.experiments.config.compiled import compiled_digest
from ragbench.knobs import resolve

_HASHED = "sha256:"
#: What says that there is no such file; whatever else goes wrong, there is one.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def resolved(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The flat `fields` of a run with every name, knob, setting and file resolved.

    Files stand by a hash of their bytes, a compiled program by the hash of its state. Defaults that
    depend on the data set are left out.

    Raises:
        RagbenchError: an unknown program, retriever, knob or setting.
    """
    identity = _data(fields)
    identity["set"] = _knobs(identity["program"], identity["set"])
    if ":" in identity["program"]:
        identity["program_source"] = _source(identity["program"])
    identity |= _retriever(identity["retriever"], identity["retriever_set"])
    identity["lm"] = _lm(identity["lm"])
    identity["lm_for"] = {role: _lm(spec) for role, spec in identity["lm_for"].items()}
    identity["api_base"] = (identity["api_base"] or "").rstrip("/")
    identity["adapter"] = _adapter(identity["adapter"], identity["lm"], identity["api_base"])
    identity["compiled"] = _compiled(identity["compiled"])
    for name, value in identity.items():
        if (name.endswith("_file") or name == "policy") and value is not None:
            identity[name] = _file(value)
    if identity["votes"] == 1:
        del identity["votes"]
    return {name: value for name, value in identity.items() if not _unused(value)}


def run_name(identity: Mapping[str, Any], *also: Mapping[str, Any]) -> str:
    """A name for the run of `identity`, or for what is made of it by `also`."""
    variant = identity.get("set", {}).get("variant", "")
    text = json.dumps([identity, *also], sort_keys=True, default=str)
    parts = (
        identity["program"],
        "" if variant == "default" else variant,
        "compiled" if "compiled" in identity else "",
        identity["dataset"],
        identity["split"],
        identity["retriever"],
        identity["lm"].removeprefix("local:").rpartition("/")[2],
        hashlib.sha256(text.encode()).hexdigest()[:8],
    )
    return "-".join(map(_slug, filter(None, parts)))


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "_", text).strip("_")


def _unused(value: Any) -> bool:
    return value is None or value is False or value in ("", {}, [])


def _knobs(program: str, given: Mapping[str, Any]) -> dict[str, Any]:
    from ragbench.programs import PROGRAMS

    return dict(PROGRAMS.get(program).resolve_knobs(given).model_dump(mode="json"))


def _data(given: Mapping[str, Any]) -> dict[str, Any]:
    from ragbench.data import without_defaults

    return without_defaults(given)


def _source(spec: str) -> str:
    from ragbench.programs.external import program_digest

    return program_digest(spec)


def _retriever(spec: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    from ragbench.retrievers import RETRIEVERS, parse_spec
    from ragbench.retrievers.external import retriever_digest

    name, given = parse_spec(spec)
    settled = resolve(RETRIEVERS.get(name).Settings, name, {**given, **settings})
    return {
        "retriever": name,
        "retriever_set": settled.model_dump(mode="json"),
        "retriever_source": retriever_digest(name),
    }


def _lm(spec: str) -> str:
    from ragbench.lms import LocalSpec, parse_spec

    try:
        parsed = parse_spec(spec)
    except LMSetupError:  # which the run says before it asks anything
        return spec
    if isinstance(parsed, LocalSpec):
        return f"local:{parsed.gguf or parsed.name}"
    return f"{parsed.provider}/{parsed.model}"


@lru_cache(maxsize=64)
def _adapter(name: str, lm: str, api_base: str) -> str:
    """The adapter that `auto` is for this LM."""
    from ragbench.lms import make_lm
    from ragbench.lms.adapters import adapter_name

    if name != "auto":
        return name
    try:
        return adapter_name(name, make_lm(lm, api_base=api_base or None))
    except RagbenchError:  # which the run says before it asks anything
        return name


def _compiled(folder: str | None) -> str | None:
    if folder is None:
        return None
    try:
        with _readable(folder):
            return _HASHED + compiled_digest(Path(folder))
    except (*_NO_FILE, ValueError, AttributeError):  # which loading it says
        return folder


def _file(path: str) -> str:
    try:
        with _readable(path):
            stat = Path(path).stat()
            return _HASHED + _digest(path, stat.st_size, stat.st_mtime_ns)
    except _NO_FILE:  # reading the data says so
        return path


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Let a disk that fails once not give another identity, and so another folder.

    Raises:
        ConfigError: what is there cannot be read.
    """
    try:
        yield
    except _NO_FILE:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


@lru_cache(maxsize=64)
def _digest(path: str, size: int, mtime_ns: int) -> str:
    # Size and time are there for the cache: a file that was replaced is read again.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
