"""The config of a run: all that decides its records, resolved and checked before it starts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from ragbench.data.base import DataSpec
from ragbench.errors import ConfigError
from ragbench.knobs import Knobs, resolve

#: Fields that change neither a question nor its answer, so they are no part of a run's identity.
INCIDENTAL = frozenset(
    {"limit", "workers", "cache", "out"} | {"timeout", "question_timeout", "rpm", "tpm", "patience"}
)
#: Fields that change how a finished program is asked, and their values when they do not.
CONTROLS: Mapping[str, Any] = {"form": False, "votes": 1}
#: Fields that are no part of the identity while they have these values.
_OFF: Mapping[str, Any] = {**CONTROLS, "alias_file": None}


class RunConfig(Knobs):
    """One run: a program with its knobs over a split of a data set, with an LM and a retriever."""

    program: str = Field("ircot", description="architecture; see `ragbench list programs`")
    set: dict[str, Any] = Field({}, description="knobs of the program")
    dataset: str = Field("synthetic", description="see `ragbench list datasets`")
    data_file: Path | None = Field(None, description="questions, in the data set's official format")
    corpus_file: Path | None = Field(
        None, description="passages, where the format keeps them apart"
    )
    hub: bool = Field(False, description="take the data set from the Hugging Face hub")
    setting: Literal["distractor", "pooled"] | None = Field(
        None, description="search a question's own passages, or all; default: the data set's"
    )
    chunk_file: Path | None = Field(None, description="fixed-length chunks of the passages")
    alias_file: Path | None = Field(None, description="2WikiMultiHopQA's aliases of entities")
    hub_config: str | None = Field(None, description="configuration of the hub's data set")
    view: Literal["paragraph", "chunk"] | None = Field(
        None, description="unit of retrieval; default: the data set's"
    )
    size: int = Field(2000, ge=100, le=1_000_000, description="passages of the synthetic world")
    split: Literal["train", "validation", "test"] = Field("test", description="which questions")
    limit: int | None = Field(20, ge=1, description="first questions of the split; null for all")
    lm: str = Field("local", description="LM spec, such as local or openai/gpt-4o-mini")
    lm_for: dict[str, str] = Field({}, description="role -> LM spec")
    api_base: str | None = Field(None, description="URL of an OpenAI-compatible server")
    price: str | None = Field(None, description="in=USD,out=USD per million tokens")
    temperature: float = Field(0.0, ge=0, le=2, description="sampling temperature")
    reply_tokens: int = Field(
        512, ge=1, le=1_000_000, description="tokens of one reply at the most"
    )
    timeout: float | None = Field(
        None, gt=0, description="seconds without a byte from the server; default: 120, local 600"
    )
    question_timeout: float | None = Field(
        None, gt=0, description="seconds after which a question makes no further call"
    )
    rpm: float | None = Field(None, gt=0, description="requests a minute at the most, of the LM")
    tpm: float | None = Field(None, gt=0, description="tokens a minute at the most, of the LM")
    patience: float = Field(
        600.0, ge=0, description="seconds that calls wait for an LM that is down"
    )
    adapter: Literal["auto", "json", "chat", "xml"] = Field("auto", description="prompt format")
    retriever: str = Field("bm25", description="see `ragbench list retrievers`")
    retriever_set: dict[str, Any] = Field({}, description="settings of the retriever")
    k: int | None = Field(
        None, ge=1, le=100, description="passages per search; default: the program's"
    )
    workers: int = Field(4, ge=1, le=1024, description="questions answered at once")
    seed: int = Field(42, ge=0, description="seeds the split, the world and the LM")
    cache: bool = Field(True, description="reuse replies to identical calls")
    compiled: Path | None = Field(None, description="folder of a compiled program")
    form: bool = Field(False, description="repair the answer's form: a control for compiling")
    votes: int = Field(
        1, ge=1, le=99, description="answers per question, of which the most common is kept"
    )
    out: Path | None = Field(None, description="run folder; default: runs/ and the config's name")

    def data_spec(self) -> DataSpec:
        """The part of the config that decides the data set."""
        return DataSpec(
            dataset=self.dataset,
            setting=self.setting,
            view=self.view,
            data_file=self.data_file,
            corpus_file=self.corpus_file,
            chunk_file=self.chunk_file,
            alias_file=self.alias_file,
            hub_config=self.hub_config,
            hub=self.hub,
            size=self.size,
            seed=self.seed,
        )

    def knobs(self) -> dict[str, Any]:
        """The program's knobs as given, with `k` among them."""
        return {**({} if self.k is None else {"k": self.k}), **self.set}

    def identity(self) -> dict[str, Any]:
        """The fields that decide the records, JSON-ready, without controls that are off."""
        off = {name for name, value in _OFF.items() if getattr(self, name) == value}
        return self.model_dump(mode="json", exclude={*INCIDENTAL, *off})

    def folder(self) -> Path:
        """The run folder: `out`, or a name that the identity decides."""
        if self.out is not None:
            return self.out
        text = json.dumps(self.identity(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        variant = str(self.set.get("variant", ""))
        compiled = "compiled" if self.compiled else ""
        parts = [self.program, variant, compiled, self.dataset, self.split, self.lm, digest]
        return Path("runs") / "-".join(re.sub(r"[^\w.]+", "_", p).strip("_") for p in parts if p)


def make_config(given: Mapping[str, Any], *, base: Mapping[str, Any] | None = None) -> RunConfig:
    """The config of `given` over `base`; mappings such as `set` are merged key by key.

    Data given by file or name take the place of the hub's, and another retriever comes without
    the settings of the one it replaces.

    Raises:
        KnobError: an unknown field (with the near name), a wrong type or a value out of bounds.
    """
    return resolve(RunConfig, "config", _merge(dict(base or {}), given))


def load_config(name: str | Path) -> dict[str, Any]:
    """The fields that a config file sets, `inherits:` followed; `name` is a path or a shipped name.

    Raises:
        ConfigError: no such file, not YAML, not a mapping, or a circle of `inherits:`.
    """
    return _load(str(name), Path.cwd(), ())


def shipped_configs() -> list[str]:
    """Names of the configs that come with the package, sorted."""
    folder = resources.files("ragbench.experiments") / "configs"
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".yaml"))


def _load(name: str, folder: Path, seen: tuple[str, ...]) -> dict[str, Any]:
    path, text = _read(name, folder)
    if str(path) in seen:
        raise ConfigError(f"config {name!r} inherits itself: {' -> '.join([*seen, str(path)])}")
    try:
        fields = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unreadable"
        raise ConfigError(f"config {path} is not YAML: {where}") from None
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise ConfigError(f"config {path} must be a mapping of field: value")
    parent = fields.pop("inherits", None)
    if parent is None:
        return fields
    if not isinstance(parent, str):
        raise ConfigError(f"config {path}: inherits must name one config, not {parent!r}")
    return _merge(_load(parent, path.parent, (*seen, str(path))), fields)


def _read(name: str, folder: Path) -> tuple[Path, str]:
    path = Path(name) if Path(name).is_absolute() else folder / name
    shipped = resources.files("ragbench.experiments") / "configs" / f"{name}.yaml"
    try:
        if path.is_file():
            return path, path.read_text("utf-8")
        if re.fullmatch(r"[\w.-]+", name) and shipped.is_file():
            return Path(str(shipped)), shipped.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {name!r} cannot be read: {error}") from None
    choices = ", ".join(shipped_configs())
    raise ConfigError(f"no config {name!r}: give a path to a YAML file or one of {choices}")


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` over `base`, without what it replaces; mappings are merged key by key."""
    merged = dict(base)
    if over.get("data_file") or over.get("dataset", base.get("dataset")) != base.get("dataset"):
        merged.pop("hub", None)
    if over.get("retriever", base.get("retriever")) != base.get("retriever"):
        merged.pop("retriever_set", None)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged
