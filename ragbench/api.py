"""What `import ragbench` gives: parts by name, the commands, and runs. See docs/api.md.

Runs made here are those of the command line: the same folders, records and limits, found again when
the same thing is asked again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import dspy

from ragbench.data import Dataset, data_set, load_dataset as _load, make_example
from ragbench.data.answers import answers_of
from ragbench.data.base import Split
from ragbench.data.mapping import map_fields
from ragbench.data.readers import Row
from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.config import (
    CompileConfig,
    RunConfig,
    ask_whole,
    check_names,
    make_config,
)
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.context import limited
from ragbench.experiments.runs.runner import evaluate as _evaluate
from ragbench.experiments.runs.summary import HEADLINE, Evaluation, reopen_arm
from ragbench.experiments.watch import Watch
from ragbench.knobs import resolve
from ragbench.lms.calls import Limits
from ragbench.lms.factory import keep_lm, make_lm as _make_lm
from ragbench.lms.lm import RagbenchLM
from ragbench.logs import get
from ragbench.metrics import Interval, get_metric
from ragbench.metrics.base import keep_metric
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
    import pandas as pd

    from ragbench.experiments.compare.against import RunComparison
    from ragbench.experiments.compare.verdicts import Verdict
    from ragbench.experiments.probe.judging import Judgement
    from ragbench.experiments.recommend import Advice
    from ragbench.experiments.report.table import Table

_log = get(__name__)

Metric: TypeAlias = Callable[..., float | bool]
#: What may be asked: the name of a data set, one that was loaded, or examples of one's own.
Data: TypeAlias = str | Dataset | Sequence[dspy.Example]
#: What may answer: the name of a program, `package.module:Class`, or a DSPy module or its class.
Program: TypeAlias = str | dspy.Module | type[dspy.Module]
LM: TypeAlias = str | dspy.BaseLM
#: Which field of an example holds the gold answer, or where each of our fields stands in it.
Field: TypeAlias = str | Mapping[str, str] | None
#: What may search: the name of a retriever, `FILE.py:Class`, or an object with `search(query, k)`.
AnyRetriever: TypeAlias = str | Retriever | Callable[..., Any]


@dataclass(frozen=True)
class Run:
    """A finished or interrupted run: its folder, its records and their means.

    A run that was asked several times (`--repeats`) is one, of all of its `repeats`; `evaluation`
    is then the first of them.
    """

    evaluation: Evaluation
    repeats: Sequence[Evaluation] = ()

    @property
    def arm(self) -> Sequence[Evaluation]:
        """All its repeats, or the one that it is."""
        return self.repeats or [self.evaluation]

    @property
    def folder(self) -> Path:
        if self.repeats:
            return self.evaluation.folder.parent
        return self.evaluation.folder

    @property
    def records(self) -> list[Record]:
        """One record per question and repeat, in the order first asked."""
        records: list[Record] = []
        for run in self.arm:
            records.extend(run.records.values())
        return records

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the table shows of the run."""
        if self.repeats:
            return table(self).rows[0]
        return self.evaluation.summary.to_dict()

    @property
    def failed(self) -> int:
        """How many of its questions failed."""
        return sum(record.failed for record in self.records)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Mean of each headline metric; a failed question counts as the worst."""
        if self.repeats:
            return {name: self.mean(name) or 0.0 for name in HEADLINE}
        return dict(self.evaluation.summary.scores)

    def mean(self, name: str | Metric) -> float | None:
        """The mean of a metric over the questions that have it; None if none has.

        `name` is a metric's name, FILE.py:function, or a function of one's own.
        UnknownNameError where there is no such metric.
        """
        [name] = _metric_names([name])
        scores = [get_metric(name).score(record) for record in self.records]
        values = []
        for value in scores:
            if value is not None:
                values.append(value)
        if values:
            return sum(values) / len(values)
        return None

    def interval(self, name: str | Metric) -> Interval | None:
        """The 95 % interval of `mean`, over questions by their clusters; None if none can be given.

        UnknownNameError where there is no such metric.
        """
        from ragbench.experiments.compare.paired import mean_of_arm

        [name] = _metric_names([name])
        first = self.evaluation.records
        qids = sorted(set(first).intersection(*(run.records for run in self.arm[1:])))
        found = mean_of_arm(self.arm, name, qids, clusters_of(first.only(qids)))
        return None if found is None else found[1]

    def compare(self, other: Run | str | Path, **options: Any) -> RunComparison:
        """This run and `other`, as `ragbench.compare` compares two."""
        return compare(self, other, **options)

    def toDict(self) -> dict[str, Any]:  # noqa: N802  # as DSPy's own results call it
        """Folder, scores, summary and answers, as JSON has them."""
        records: list[dict[str, Any]] = []
        for record in self.records:
            row: dict[str, Any] = {"qid": record.qid, "question": record.question}
            row |= {"answers": record.answers, "answer": record.answer}
            row |= {"failed": record.failed, "scores": record.scores}
            records.append(row)
        fields = {"folder": self.folder, "scores": self.scores, "summary": self.summary}
        text = json.dumps({**fields, "records": records}, default=str)
        document: dict[str, Any] = json.loads(text)
        return document

    def to_pandas(self) -> pd.DataFrame:
        """One row per question, with the columns of `ragbench export` (docs/export.md)."""
        from ragbench.experiments.export import open_runs, rows_of

        with needs_extra("to_pandas"):
            import pandas as pd
        return pd.DataFrame(rows_of(open_runs([self.folder])))

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        return f"Run({self.folder}, n={len(self.records)}, failed={self.failed}, {scores})"

    def _repr_html_(self) -> str:
        from ragbench.experiments.report.table import written

        return written(table(self), "html")


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
    passages: Iterable[Passage | str] | None = None,
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
        data = Corpus(_passages(passages))
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


def metric(name: str = "f1") -> Metric:
    """The metric called `name` for `dspy.Evaluate` and every DSPy optimizer.

    Called as `metric(example, prediction, trace=None)` it gives the score; with a trace, as
    optimizers call it to choose demonstrations, whether the score is the best there is. ConfigError
    where the example or the prediction has not what the metric needs, such as gold passages.
    """
    measure = get_metric(name)

    def score(
        example: dspy.Example, prediction: Any, trace: Any = None, *_: object, **__: object
    ) -> float | bool:
        value = measure.score(record_of(example, prediction))
        if value is None:
            raise ConfigError(
                f"the metric {name} needs what this example or prediction has not, such as gold "
                "passages or the reply of a judge; its score is not known"
            )
        if trace is None:
            return float(value)
        return measure.score_range is not None and value >= measure.score_range[1]

    score.__name__ = name
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
    corpus: Iterable[Passage | str] | None = None,
    devset: Sequence[dspy.Example] | None = None,
    **options: Any,
) -> Run:
    """Ask every question of `data` that has no record yet, and give the run.

    `program` is a name, `package.module:Class`, or a DSPy module that takes `question` and returns
    `answer`. `corpus` is what is searched where `data` are examples. `options` are the fields of a
    config, such as `limit`, `k`, `workers`, `out`, `compiled`; `name` says which run it is where an
    object holds what cannot be read, such as an open connection.
    LMUnavailableError where the LM went away: what is finished is kept, and asking again continues.
    """
    _check_options("evaluate", evaluate, options)
    limits = _take_limits(options)
    data = _one_of(data, devset, "devset")
    config = ask_whole(_config_of(program, data, lm, retriever, corpus, options), options)
    with limited(limits, config.folder()):
        return Run(_evaluate(config, watch=_Lines()))


class _Lines(Watch):
    """Shows what a person should know of a run, a line each, on standard error."""

    def say(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")


@overload
def compile(
    program: Program, data: Data | None = None, *, probe: Literal[True], **options: Any
) -> Judgement | None: ...


@overload
def compile(
    program: Program, data: Data | None = None, *, probe: Literal[False] = False, **options: Any
) -> Path: ...


def compile(
    program: Program,
    data: Data | None = None,
    *,
    optimizer: Any = "bootstrap",
    lm: LM | None = None,
    retriever: AnyRetriever | None = None,
    corpus: Iterable[Passage | str] | None = None,
    trainset: Sequence[dspy.Example] | None = None,
    valset: Sequence[dspy.Example] | None = None,
    metric: str | Metric | None = None,
    settings: Mapping[str, Any] | None = None,
    probe: bool = False,
    **options: Any,
) -> Path | Judgement | None:
    """Compile `program` on training and validation questions; the folder of the compiled program.

    Give it to `evaluate(..., compiled=folder)`. `optimizer` is a name, or any optimizer of DSPy's
    kind: a `dspy.teleprompt.Teleprompter`, or its class. `settings` are those of the compile, such
    as `train_limit` or `optimizer_seed`; `metric` is a name, FILE.py:function or a function;
    `options` are as for `evaluate`. With `probe` nothing is compiled, as by `compile --probe`: the
    chance that compiling helps, and sentences why; None where too few questions could be asked.
    """
    from ragbench.experiments.compile import compile_program
    from ragbench.experiments.plans import compile_folder
    from ragbench.experiments.probe import probe_program
    from ragbench.optimizers.external import keep_optimizer

    _check_options("compile", compile, options)
    if not isinstance(optimizer, str):
        optimizer = keep_optimizer(optimizer)
    limits = _take_limits(options)
    if trainset is not None or valset is not None:
        if trainset is None or valset is None or data is not None:
            raise ConfigError("give trainset=[...] and valset=[...] together, without data")
        field = options.pop("field", None)
        data = _own({"train": trainset, "validation": valset}, corpus, field)
        corpus = None
    config = _config_of(program, data, lm, retriever, corpus, options, settings)
    compile_config = resolve(CompileConfig, "compile", _compile_fields(optimizer, metric, settings))
    folder = compile_folder(config, compile_config)
    with limited(limits, folder):
        if probe:
            return probe_program(config, compile_config)
        compile_program(config, compile_config)
    return folder


def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    metrics: Sequence[str | Metric] = HEADLINE,
    margin: float | None = None,
    common: bool = False,
) -> RunComparison:
    """Two runs over the same questions: differences, intervals and tests, question by question.

    `metrics` are names, FILE.py:function or functions. `margin` is the difference too small to
    matter. `common` leaves out questions that only one of the runs has.
    """
    from ragbench.experiments.compare.against import compare_all

    both = [open_run(run).arm for run in (a, b)]
    chosen = _metric_names(metrics)
    return compare_all(both, metrics=chosen, common=common, margin=margin)[0]


def verdict(
    program: Program,
    data: Data | None = None,
    *,
    optimizer: str = "bootstrap",
    seeds: int = 3,
    lm: LM | None = None,
    retriever: AnyRetriever | None = None,
    corpus: Iterable[Passage | str] | None = None,
    settings: Mapping[str, Any] | None = None,
    equal_cost: bool = True,
    metrics: Sequence[str | Metric] = HEADLINE,
    margin: float | None = None,
    max_questions: int | None = None,
    repeats: int = 1,
    limits: Limits | None = None,
    on_message: Callable[[str], None] = print,
    **options: Any,
) -> Verdict:
    """Whether compiling helps: zero-shot, its form repaired, compiled with `seeds` seeds, votes.

    `equal_cost` adds the arms of votes for what compiled costs. `margin` is the difference that
    does not matter. With `max_questions` it looks at more and more questions, from `limit` on,
    until every metric of `metrics` is decided. Each arm asks its questions `repeats` times.
    `limits` are of the whole verdict, what earlier attempts spent included; `on_message` gets a
    line for each thing that is done. StoppedError
    where a limit was reached before there was a verdict: ask again to continue.
    """
    from ragbench.experiments.compare.running import run_verdict
    from ragbench.experiments.compare.verdicts import VerdictRequest, verdict_folder

    _check_options("verdict", verdict, options)
    limits = limits or _take_limits(options)
    config = _config_of(program, data, lm, retriever, corpus, options, settings)
    compile_config = resolve(CompileConfig, "compile", _compile_fields(optimizer, None, settings))
    names = _metric_names(metrics)
    request = VerdictRequest(seeds, equal_cost, names, margin, max_questions, repeats)
    with limited(limits, verdict_folder(config, compile_config)):
        return run_verdict(config, compile_config, request, on_message=on_message)


def recommend(
    *runs: Run | str | Path, metric: str | Metric = "f1", common: bool = False, worth: float = 0.05
) -> Advice:
    """Which of the programs of `runs` to use: the cheapest that is shown as good as the best mean.

    As good is less than `worth` below it, the least gain that pays for a dearer program.
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.report.repeats import label_arms

    arms = [open_run(run).arm for run in runs]
    [name] = _metric_names([metric])
    return advise(arms, name, labels=label_arms(arms), common=common, worth=worth)


def table(*runs: Run | str | Path) -> Table:
    """The table of `runs` that `ragbench summarize` prints; `.to_pandas()` gives its numbers.

    Where one was asked several times, it has a row for each with its repeats pooled.
    """
    from ragbench.experiments.report.repeats import label_arms, pooled_table
    from ragbench.experiments.report.tables import run_table

    opened = [open_run(run) for run in runs]
    if any(run.repeats for run in opened):
        arms = [run.arm for run in opened]
        return pooled_table(arms, label_arms(arms))
    return run_table([run.evaluation for run in opened])


def open_run(folder: Run | str | Path) -> Run:
    """The run in `folder`, or that of all repeats in it; reading writes nothing.

    RunError where it is no run folder.
    """
    if isinstance(folder, Run):
        return folder
    path = Path(folder)
    arm = reopen_arm(path)
    if arm[0].folder == path:
        return Run(arm[0])
    return Run(arm[0], arm)


def load_program(
    folder: Run | str | Path,
    *,
    retriever: Any = None,
    program: Program | None = None,
    set: Mapping[str, Any] | None = None,
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
        nothing = Corpus(())
        if retriever is None:
            retriever = _make_retriever("bm25", nothing, setting="pooled")
        else:
            retriever = _make_retriever(keep_retriever(retriever), nothing, setting="pooled")
    return load(
        folder.folder if isinstance(folder, Run) else Path(folder),
        retriever,
        program=program,
        knobs=set or {},
        compiled=None if compiled is None else Path(compiled),
        form=form,
        votes=votes,
    )


# From Python objects to the config of a run.

#: Data sets that were given as objects, by the name that stands for each in a config.
_given: dict[str, Dataset] = {}


def _config_of(
    program: Program,
    data: Data | None,
    lm: LM | None,
    retriever: AnyRetriever | None,
    corpus: Iterable[Passage | str] | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The config that these objects and options come to; `settings` are of a compile."""
    if lm is None:
        lm = dspy.settings.lm or "local"
        _log.warning("no lm was given: it is %s", getattr(lm, "model", "the local model"))
    if not isinstance(lm, str | dspy.BaseLM):
        raise ConfigError(
            f"lm={repr(lm)[:80]} is neither a spec such as openai/gpt-4o-mini nor a dspy.LM object"
        )
    fields: dict[str, Any] = {}
    if data is not None:
        options = dict(options)
        if isinstance(data, str):
            field = None
        else:
            field = options.pop("field", None)
        fields["dataset"] = _dataset_name(data, corpus, field)
        if not isinstance(data, str):
            fields["limit"] = None
    elif corpus is not None:
        raise ConfigError("corpus is what examples are searched in; give data=[...] with it")
    for option, value in options.items():
        fields[option] = str(value) if isinstance(value, Path) else value
    stands_for = str(fields.pop("name", None) or fields.get("out") or "")
    if retriever is None:
        retriever = "bm25"
        is_own = not isinstance(program, str) or ":" in program
        if is_own and corpus is None and dspy.settings.rm is not None:
            retriever = dspy.settings.rm
    if not isinstance(program, str):
        program = keep_module(program, stands_for=stands_for)
    if not isinstance(lm, str):
        other_lms = fields.get("lm_for") or {"teacher", "prompt_lm"} & set(settings or {})
        _check_of_object(lm, fields, alone=not other_lms)
        lm = keep_lm(lm, stands_for=stands_for)
    if not isinstance(retriever, str):
        retriever = keep_retriever(retriever, stands_for=stands_for)
    fields |= {"program": program, "lm": lm, "retriever": retriever}
    return make_config(fields)


def _check_of_object(lm: dspy.BaseLM, fields: Mapping[str, Any], *, alone: bool) -> None:
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


def _check_options(owner: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Check that `options` are fields of a run or limits.

    Raises:
        KnobError: one is not; the message has the near name, also of a parameter of `function`.
    """
    parameters = inspect.signature(function).parameters.keys() - {"options"}
    check_names(options, f"rb.{owner}", {*_LIMITS, "name", *parameters})


def _metric_names(metrics: Sequence[str | Metric]) -> tuple[str, ...]:
    """The names of `metrics`, of which a function gets one for this process."""
    if isinstance(metrics, str):
        raise ConfigError(f"metrics={metrics!r} is one text; give a list: metrics=[{metrics!r}]")
    chosen: list[str] = []
    for metric in metrics:
        if isinstance(metric, str):
            name = metric
        else:
            name = keep_metric(metric)
        allow(name)
        chosen.append(name)
    return tuple(chosen)


def _take_limits(options: dict[str, Any]) -> Limits:
    """The limits among `options`, by the names of the command line, which are taken out."""
    limits = {field: options.pop(name, None) for name, field in _LIMITS.items()}
    return Limits(**limits)


def _one_of(data: Data | None, examples: Data | None, name: str) -> Data | None:
    if data is not None and examples is not None:
        raise ConfigError(f"data and {name} both say what is asked; leave one out")
    if data is None:
        return examples
    return data


def _compile_fields(
    optimizer: str, metric: str | Metric | None, settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    fields = {"optimizer": optimizer, **(settings or {})}
    if metric is not None:
        fields["metric"] = metric
    chosen = fields.get("metric")
    if chosen is not None and not isinstance(chosen, str):
        fields["metric"] = keep_metric(chosen)
    return fields


def _dataset_name(data: Data, corpus: Iterable[Passage | str] | None, field: Field) -> str:
    if isinstance(data, str):
        if corpus is not None:
            raise ConfigError(f"the data set {data!r} brings its corpus; leave corpus out")
        return data
    if isinstance(data, Dataset):
        dataset = data
    else:
        dataset = _own({"test": data}, corpus, field)
    name = f"{dataset.name}-{dataset.digest[:12]}"
    if name not in _given:
        _given[name] = dataset
        data_set(name, listed=False, view=dataset.corpus.view, setting=dataset.setting)(
            lambda spec: _given[name]
        )
    return name


def _own(
    splits: Mapping[Split, Iterable[dspy.Example]],
    corpus: Iterable[Passage | str] | None,
    field: Field,
) -> Dataset:
    """Examples of one's own, by split, as a data set."""
    if isinstance(field, str):
        paths = {"answer": field}
    else:
        paths = dict(field or {})
    examples_of_split: dict[Split, list[dspy.Example]] = {}
    examples_by_qid: dict[str, dspy.Example] = {}
    for split, examples in splits.items():
        if not isinstance(examples, Iterable):
            raise ConfigError(f"{examples!r} is neither a data set nor a list of dspy.Example")
        examples_of_split[split] = []
        for row in examples:
            example = _example(row, paths)
            if examples_by_qid.setdefault(example.qid, example) is not example:
                raise ConfigError(
                    f"two examples have the qid {example.qid!r} (without one it is of the "
                    f"question): {example.question[:80]!r}; give each its own qid, or leave one out"
                )
            examples_of_split[split].append(example)
    return Dataset("own", examples_of_split, Corpus(_passages(corpus)), "pooled")


def _passages(corpus: Iterable[Passage | str] | None) -> tuple[Passage, ...]:
    if isinstance(corpus, str | Mapping):
        raise ConfigError(f"corpus is one {type(corpus).__name__}; give a list of Passage or text")
    items = tuple(corpus or ())
    for item in items:
        if not isinstance(item, Passage | str):
            raise ConfigError(f"corpus has {repr(item)[:80]}; give each as a Passage or as text")
    passages = []
    for number, item in enumerate(items):
        if isinstance(item, Passage):
            passages.append(item)
        else:
            passages.append(Passage(f"p{number}", "", _text(item, "corpus")))
    return tuple(passages)


def _example(example: dspy.Example | Mapping[str, Any], paths: Mapping[str, str]) -> dspy.Example:
    """`example` with question, answers and id; `paths` says where they stand under other names."""
    if not isinstance(example, dspy.Example | Mapping):
        raise ConfigError(f"data has {repr(example)[:80]}; give each question as a dspy.Example")
    row = map_fields(Row("an example", dict(example.items())), paths, "field")
    fields = dict(row.data)
    question = fields.pop("question", None)
    answers: list[str] = []
    for name in ("answer", "answers"):
        value = fields.pop(name, None)
        try:
            answers += answers_of(value)
        except ValueError as error:
            raise ConfigError(
                f"{name}={repr(value)[:80]} of an example is no answer ({error}); give a text, a "
                "number, True or False, or a list of these"
            ) from None
    if not question or not answers:
        present = ", ".join(map(str, example.keys()))
        raise ConfigError(
            "an example needs a question, and an answer or a list of answers; this one has "
            f"{present}: give field={{'answer': NAME}} where they have other names"
        )
    question = _text(question, "the question of an example")
    qid = str(fields.pop("qid", "") or hashlib.sha256(question.encode()).hexdigest()[:12])
    return make_example(qid=qid, question=question, answers=answers, **fields)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {repr(value)[:80]}, which is no text")
    if "\x00" in value or value != value.encode("utf-8", "replace").decode():
        raise ConfigError(f"{name} holds a NUL or half of a surrogate pair: {repr(value)[:80]}")
    return value
