"""Conversion of Python objects and options to the config of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import dspy

from ragbench.data import Dataset, DataSettings
from ragbench.data.user_data import keep_dataset, own_dataset
from ragbench.errors import ConfigError
from ragbench.experiments.config import CompileConfig, Fields, RunConfig, check_names, make_config
from ragbench.external import PREFIX, digest_of_texts, is_unnamed, keep, label_of
from ragbench.knobs import resolve
from ragbench.lms.calls import Limits
from ragbench.lms.factory import keep_lm
from ragbench.lms.lm import RagbenchLM
from ragbench.logs import get
from ragbench.metrics.base import keep_metric, metric_function
from ragbench.optimizers.external import keep_optimizer
from ragbench.passages import Passage
from ragbench.programs.external import keep_module
from ragbench.retrievers import Retriever, keep_retriever
from ragbench.user_code import allow

_log = get(__name__)

Metric: TypeAlias = Callable[..., float | bool]
#: Name of a metric, or a function.
AnyMetric: TypeAlias = str | Metric
#: Name of a data set, a loaded data set, or examples.
Data: TypeAlias = str | Dataset | Sequence[dspy.Example]
#: Name of a program, `package.module:Class`, or a DSPy module or its class.
Program: TypeAlias = str | dspy.Module | type[dspy.Module]
LM: TypeAlias = str | dspy.BaseLM
#: Corpus of examples: passages, or their texts.
Searched: TypeAlias = Iterable[Passage | str]
#: Name of a retriever, `FILE.py:Class`, or an object with `search(query, k)`.
AnyRetriever: TypeAlias = str | Retriever | Callable[..., Any]


def config_of(
    program: Program,
    data: Data | None,
    lm: LM | None,
    retriever: AnyRetriever | None,
    corpus: Searched | None,
    options: Fields,
    settings: Fields | None = None,
) -> RunConfig:
    """Build the config of a run from objects and options.

    Args:
        program: Program, its name, or a DSPy module or class.
        data: Data set, its name, or examples. None leaves it to `options`.
        lm: LM or its spec. None uses that of DSPy, or else the local model.
        retriever: Retriever or its name. None uses that of DSPy for a custom program, or else bm25.
        corpus: Passages to search, if `data` are examples.
        options: Fields of the run.
        settings: Fields of a compile, if there is one.

    Raises:
        ConfigError: Two arguments contradict each other.
    """
    if lm is None:
        lm = dspy.settings.lm or "local"
        _log.warning("no lm was given: it is %s", getattr(lm, "model", "the local model"))
    if not isinstance(lm, str | dspy.BaseLM):
        raise ConfigError(
            f"lm={repr(lm)[:80]} is neither a spec such as openai/gpt-4o-mini nor a dspy.LM object"
        )
    fields = _data_fields(data, corpus, options)
    name = str(fields.pop("name", None) or "")
    if retriever is None:
        retriever = "bm25"
        is_own = not isinstance(program, str) or ":" in program
        if is_own and corpus is None and dspy.settings.rm is not None:
            retriever = dspy.settings.rm
            _log.warning("no retriever was given: it is that of DSPy's settings (rm)")
    if not isinstance(program, str):
        program = keep_module(program, name=name)
    if not isinstance(lm, str):
        other_lms = fields.get("lm_for") or {"teacher", "prompt_lm"} & set(settings or {})
        _check_lm(lm, fields, alone=not other_lms)
        lm = keep_lm(lm, name=name)
    if not isinstance(retriever, str):
        retriever = keep_retriever(retriever, name=name)
    adapter = fields.pop("adapter", None)
    if adapter is None and ":" in program:  # as in plain DSPy
        adapter = dspy.settings.adapter
    if adapter is not None:
        fields["adapter"] = (
            adapter if isinstance(adapter, str) else keep_adapter(adapter, name=name)
        )
    fields |= {"program": program, "lm": lm, "retriever": retriever}
    check_is_new(fields.get("out"), program, lm, retriever, str(fields.get("adapter")))
    return make_config(fields)


def keep_adapter(adapter: dspy.Adapter, *, name: str = "") -> str:
    """Register an adapter for this process and return its name in configs.

    A DSPy adapter is identified by its class and settings, any other by its name.

    Args:
        adapter: The adapter.
        name: Name that identifies an adapter of the user.
    """
    kind = type(adapter)
    settings = {**vars(adapter), "callbacks": None}
    content = ""
    if kind.__module__.startswith("dspy."):
        with suppress(TypeError, ValueError):
            content = digest_of_texts([kind.__qualname__, json.dumps(settings, default=_name_of)])
    return keep(adapter, f"{PREFIX}{kind.__name__}", name=name, content=content)


def _name_of(value: Any) -> str:
    if not isinstance(value, type):
        raise TypeError(f"{value!r} is not a setting in JSON")
    return f"{value.__module__}.{value.__qualname__}"


def check_is_new(out: Any, *names: str) -> None:
    """Check that the output folder is empty if an object has no name.

    Args:
        out: Output folder, or None.
        *names: Names of objects in the config.

    Raises:
        ConfigError: It has a run or a compile, which another object may have made.
    """
    for name in filter(is_unnamed, names):
        if out is not None and Path(out).is_dir() and any(Path(out).iterdir()):
            raise ConfigError(
                f"out={str(out)!r} is not empty, and nothing says that {label_of(name)} is the "
                "object that made it; give name='v1' at every call to continue, or another out"
            )


def _data_fields(data: Data | None, corpus: Searched | None, options: Fields) -> dict[str, Any]:
    """Return the fields of `options` with the name of the data set of `data` and `corpus`."""
    fields: dict[str, Any] = {}
    for option, value in options.items():
        fields[option] = str(value) if isinstance(value, Path) else value
    if data is None:
        if corpus is not None:
            raise ConfigError("corpus is what examples are searched in; give data=[...] with it")
        return fields
    if isinstance(data, str):
        if corpus is not None:
            raise ConfigError(f"the data set {data!r} brings its corpus; leave corpus out")
        return {"dataset": data, **fields}
    if not isinstance(data, Dataset):
        data = own_dataset({"test": data}, corpus, fields.pop("field", None))
    for name in DataSettings.model_fields:
        if fields.get(name) is not None and name not in _READ_OF_OBJECTS:
            raise ConfigError(
                f"nothing reads {name}={fields[name]!r}: the data are an object, which is loaded "
                "already; give it to rb.load_dataset(), or leave it out"
            )
    return {"dataset": keep_dataset(data), "limit": None, **fields}


#: Settings of data that change an object too.
_READ_OF_OBJECTS = ("rename_entities", "unanswerable")


def _check_lm(lm: dspy.BaseLM, fields: Fields, *, alone: bool) -> None:
    """Check that `fields` do not set anything that the object `lm` sets itself.

    If not `alone`, other LMs use the sampling settings too.

    Raises:
        ConfigError: A field does. The message has its value and the fix.
    """
    settings_kept = ["api_base", "header", "rpm", "tpm"]
    if alone:
        settings_kept += ["temperature", "reply_tokens", "timeout"]
    taken = "cache, price, price_for and patience"
    if isinstance(lm, RagbenchLM):
        settings_kept += ["cache", "price", "patience"]
        taken = "none"
    for name in settings_kept:
        if fields.get(name) is not None:
            raise ConfigError(
                f"nothing reads {name}={fields[name]!r}: lm is the object {lm.model}, which keeps "
                "its own; set it where the object is made, or give lm as a spec such as "
                f"openai/gpt-4o-mini; settings of an LM that such an object takes: {taken}"
            )


#: Limits, by the names of the command line -> what they are of.
_LIMITS = {
    "max_cost": "cost",
    "max_total_tokens": "tokens",
    "max_calls": "calls",
    "max_minutes": "minutes",
}


def check_options(owner: str, function: Callable[..., Any], options: Fields) -> None:
    """Check that `options` are fields of a run or limits.

    Args:
        owner: Name of the function in `rb`.
        function: The function, whose parameters are suggested too.
        options: Names and values that the caller passed.

    Raises:
        KnobError: One is not. The message has the nearest name.
    """
    parameters = inspect.signature(function).parameters.keys() - {"options"}
    check_names(options, f"rb.{owner}", {*_LIMITS, "name", *parameters})


def metric_names(metrics: Sequence[AnyMetric]) -> tuple[str, ...]:
    """Return the names of `metrics`. A function is registered for this process."""
    if isinstance(metrics, str):
        raise ConfigError(f"metrics={metrics!r} is one text; give a list: metrics=[{metrics!r}]")
    chosen: list[str] = []
    for metric in metrics:
        if not isinstance(metric, str):
            metric = keep_metric(metric)
        allow(metric)
        chosen.append(metric)
    return tuple(chosen)


def label_of_metric(name: str) -> str:
    """Return the display name of a metric. For a function, the function's name."""
    return getattr(metric_function(name), "__name__", name) if name.startswith(PREFIX) else name


def take_limits(options: dict[str, Any]) -> Limits:
    """Remove the limits from `options` and return them."""
    limits = {field: options.pop(name, None) for name, field in _LIMITS.items()}
    return Limits(**limits)


def compile_config_of(
    optimizer: Any, metric: AnyMetric | None, settings: Fields | None, *, name: str = ""
) -> CompileConfig:
    """Return the settings of a compile.

    Args:
        optimizer: Name, FILE.py:NAME, or an object with the interface of a DSPy optimizer.
        metric: Metric that the optimizer maximizes. None leaves it to `settings`.
        settings: Further settings.
        name: The caller's name for the objects among these.
    """
    fields = {"optimizer": optimizer, **(settings or {})}
    if not isinstance(fields["optimizer"], str):
        fields["optimizer"] = keep_optimizer(fields["optimizer"], name=name)
    metric = metric or fields.pop("metric", None) or fields.get("optimizer_metric")
    if not isinstance(metric, str | None):
        metric = keep_metric(metric, name=name)
    if metric is not None:
        fields["optimizer_metric"] = metric
    check_is_new(fields.get("out"), str(fields["optimizer"]), metric or "")
    return resolve(CompileConfig, "compile", fields)
