"""The model of a run's config: each field by one name, in YAML, sweeps, Python and options.

This module imports neither DSPy nor any part that a config names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ragbench.errors import ConfigError
from ragbench.experiments.config.identity import compiled_folder, resolved, run_name
from ragbench.experiments.config.names import Fields, check_fields
from ragbench.experiments.config.provenance import check_stored
from ragbench.knobs import Knobs, resolve
from ragbench.settings import (
    SEED,
    DataSettings,
    LMSettings,
    QuestionSettings,
    RetrieverSettings,
    option,
    option_of,
)
from ragbench.user_code import allow

#: Files that name questions, in the order in which they are looked at.
_QUESTION_FILES = ("data_file", "test_file", "train_file", "val_file")


class RunConfig(QuestionSettings, LMSettings, RetrieverSettings):
    """Config of one run: a program, questions, a retriever and an LM."""

    program: str = option("ircot", "architecture; see `ragbench list programs`", metavar="NAME")
    set: dict[str, Any] = option(
        {},
        "a knob (parameter) of the program, see `ragbench show`; repeat for more",
        metavar="KNOB=VALUE",
    )
    compiled: Path | None = option(
        None,
        "folder of a compiled program, or a state that plain DSPy saved as JSON, with --program",
        group="program",
    )
    form: bool = option(
        False,
        "ask for short answers and cut off the rest (a control for compiling)",
        group="control",
    )
    votes: int = option(
        1,
        "answers sampled per question; the most common is kept (a control)",
        group="control",
        ge=1,
        le=99,
    )
    question_timeout: float | None = option(
        None,
        "seconds after which a question may make no further call",
        group="limits",
        incidental=True,
        gt=0,
    )
    workers: int = option(
        4,
        "questions answered in parallel",
        aliases=("num_threads",),
        group="run",
        incidental=True,
        ge=1,
        le=1024,
    )
    processes: int = option(
        1,
        "processes that share the questions answered in parallel",
        group="shard",
        incidental=True,
        ge=1,
        le=64,
    )
    engine: Literal["local", "ray"] = option(
        "local",
        "where questions are answered: here, or over a Ray cluster",
        group="shard",
        incidental=True,
    )
    prompts: bool = option(
        True,
        "save the prompts and replies of all calls with the records, compressed",
        group="run",
        incidental=True,
    )
    seed: Annotated[int, Field(ge=0)] | Literal["none"] = option(
        SEED,
        "seed of the run: of the LM, and of the splits without --split-seed; none to send none",
        group="run",
    )
    repeat: int = option(
        1,
        "number of the repeat: each repeat has its own replies and seeds",
        group="repeat",
        ge=1,
        le=1000,
    )
    out: Path | None = option(
        None,
        "folder to write to",
        group="run",
        default_words="a name made from the settings",
        incidental=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _shorthands(cls, values: Any) -> Any:
        """Expand shorthands: `k` is a parameter, and a program has one name."""
        if not isinstance(values, Mapping):
            return values
        fields = with_k(values)
        if fields.get("program") == "memory":
            fields["program"] = "direct"
        return fields

    def sources(self) -> dict[str, Any]:
        """Return the given fields of the data, the LM, the retriever and the seed.

        Fields that select questions of the data are not included.
        """
        sources = {}
        names = {*SOURCES, "seed"} - CHOSEN
        for name, value in self.model_dump(mode="json", include=names).items():
            if value not in (None, {}, ""):
                sources[name] = value
        return sources

    def data_settings(self) -> DataSettings:
        """Return the part of the config that decides the data set."""
        settings = {name: getattr(self, name) for name in DataSettings.model_fields}
        if self.split_seed is None:
            settings["split_seed"] = SEED if self.seed == "none" else self.seed
        return DataSettings.model_construct(**settings)

    def identity(self) -> dict[str, Any]:
        """Return all resolved fields that decide the records, JSON-ready."""
        return resolved(self.model_dump(mode="json", exclude=set(_INCIDENTAL)))

    def name(self, *also: Fields) -> str:
        """Return a name for the run, or for a product of it that `also` describes."""
        from ragbench.data import title_of

        return run_name(self.identity(), title_of(self), *also)

    def folder(self) -> Path:
        """Return the run folder: `out`, or a folder with the run's name."""
        return self.out or Path("runs") / self.name()


#: Field of the data, the LM or the retriever -> the class that has it.
SOURCES: Mapping[str, type[Knobs]] = {
    name: part
    for part in (QuestionSettings, LMSettings, RetrieverSettings)
    for name in part.model_fields
}
#: Fields of the data that choose among its questions, and those that change no answer.
_INCIDENTAL = frozenset(n for n, f in RunConfig.model_fields.items() if option_of(f).incidental)
CHOSEN = frozenset({"split", "limit", "fractions"}) | _INCIDENTAL


def make_config(
    given: Fields,
    *,
    base: Fields | None = None,
    stored: Fields | None = None,
    owner: str = "the folder",
) -> RunConfig:
    """Build the config of a run.

    Mappings such as `set` are merged key by key. Data given by file or name replaces hub data.
    Another retriever drops the settings of the one that it replaces. Without a data set name, the
    layout of the question file decides it. External code that the user names may be imported.

    Args:
        given: Fields from the user. They override all others.
        base: Lower-priority fields from the user, such as those of a config file.
        stored: Fields of a stored folder, within `provenance.MAY_SET`. They override `base`.
        owner: Name of the stored folder for messages.

    Raises:
        KnobError: A field is unknown or has a wrong value.
        ConfigError: The folder sets a user-only field.
    """
    fields = merge(base or {}, with_k(given))
    fields.pop("program_prompts", None)  # derived from the program, in a stored identity
    check_names(fields, "config")
    allow(str(fields.get("program") or ""), str(fields.get("adapter") or ""))
    specs = str(fields.get("retriever") or "").split(",")
    allow(*(spec.partition("(")[0].strip() for spec in specs))
    if stored:
        check_stored(stored, owner, fields)
        fields = merge({**(base or {}), **stored}, with_k(given))
    if fields.get("compiled"):
        fields["compiled"] = compiled_folder(fields["compiled"])
    paths = []
    for name in _QUESTION_FILES:
        file = fields.get(name)
        if isinstance(file, str | Path) and file:
            paths.append(Path(file))
    if "dataset" not in fields and (paths or fields.get("hub_repo")):
        from ragbench.data import detect_layout

        # that of one's own where no layout is known
        fields["dataset"] = next(filter(None, map(detect_layout, paths)), "jsonl")
    return resolve(RunConfig, "config", fields)


def check_names(fields: Fields, owner: str, also: Iterable[str] = ()) -> None:
    """Check that all names are fields of a run.

    Args:
        fields: Fields to check.
        owner: Owner of the fields, for the message.
        also: Names of other allowed fields.

    Raises:
        KnobError: one is not; the message has `owner` and the right name.
    """
    check_fields(fields, owner, {*RunConfig.model_fields, "k", *also})


def with_k(fields: Fields) -> dict[str, Any]:
    """Return `fields` with `k: 3` written as `set: {k: 3}`."""
    fields = dict(fields)
    if "k" in fields:
        k = fields.pop("k")
        knobs = dict(fields.get("set") or {})
        if str(knobs.setdefault("k", k)) != str(k):
            raise ConfigError(f"set.k is given twice, as {k!r} and as {knobs['k']!r}")
        fields["set"] = knobs
    return fields


def check_one_run(config: RunConfig, *layers: Fields) -> None:
    """Check that the program of a single run reads every parameter in `layers`.

    Args:
        config: Config of the run.
        *layers: Mappings of fields that the config consists of.

    Raises:
        KnobError: A parameter has no effect. The message has the fix.
    """
    from ragbench.programs import PROGRAMS

    if ":" not in config.program:  # those say so in any case
        for fields in layers:
            PROGRAMS.get(config.program).check_idle(with_k(fields).get("set") or {})


def ask_whole(config: RunConfig, *layers: Fields, is_own: bool = False) -> RunConfig:
    """Return the config for a run of all questions of a file, in order.

    Returns `config` unchanged if it has another question source or a compiled program, or if a
    layer names a split.

    Args:
        config: The run.
        layers: Fields from the user.
        is_own: Whether a data set object comes from one file.
    """
    named = any("split" in fields for fields in layers)
    if named or config.compiled is not None or not (is_own or config.is_own):
        return config
    return config.but(split="all")


def differing(before: Fields, after: Fields) -> list[tuple[str, Any, Any]]:
    """Return the differences of two identities: name, value before and value after.

    Args:
        before: Identity before.
        after: Identity after.
    """
    old = leaves_of(before)
    new = leaves_of(after)
    differences = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            differences.append((name, old.get(name), new.get(name)))
    return differences


def leaves_of(fields: Fields) -> dict[str, Any]:
    """Flatten fields: a key of a mapping becomes `set.k`, other fields stay unchanged."""
    leaves: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                leaves[f"{name}.{key}"] = inner
        else:
            leaves[name] = value
    return leaves


def merge(base: Fields, over: Fields) -> dict[str, Any]:
    """Merge two layers of fields. Mappings are merged by key.

    A layer that sets another data set or retriever drops the fields of the former one.

    Args:
        base: Fields below.
        over: Fields that take precedence.
    """
    base = dict(base)
    is_other_dataset = over.get("dataset", base.get("dataset")) != base.get("dataset")
    if "hub" not in over and (over.get("data_file") or is_other_dataset):
        base.pop("hub", None)
    if over.get("retriever", base.get("retriever")) != base.get("retriever"):
        base.pop("retriever_set", None)
    for name, value in over.items():
        below = base.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = {**below, **value}
        base[name] = value
    return base
