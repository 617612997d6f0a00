"""The model of a run's config: fields in groups, each with the option that sets it.

Every field has a *flat name*, by which the command line, sweep files and older config files know
it: `lm` is the field `model` of the group `lm`, `split` the field `split` of the group `data`.
Configs may use either form. This module imports neither DSPy nor any part that a config names.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from ragbench.errors import ConfigError, KnobError
from ragbench.experiments.config.fields import (
    DataConfig,
    LMConfig,
    Option,
    RetrieverConfig,
    option_of,
)
from ragbench.experiments.config.identity import compiled_folder, resolved, run_name
from ragbench.knobs import Knobs, resolve
from ragbench.user_code import allow

if TYPE_CHECKING:
    from ragbench.data import DataSpec


#: The program that runs a policy.
ROUTER = "router"
#: Files that name questions, in the order in which they are looked at.
_QUESTION_FILES = ("data_file", "test_file", "train_file", "val_file")


class RunConfig(Knobs):
    """One run: a program over questions, with a retriever and an LM."""

    program: Annotated[str, Option(metavar="NAME")] = Field(
        "ircot", description="architecture; see `ragbench list programs`"
    )
    set: Annotated[dict[str, Any], Option(metavar="KNOB=VALUE")] = Field(
        {}, description="a knob (parameter) of the program, see `ragbench show`; repeat for more"
    )
    compiled: Annotated[Path | None, Option(group="program")] = Field(
        None,
        description="folder of a compiled program, or shipped for the one that comes with ragbench",
    )
    policy: Annotated[Path | None, Option(group="program")] = Field(
        None, description="policy file written by `ragbench recommend`, run by the program router"
    )
    form: Annotated[bool, Option(group="control")] = Field(
        False, description="ask for short answers and cut off the rest (a control for compiling)"
    )
    votes: Annotated[float, Option(group="control")] = Field(
        1,
        ge=1,
        le=99,
        description="answers sampled per question, on average; the most common is kept (a control)",
    )
    data: DataConfig = DataConfig()  # type: ignore[call-arg]
    lm: LMConfig = LMConfig()  # type: ignore[call-arg]
    retriever: RetrieverConfig = RetrieverConfig()  # type: ignore[call-arg]
    question_timeout: Annotated[float | None, Option(group="limits", incidental=True)] = Field(
        None, gt=0, description="seconds after which a question may make no further call"
    )
    workers: Annotated[int, Option(aliases=("num_threads",), group="run", incidental=True)] = Field(
        4, ge=1, le=1024, description="questions answered in parallel"
    )
    processes: Annotated[int, Option(group="shard", incidental=True)] = Field(
        1, ge=1, le=64, description="processes that share the questions answered in parallel"
    )
    engine: Annotated[Literal["local", "ray"], Option(group="shard", incidental=True)] = Field(
        "local", description="where questions are answered: here, or over a Ray cluster"
    )
    prompts: Annotated[bool, Option(group="run", incidental=True)] = Field(
        True, description="save the prompts and replies of all calls beside the records, compressed"
    )
    seed: Annotated[int, Option(group="run")] = Field(
        42, ge=0, description="seed of the run: of the LM, and of the splits without --split-seed"
    )
    out: Annotated[
        Path | None, Option(group="run", default="a name made from the settings", incidental=True)
    ] = Field(None, description="folder to write to")

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        router = {"program": ROUTER} if given.get("policy") else {}
        return {**router, **nest(given)}

    @model_validator(mode="after")
    def _routed(self) -> RunConfig:
        if (self.program == ROUTER) != (self.policy is not None):
            raise ValueError(
                "the program router and a policy go together: give --program router and --policy "
                "FILE, as `ragbench recommend --router -o FILE` writes it"
            )
        return self

    def but(self, **changes: Any) -> RunConfig:
        """This config with `changes`, by flat name; a mapping such as `set` is replaced whole."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            group, field = FLAT[name]
            groups.setdefault(group, {})[field] = value
        own = groups.pop("", {})
        parts = {g: getattr(self, g).model_copy(update=fields) for g, fields in groups.items()}
        return self.model_copy(update={**own, **parts})

    def flat(self) -> dict[str, Any]:
        """Every field by its flat name, JSON-ready."""
        dumped = self.model_dump(mode="json")
        return {
            name: dumped[group][field] if group else dumped[field]
            for name, (group, field) in FLAT.items()
        }

    def sources(self) -> dict[str, Any]:
        """Flat name -> value of the data, the LM, the retriever and the seed, where given.

        Which questions of the data are asked is not among them.
        """
        chosen = {"split", "limit", "fractions"} | _INCIDENTAL
        return {
            name: value
            for name, value in self.flat().items()
            if (FLAT[name][0] or name == "seed") and name not in chosen and value not in (None, {})
        }

    def data_spec(self) -> DataSpec:
        """The part of the config that decides the data set."""
        from dataclasses import fields

        from ragbench.data import DataSpec, parse_fractions

        known = {f.name for f in fields(DataSpec)}.intersection(DataConfig.model_fields)
        given = {name: getattr(self.data, name) for name in known}
        given["fields"] = tuple(sorted(self.data.fields.items()))
        if self.data.fractions is not None:
            given["fractions"] = parse_fractions(self.data.fractions)
        seed = self.seed if self.data.split_seed is None else self.data.split_seed
        return DataSpec(**{k: v for k, v in given.items() if v is not None}, seed=seed)

    def identity(self) -> dict[str, Any]:
        """Flat field -> value of all that decides the records, resolved, JSON-ready."""
        return resolved({k: v for k, v in self.flat().items() if k not in _INCIDENTAL})

    def name(self, *also: Mapping[str, Any]) -> str:
        """A name for the run, or for what is made of it by `also`; the identity decides it."""
        return run_name(self.identity(), self.data_spec().title, *also)

    def folder(self) -> Path:
        """The run folder: `out`, or one of the run's name."""
        return self.out or Path("runs") / self.name()


#: Each group of fields and its model; "" for the fields of the config itself.
GROUPS: Mapping[str, type[Knobs]] = {
    "data": DataConfig,
    "lm": LMConfig,
    "retriever": RetrieverConfig,
    "": RunConfig,
}
#: Flat name -> group ("" for none) and field.
FLAT: Mapping[str, tuple[str, str]] = {
    option_of(field).name or name: (group, name)
    for group, model in reversed([*GROUPS.items()])
    for name, field in model.model_fields.items()
    if group or name not in GROUPS
}
_INCIDENTAL = frozenset(
    name
    for name, (group, field) in FLAT.items()
    if option_of(GROUPS[group].model_fields[field]).incidental
)
#: Group -> the field that a value which is no mapping sets: `lm: local` is `lm: {model: local}`.
_SHORT = {"data": "dataset", "lm": "model", "retriever": "name"}


def nest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields`, by flat name or by group, as the nested mapping that the model takes.

    `k` is the knob of that name: `k: 3` is `set: {k: 3}`. Unknown names stay where they are.
    """
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        if name in GROUPS and isinstance(value, BaseModel):
            value = value.model_dump()
        if name in GROUPS and isinstance(value, Mapping):
            for inner, each in value.items():
                _put(nested, (name, inner), each)
        elif name in _SHORT:
            _put(nested, (name, _SHORT[name]), value)
        elif name == "k":
            _put(nested, ("set", "k"), value)
        elif name == "set" and isinstance(value, Mapping):
            for knob, each in value.items():
                _put(nested, ("set", knob), each)
            nested.setdefault("set", {})
        else:
            group, field = FLAT.get(name, ("", name))
            _put(nested, (group, field) if group else (field,), value)
    return nested


def flatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Nested `fields` by flat name; what no field has stays as it is."""
    names = {place: name for name, place in FLAT.items()}
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in GROUPS and isinstance(value, Mapping):
            flat |= {names.get((name, k), f"{name}.{k}"): each for k, each in value.items()}
        else:
            flat[name] = value
    return flat


def _put(nested: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *above, last = path
    at = nested
    for name in above:
        at = at.setdefault(name, {})
    if last in at and str(at[last]) != str(value):
        name = ".".join(path)
        raise ConfigError(f"{name} is given twice, as {at[last]!r} and as {value!r}; leave one out")
    at[last] = value


def make_config(
    given: Mapping[str, Any], *, base: Mapping[str, Any] | None = None, by_user: bool = True
) -> RunConfig:
    """The config of `given` over `base`; mappings such as `set` are merged key by key.

    Data given by file or name take the place of the hub's, and another retriever comes without
    the settings of the one it replaces. Where questions are given and no data set is named, their
    layout says which it is.

    External code that they name may be imported if they are what the user gave on this command;
    what was read from a run folder is not `by_user`.
    KnobError for a field that is unknown or has a wrong value.
    """
    fields = merge(nest(base or {}), nest(given))
    _check_names(fields)
    if by_user:
        allow(str(fields.get("program") or ""))
        specs = str(fields.get("retriever", {}).get("name") or "").split(",")
        allow(*(spec.partition("(")[0].strip() for spec in specs))
    if fields.get("compiled"):
        program = fields.get("program") or RunConfig.model_fields["program"].default
        fields["compiled"] = compiled_folder(fields["compiled"], program)
    data = fields.get("data", {})
    given_files = (data.get(name) for name in _QUESTION_FILES)
    paths = [Path(file) for file in given_files if isinstance(file, str | Path) and file]
    if "dataset" not in data and (paths or data.get("hub_repo")):
        from ragbench.data import detect_layout

        dataset = next(filter(None, map(detect_layout, paths)), "jsonl")  # that of one's own
        fields["data"] = {**data, "dataset": dataset}
    return resolve(RunConfig, "config", fields)


def ask_whole(config: RunConfig, *given: Mapping[str, Any]) -> RunConfig:
    """The config for a run of all questions of a file, in its order.

    It is `config` where that has questions of another source, a compiled program or a policy, or
    where a split is named in one of `given`.
    """
    named = any("split" in flatten(fields) for fields in given)
    learned = config.compiled is not None or config.policy is not None
    if named or learned or not config.data.is_own:
        return config
    return config.but(split="all")


def _check_names(fields: Mapping[str, Any]) -> None:
    known = {*FLAT, *GROUPS, "k"} - {""}
    for name, value in fields.items():
        if name not in RunConfig.model_fields:
            raise KnobError(_unknown(name, known))
        if name in GROUPS:
            for inner in value:
                if inner not in GROUPS[name].model_fields:
                    near = [f"{name}.{field}" for field in GROUPS[name].model_fields]
                    raise KnobError(_unknown(f"{name}.{inner}", near))


def _unknown(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"config has no field {name!r}; {hint}its fields: {', '.join(sorted(known))}"


def differing(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, value of `theirs` and of `mine` of all in which two identities differ."""
    old, new = _leaves(theirs), _leaves(mine)
    return [(k, old.get(k), new.get(k)) for k in sorted({*old, *new}) if old.get(k) != new.get(k)]


def _leaves(identity: Mapping[str, Any]) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in identity.items():
        inner = value.items() if isinstance(value, Mapping) else None
        leaves |= {name: value} if inner is None else {f"{name}.{k}": each for k, each in inner}
    return leaves


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` over `base`, both nested, without what it replaces; mappings are merged key by key."""
    merged = _merged(base, over)
    before, given = base.get("data") or {}, over.get("data") or {}
    if isinstance(given, Mapping) and "hub" not in given:
        other = given.get("dataset", before.get("dataset")) != before.get("dataset")
        if given.get("data_file") or other:
            merged.get("data", {}).pop("hub", None)
    old, new = base.get("retriever") or {}, over.get("retriever") or {}
    if new.get("name", old.get("name")) != old.get("name"):
        kept = {name: value for name, value in old.items() if name != "settings"}
        merged["retriever"] = {**kept, **new}
    return merged


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
