"""What `import ragbench` gives: parts by name, the commands, and runs. See docs/api.md.

Runs made here are those of the command line: the same folders, records and limits, found again when
the same thing is asked again.
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
from ragbench.data.own import own_dataset, passages_of
from ragbench.errors import ConfigError
from ragbench.experiments.config import Fields, ask_whole, check_one_run, make_config
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
from ragbench.experiments.watch import Watch
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

# Each function below raises a RagbenchError with one line for what its caller can mend.


def load_dataset(name: str | None = None, **options: Any) -> Dataset:
    """The data set called `name`; `options` are the fields of `DataSettings`, such as `data_file`.

    Without a name it is that of the layout of the file, or the embedded synthetic one.
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
    """The retriever called `name` over `passages`, or over the corpus of `data`, in its setting.

    `data` is a data set, a corpus, or the folder of documents.
    """
    if (data is None) == (passages is None):
        raise ConfigError(
            "a retriever searches passages=[...], the folder of documents, or a data set; give one"
        )
    if isinstance(data, str | Path):
        if not Path(data).exists():
            raise ConfigError(f"{data} is no folder of documents; a data set is rb.load_dataset()")
        data = load_dataset("documents", corpus_file=Path(data))
    if data is None:
        data = Corpus(passages_of(passages))
    if isinstance(data, Dataset):
        return _make_retriever(name, data.corpus, setting=data.setting, **settings)
    return _make_retriever(name, data, setting="pooled", **settings)


def make_program(name: str, retriever: Retriever, **knobs: Any) -> RAGProgram:
    """The program called `name`, or a DSPy module as `package.module:Class`, over `retriever`."""
    allow(name)
    return PROGRAMS.get(name)(retriever, **knobs)


def make_lm(spec: str = "local", **settings: Any) -> RagbenchLM:
    """A `dspy.LM` whose every call is metered, from a spec such as `openai/gpt-4o-mini`."""
    return _make_lm(spec, **settings)


def metric(name: AnyMetric = "f1") -> Metric:
    """The metric `name`, or a function of one's own, for `dspy.Evaluate` and every optimizer.

    Called as `metric(example, prediction, trace=None)` it gives the score; with a trace, as
    optimizers call it to choose demonstrations, whether the score is the best there is. ConfigError
    where the example or the prediction has not what the metric needs, such as gold passages.
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
                f"the metric {name} needs what this example or prediction has not, such as gold "
                "passages or the reply of a judge; its score is not known"
            )
        if trace is None:
            return float(value)
        return measure.score_range is not None and value >= measure.score_range[1]

    score.__name__ = label_of_metric(measure.name)
    return score


def record_of(example: dspy.Example, prediction: Any) -> Record:
    """What metrics see of a prediction that no run recorded: its answer and its passages."""
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
        lm: A spec or a `dspy.BaseLM`. None takes that of DSPy's settings, else the local model.
        retriever: A name, FILE.py:Class, or an object with `search(query, k)`.
        corpus: The passages to search if `data` are examples.
        devset: Another name of `data`.
        metric: Further metrics of the scores: names, FILE.py:function or functions.
        fresh: Set an earlier run of the same identity aside and ask again.
        name: Says that the objects in memory are those of the earlier run of this name. Without it
            every call with such an object is a new run.
        options: Fields of a config, such as `limit`, `k`, `workers`, `out`, `compiled`, and limits.

    Raises:
        LMUnavailableError: the LM went away. Finished answers are kept, and asking again continues.
    """
    options |= {"name": name}
    check_options("evaluate", evaluate, options)
    limits = take_limits(options)
    if isinstance(metric, str) or callable(metric):
        metric = [metric]
    metrics = metric_names(metric)
    if data is not None and devset is not None:
        raise ConfigError("data and devset both say what is asked; leave one out")
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


class _Lines(Watch):
    """Shows what a person should know of a run, a line each, on standard error."""

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
        optimizer: A name, or any optimizer of DSPy's kind: a `dspy.teleprompt.Teleprompter`, or its
            class.
        lm: As for `evaluate`.
        retriever: As for `evaluate`.
        corpus: As for `evaluate`.
        trainset: Training examples, with `valset`, in the place of `data`.
        valset: Validation examples.
        metric: The metric to compile for: a name, FILE.py:function or a function.
        settings: Settings of the compile, such as `train_limit` or `optimizer_seed`.
        fresh: Set an earlier compile of the same identity aside and compile again.
        name: As for `evaluate`, also for an optimizer and a metric in memory.
        options: As for `evaluate`.

    Returns:
        The folder of the compiled program. Give it to `evaluate(..., compiled=folder)`.
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
    """Whether compiling helps: zero-shot, its form repaired, compiled with `seeds` seeds, votes.

    `equal_cost` adds the arms of votes for what compiled costs. `margin` is the difference that
    does not matter. Each arm asks its questions `repeats` times.
    `limits` are of the whole verdict, what earlier attempts spent included; `on_message` gets a
    line for each thing that is done. StoppedError
    where a limit was reached before there was a verdict: ask again to continue.
    """
    from ragbench.experiments.cells.verdict import run_verdict
    from ragbench.experiments.compare.verdicts import VerdictRequest, verdict_folder

    check_options("verdict", verdict, options)
    limits = limits or take_limits(options)
    config = config_of(program, data, lm, retriever, corpus, options, settings)
    compile_config = compile_config_of(optimizer, None, settings)
    names = metric_names(metrics)
    request = VerdictRequest(seeds, equal_cost, names, margin, repeats)
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
    """The program that was compiled or run in `folder`, as a DSPy module that answers as there.

    Knobs, state, form and votes are those of the folder, over which `set` has knobs; LM and
    adapter are those of DSPy's settings, or the adapter of a run by default. `retriever` is an
    object that searches. A run of a compiled program needs `compiled=FOLDER` as well, a
    state that plain DSPy saved `program=`.
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
