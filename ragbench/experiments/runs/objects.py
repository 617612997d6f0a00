"""From what a person hands over in Python to the config of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import dspy

from ragbench.data import Dataset, DataSettings
from ragbench.data.own import keep_dataset, own_dataset
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
#: A metric: the name of one, or a function of one's own.
AnyMetric: TypeAlias = str | Metric
#: What may be asked: the name of a data set, one that was loaded, or examples of one's own.
Data: TypeAlias = str | Dataset | Sequence[dspy.Example]
#: What may answer: the name of a program, `package.module:Class`, or a DSPy module or its class.
Program: TypeAlias = str | dspy.Module | type[dspy.Module]
LM: TypeAlias = str | dspy.BaseLM
#: What is searched where the data are examples: passages, or their texts.
Searched: TypeAlias = Iterable[Passage | str]
#: What may search: the name of a retriever, `FILE.py:Class`, or an object with `search(query, k)`.
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
    """The config that these objects and options come to; `settings` are of a compile."""
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
    if adapter is None and ":" in program:  # which finds it there in plain DSPy too
        adapter = dspy.settings.adapter
    if adapter is not None:
        fields["adapter"] = (
            adapter if isinstance(adapter, str) else keep_adapter(adapter, name=name)
        )
    fields |= {"program": program, "lm": lm, "retriever": retriever}
    check_is_new(fields.get("out"), program, lm, retriever, str(fields.get("adapter")))
    return make_config(fields)


def keep_adapter(adapter: dspy.Adapter, *, name: str = "") -> str:
    """Return the name of `adapter` in configs of this process.

    One of DSPy's is identified by its class and settings, another one by the caller's `name`.
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
    """Check that the folder `out` is new if one of `names` is that of an unnamed object.

    Raises:
        ConfigError: it holds a run or a compile, which another object may have made.
    """
    for name in filter(is_unnamed, names):
        if out is not None and Path(out).is_dir() and any(Path(out).iterdir()):
            raise ConfigError(
                f"out={str(out)!r} is not empty, and nothing says that {label_of(name)} is the "
                "object that made it; give name='v1' at every call to continue, or another out"
            )


def _data_fields(data: Data | None, corpus: Searched | None, options: Fields) -> dict[str, Any]:
    """The fields of `options` with the name of the data set that `data` and `corpus` come to."""
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
_READ_OF_OBJECTS = ("renamed", "unanswerable")


def _check_lm(lm: dspy.BaseLM, fields: Fields, *, alone: bool) -> None:
    """Check that `fields` set nothing of an LM that the object `lm` keeps for itself.

    Sampling is of other LMs too, where it is not `alone`.

    Raises:
        ConfigError: one does; the message has its value and the cure.
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

    Raises:
        KnobError: one is not; the message has the near name, also of a parameter of `function`.
    """
    parameters = inspect.signature(function).parameters.keys() - {"options"}
    check_names(options, f"rb.{owner}", {*_LIMITS, "name", *parameters})


def metric_names(metrics: Sequence[AnyMetric]) -> tuple[str, ...]:
    """The names of `metrics`, of which a function gets one for this process."""
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
    """The name of a metric for a reader: that of the function, where one was handed over."""
    return getattr(metric_function(name), "__name__", name) if name.startswith(PREFIX) else name


def take_limits(options: dict[str, Any]) -> Limits:
    """The limits among `options`, by the names of the command line, which are taken out."""
    limits = {field: options.pop(name, None) for name, field in _LIMITS.items()}
    return Limits(**limits)


def compile_config_of(
    optimizer: Any, metric: AnyMetric | None, settings: Fields | None, *, name: str = ""
) -> CompileConfig:
    """Return the settings of a compile.

    Args:
        optimizer: The name of one, FILE.py:NAME, or any optimizer of DSPy's kind.
        metric: The metric that the optimizer chooses by. None leaves it to `settings`.
        settings: Further settings.
        name: The caller's word for the objects among these.
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
