"""The Python API: parts by name, the commands, and runs. See docs/api.md.

Runs of the API and of the command line are the same: same folders, records and limits. The same
call finds its earlier run again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import dspy

from ragbench.api.runs import (
    Run as Run,
    compare as compare,
    open_run as open_run,
    recommend as recommend,
    table as table,
)
from ragbench.data import Dataset, load_dataset as _load
from ragbench.data.answers import answers_of
from ragbench.data.user_data import own_dataset, passages_of
from ragbench.errors import ConfigError
from ragbench.experiments.config import Fields, ask_whole, check_one_run, make_config
from ragbench.experiments.progress import ProgressListener
from ragbench.experiments.runs.context import limited
from ragbench.experiments.runs.objects import (
    LM,
    AnyMetric,
    AnyRetriever,
    Data,
    Metric,
    Program,
    Searched,
    check_options,
    compile_config_of,
    config_of,
    label_of_metric,
    metric_names,
    take_limits,
)
from ragbench.experiments.runs.reuse import set_aside
from ragbench.experiments.runs.runner import evaluate as _evaluate
from ragbench.experiments.runs.summary import HEADLINE, stop_lines
from ragbench.lms.calls import Limits
from ragbench.lms.factory import make_lm as _make_lm
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics import get_metric
from ragbench.metrics.base import read_score
from ragbench.programs import PROGRAMS, RAGProgram
from ragbench.programs.external import keep_module
from ragbench.record import CriticalPath, Ledger, Record, ShownPassage
from ragbench.retrievers import (
    Corpus,
    Passage,
    Retriever,
    keep_retriever,
    make_retriever as _make_retriever,
)
from ragbench.user_code import allow

if TYPE_CHECKING:
    from ragbench.experiments.compare.verdicts import Verdict

# Each function below raises a RagbenchError with one line for an error that the caller can fix.


def load_dataset(name: str | None = None, **options: Any) -> Dataset:
    """Load the data set called `name`.

    Args:
        name: Name of a data set. None: recognize the layout of `data_file`, or use the embedded
            synthetic data set.
        options: Fields of `DataSettings`, such as `data_file`.
    """
    named = {} if name is None else {"dataset": name}
    return _load(make_config({**named, **options}).data_settings())


def make_retriever(
    name: str,
    data: Dataset | Corpus | str | Path | None = None,
    *,
    passages: Searched | None = None,
    **settings: Any,
) -> Retriever:
    """Make the retriever called `name`.

    Args:
        name: Name or spec of the retriever.
        data: A data set, a corpus, or a folder of documents to search.
        passages: Passages to search, instead of `data`.
        settings: Settings of the retriever.

    Raises:
        ConfigError: Both or neither of `data` and `passages` are given, or the folder is missing.
    """
    if (data is None) == (passages is None):
        raise ConfigError(
            "make_retriever needs one of passages=[...], a folder of documents, or a data set"
        )
    if isinstance(data, str | Path):
        if not Path(data).exists():
            raise ConfigError(f"no folder {data}; to search a data set, pass rb.load_dataset(...)")
        data = load_dataset("documents", corpus_file=Path(data))
    if data is None:
        data = Corpus(passages_of(passages))
    if isinstance(data, Dataset):
        return _make_retriever(name, data.corpus, setting=data.setting, **settings)
    return _make_retriever(name, data, setting="pooled", **settings)


def make_program(name: str, retriever: Retriever, **knobs: Any) -> RAGProgram:
    """Make a program.

    Args:
        name: Name of a program, or a DSPy module as `package.module:Class`.
        retriever: The retriever that it searches.
        knobs: Parameters of the program.
    """
    allow(name)
    return PROGRAMS.get(name)(retriever, **knobs)


def make_lm(spec: str = "local", **settings: Any) -> RagbenchLM:
    """Make a `dspy.LM` that meters every call.

    Args:
        spec: LM spec, such as `openai/gpt-4o-mini`.
        settings: Fields of `LMSettings`.
    """
    return _make_lm(spec, **settings)


def metric(name: AnyMetric = "f1") -> Metric:
    """Return a metric function for `dspy.Evaluate` and every optimizer.

    The function takes `(example, prediction, trace=None)` and returns the score. With a trace, as
    when optimizers select demonstrations, it returns True if the score is the best possible.

    Args:
        name: Name of a metric, FILE.py:function, or a function.

    Raises:
        ConfigError: The example or prediction lacks data of the metric, such as gold passages.
    """
    measure = get_metric(metric_names([name])[0])

    def score(
        example: dspy.Example, prediction: Any, trace: Any = None, *_: object, **__: object
    ) -> float | bool:
        value: float | None
        if callable(name):
            value = read_score(name(example, prediction), measure.score_range or (0.0, 1.0))
        else:
            value = measure.score(record_of(example, prediction))
        if value is None:
            raise ConfigError(
                f"metric {name}: this example or prediction lacks required data, such as gold "
                "passages or a judge's reply"
            )
        if trace is None:
            return float(value)
        return measure.score_range is not None and value >= measure.score_range[1]

    score.__name__ = label_of_metric(measure.name)
    return score


def record_of(example: dspy.Example, prediction: Any) -> Record:
    """Make a record of a prediction without a run, for metrics.

    Args:
        example: The question and its gold answers and passages.
        prediction: Provides `answer` and `passages`.
    """
    answer = getattr(prediction, "answer", None)
    passages = getattr(prediction, "passages", None) or ()
    return Record(
        qid=str(example.get("qid") or ""),
        question=str(example.get("question") or ""),
        answers=answers_of(example.get("answers") or example.get("answer")),
        support=list(example.get("support") or []),
        gold_pids=list(example.get("gold_pids") or []),
        answer=None if answer is None else str(answer),
        stop_reason=None,
        steps=[],
        searches=[],
        passages=[ShownPassage(p.pid, p.title, p.text) for p in passages if hasattr(p, "pid")],
        counts={},
        ledger=Ledger([], CriticalPath()),
        latency_s=0.0,
        failure=None,
        scores={},
    )


def evaluate(
    program: Program = "ircot",
    data: Data | None = None,
    *,
    lm: LM | None = None,
    retriever: AnyRetriever | None = None,
    corpus: Searched | None = None,
    devset: Sequence[dspy.Example] | None = None,
    metric: AnyMetric | Sequence[AnyMetric] = (),
    fresh: bool = False,
    name: str = "",
    **options: Any,
) -> Run:
    """Ask every question of `data` that has no record yet, and return the run.

    Args:
        program: A name, `package.module:Class`, or a DSPy module that takes `question` and returns
            `answer`.
        data: A data set, its name, or examples.
        lm: A spec or a `dspy.BaseLM`. None: the LM of DSPy's settings, otherwise the local model.
        retriever: A name, FILE.py:Class, or an object with `search(query, k)`.
        corpus: The passages to search if `data` are examples.
        devset: Alias of `data`.
        metric: Additional metrics: names, FILE.py:function or functions.
        fresh: Rename an earlier run of the same identity and start again.
        name: Identifies the in-memory objects with those of the earlier run of this name. Without
            it, every call with such an object is a new run.
        options: Fields of a config, such as `limit`, `k`, `workers`, `out`, `compiled`, and limits.

    Raises:
        LMUnavailableError: The LM became unavailable. Finished answers are saved, and the same call
            continues.
    """
    options |= {"name": name}
    check_options("evaluate", evaluate, options)
    limits = take_limits(options)
    if isinstance(metric, str) or callable(metric):
        metric = [metric]
    metrics = metric_names(metric)
    if data is not None and devset is not None:
        raise ConfigError("data and devset are aliases; give one of them")
    if data is None:
        data = devset
    is_own = isinstance(data, Dataset) and data.is_own
    config = config_of(program, data, lm, retriever, corpus, options)
    check_one_run(config, options)
    config = ask_whole(config, options, is_own=is_own)
    if fresh:
        set_aside(config.folder())
    with limited(limits, config.folder()):
        run = Run(_evaluate(config, watch=_Lines()), metrics=metrics)
    for line in stop_lines(run.evaluation.stopped_by, run.evaluation.progress):
        _Lines().say(line)
    failures = [record.failure for record in run.records if record.failure]
    if failures:
        _Lines().say(
            f"{len(failures)} of {len(run.records)} questions failed and count as the worst score; "
            f"one of them: {failures[0].error}: {failures[0].message[:200]}"
        )
    return run


class _Lines(ProgressListener):
    """A watch that prints each message of a run to standard error."""

    def say(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")


def compile(
    program: Program,
    data: Data | None = None,
    *,
    optimizer: Any = "bootstrap",
    lm: LM | None = None,
    retriever: AnyRetriever | None = None,
    corpus: Searched | None = None,
    trainset: Sequence[dspy.Example] | None = None,
    valset: Sequence[dspy.Example] | None = None,
    metric: AnyMetric | None = None,
    settings: Fields | None = None,
    fresh: bool = False,
    name: str = "",
    **options: Any,
) -> Path:
    """Compile `program` on training and validation questions.

    Args:
        program: As for `evaluate`.
        data: As for `evaluate`.
        optimizer: A name, a `dspy.teleprompt.Teleprompter` or similar object, or its class.
        lm: As for `evaluate`.
        retriever: As for `evaluate`.
        corpus: As for `evaluate`.
        trainset: Training examples, with `valset`, instead of `data`.
        valset: Validation examples.
        metric: The metric to compile for: a name, FILE.py:function or a function.
        settings: Settings of the compile, such as `train_limit` or `optimizer_seed`.
        fresh: Rename an earlier compile of the same identity and start again.
        name: As for `evaluate`, also for an in-memory optimizer or metric.
        options: As for `evaluate`.

    Returns:
        The folder of the compiled program, for `evaluate(..., compiled=folder)`.
    """
    from ragbench.experiments.compile import compile_program
    from ragbench.experiments.plans import compile_folder

    options |= {"name": name}
    check_options("compile", compile, options)
    limits = take_limits(options)
    if trainset is not None or valset is not None:
        if trainset is None or valset is None or data is not None:
            raise ConfigError("give trainset=[...] and valset=[...] together, without data")
        field = options.pop("field", None)
        data = own_dataset({"train": trainset, "validation": valset}, corpus, field)
        corpus = None
    config = config_of(program, data, lm, retriever, corpus, options, settings)
    if "out" in options:
        settings = {**(settings or {}), "out": str(options["out"])}
    compile_config = compile_config_of(optimizer, metric, settings, name=name)
    folder = compile_folder(config, compile_config)
    if fresh:
        set_aside(folder)
    with limited(limits, folder):
        compile_program(config, compile_config)
    return folder


def verdict(
    program: Program,
    data: Data | None = None,
    *,
    optimizer: str = "bootstrap",
    seeds: int = 3,
    lm: LM | None = None,
    retriever: AnyRetriever | None = None,
    corpus: Searched | None = None,
    settings: Fields | None = None,
    equal_cost: bool = True,
    metrics: Sequence[AnyMetric] = HEADLINE,
    margin: float | None = None,
    repeats: int = 1,
    limits: Limits | None = None,
    on_message: Callable[[str], None] = print,
    **options: Any,
) -> Verdict:
    """Test whether compiling `program` helps.

    The arms are uncompiled, uncompiled with repaired form, compiled with `seeds` seeds, and votes.

    Args:
        program: As for `evaluate`.
        data: As for `evaluate`.
        optimizer: Name of an optimizer.
        seeds: Number of compiles.
        lm: As for `evaluate`.
        retriever: As for `evaluate`.
        corpus: As for `evaluate`.
        settings: As for `compile`.
        equal_cost: Add arms of votes at the cost of the compiled program.
        metrics: Metrics to compare: names, FILE.py:function or functions.
        margin: Difference too small to matter, in the metric's unit.
        repeats: Number of times that each arm asks its questions.
        limits: Limits of the whole verdict, earlier attempts included.
        on_message: Called with each line of progress.
        options: As for `evaluate`.

    Raises:
        StoppedError: A limit was reached before the verdict. The same call continues.
    """
    from ragbench.experiments.cells.verdict import run_verdict
    from ragbench.experiments.compare.verdicts import VerdictRequest, verdict_folder

    check_options("verdict", verdict, options)
    limits = limits or take_limits(options)
    config = config_of(program, data, lm, retriever, corpus, options, settings)
    compile_config = compile_config_of(optimizer, None, settings)
    metrics_compared = metric_names(metrics)
    request = VerdictRequest(seeds, equal_cost, metrics_compared, margin, repeats)
    with limited(limits, verdict_folder(config, compile_config)):
        return run_verdict(config, compile_config, request, on_message=on_message)


def load_program(
    folder: Run | str | Path,
    *,
    retriever: Any = None,
    program: Program | None = None,
    set: Fields | None = None,
    compiled: str | Path | None = None,
    form: bool | None = None,
    votes: int | None = None,
) -> RAGProgram:
    """Load the program of a compile or run folder as a DSPy module.

    Parameters, state, form and votes come from the folder. The LM comes from DSPy's settings, and
    the adapter too, or by default from the run.

    Args:
        folder: A run, or the folder of a run or a compiled program.
        retriever: An object that searches. None: BM25 over an empty corpus.
        program: Class of a state that plain DSPy saved.
        set: Parameters that replace those of the folder.
        compiled: Folder of the compiled program, for a run of one.
        form: Replaces the form setting of the folder.
        votes: Replaces the number of votes of the folder.
    """
    from ragbench.experiments.runs.loading import load_program as load

    if isinstance(retriever, str):
        raise ConfigError(
            f"retriever={retriever!r} is a name; give an object, such as "
            f"rb.make_retriever({retriever!r}, passages=[...])"
        )
    if program is not None and not isinstance(program, str):
        program = keep_module(program)
    allow(program)
    if not isinstance(retriever, Retriever):
        name = "bm25" if retriever is None else keep_retriever(retriever)
        retriever = _make_retriever(name, Corpus(()), setting="pooled")
    return load(
        folder.folder if isinstance(folder, Run) else Path(folder),
        retriever,
        program=program,
        knobs=set or {},
        compiled=None if compiled is None else Path(compiled),
        form=form,
        votes=votes,
    )
