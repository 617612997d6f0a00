"""What `import ragbench` gives: parts by name, and the commands. See docs/api.md.

Runs made here are those of the command line: the same folders, records and limits, found again when
the same thing is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dspy

from ragbench.api.inputs import LM, AnyRetriever, Data, Program, config_of
from ragbench.api.runs import Run
from ragbench.data import Dataset, load_dataset as _load
from ragbench.experiments.config import CompileConfig, ask_whole, make_config
from ragbench.experiments.runs import HEADLINE, evaluate as _evaluate, limited, reopen
from ragbench.lms import RagbenchLM, make_lm as _make_lm
from ragbench.lms.calls import Limits
from ragbench.metrics import get_metric
from ragbench.programs import PROGRAMS, RAGProgram
from ragbench.record import CriticalPath, Ledger, Record, ShownPassage
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever as _make_retriever
from ragbench.user_code import allow

if TYPE_CHECKING:
    from ragbench.experiments.compare.paired import RunComparison
    from ragbench.experiments.compare.verdicts import Verdict
    from ragbench.experiments.recommend import Advice

Metric: TypeAlias = Callable[..., float | bool]


def load_dataset(name: str = "synthetic", **options: Any) -> Dataset:
    """The data set called `name`; `options` are the fields of `DataSpec`, such as `data_file`.

    Raises:
        RagbenchError: an unknown name or option, or a file that cannot be read.
    """
    return _load(make_config({"dataset": name, **options}).data_spec())


def make_retriever(name: str, data: Dataset | Corpus, **settings: Any) -> Retriever:
    """The retriever called `name` over the corpus of `data`, in its setting.

    Raises:
        RagbenchError: an unknown retriever or setting.
    """
    if isinstance(data, Dataset):
        return _make_retriever(name, data.corpus, setting=data.setting, **settings)
    return _make_retriever(name, data, setting="pooled", **settings)


def make_program(name: str, retriever: Retriever, **knobs: Any) -> RAGProgram:
    """The program called `name`, or a DSPy module as `package.module:Class`, over `retriever`.

    Raises:
        RagbenchError: an unknown program or knob, or a module that cannot be imported.
    """
    allow(name)
    return PROGRAMS.get(name)(retriever, **knobs)


def make_lm(spec: str = "local", **settings: Any) -> RagbenchLM:
    """A `dspy.LM` whose every call is metered, from a spec such as `openai/gpt-4o-mini`.

    Raises:
        RagbenchError: a malformed spec or an unknown provider.
    """
    return _make_lm(spec, **settings)


def metric(name: str = "f1") -> Metric:
    """The metric called `name` for `dspy.Evaluate` and every DSPy optimizer.

    Called as `metric(example, prediction, trace=None)` it gives the score; with a trace, as
    optimizers call it to choose demonstrations, whether the score is the best there is. What has
    not what the metric needs, such as gold passages, has the worst score.

    Raises:
        UnknownNameError: there is no such metric.
    """
    measure = get_metric(name)

    def score(
        example: dspy.Example, prediction: Any, trace: Any = None, *_: object, **__: object
    ) -> float | bool:
        value = measure.score(record_of(example, prediction))
        value = measure.worst if value is None else value
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
        answers=[str(each) for each in example.get("answers") or [example.get("answer")]],
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
    data: Data = "synthetic",
    *,
    lm: LM = "local",
    retriever: AnyRetriever = "bm25",
    corpus: Iterable[Passage | str] | None = None,
    **options: Any,
) -> Run:
    """Ask every question of `data` that has no record yet, and give the run.

    `program` is a name, `package.module:Class`, or a DSPy module that takes `question` and returns
    `answer`. `corpus` is what is searched where `data` are examples. `options` are the fields of a
    config by their flat names, such as `limit`, `k`, `workers`, `out`, `compiled`.

    Raises:
        LMUnavailableError: the LM went away; what is finished is kept, and asking again continues.
        RagbenchError: something else the caller can mend.
    """
    config = ask_whole(config_of(program, data, lm, retriever, corpus, options), options)
    with limited(Limits(), config.folder()):
        return Run(_evaluate(config))


def compile(
    program: Program,
    data: Data = "synthetic",
    *,
    optimizer: str = "bootstrap",
    lm: LM = "local",
    retriever: AnyRetriever = "bm25",
    corpus: Iterable[Passage | str] | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Compile `program` on training and validation questions; the folder of the compiled program.

    Give it to `evaluate(..., compiled=folder)`. `settings` are those of the compile, such as
    `train_limit`, `metric` or `optimizer_seed`; `options` are as for `evaluate`.

    Raises:
        RagbenchError: something the caller can mend.
    """
    from ragbench.experiments.compile import compile_folder, compile_program
    from ragbench.knobs import resolve

    config = config_of(program, data, lm, retriever, corpus, options)
    compile_config = resolve(CompileConfig, "compile", {"optimizer": optimizer, **(settings or {})})
    compile_program(config, compile_config)
    return compile_folder(config, compile_config)


def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    margin: float | None = None,
    **options: Any,
) -> RunComparison:
    """Two runs over the same questions: differences, intervals and tests, question by question.

    `margin` is the difference too small to matter.

    Raises:
        RagbenchError: the runs share no questions.
    """
    from ragbench.experiments.compare.paired import compare_all
    from ragbench.metrics import Method

    both = [open_run(run).evaluation for run in (a, b)]
    return compare_all(both, method=Method(margin=margin), **options)[0]


def verdict(
    program: Program,
    data: Data = "synthetic",
    *,
    optimizer: str = "bootstrap",
    seeds: int = 3,
    lm: LM = "local",
    retriever: AnyRetriever = "bm25",
    corpus: Iterable[Passage | str] | None = None,
    settings: Mapping[str, Any] | None = None,
    equal_cost: bool = True,
    form_too: bool = True,
    metrics: Sequence[str] = HEADLINE,
    margin: float | None = None,
    max_questions: int | None = None,
    limits: Limits | None = None,
    on_message: Callable[[str], None] = print,
    **options: Any,
) -> Verdict:
    """Whether compiling helps: zero-shot, its form repaired, compiled with `seeds` seeds, votes.

    `equal_cost` adds the arms of votes for what compiled costs, `form_too` compiled with the form
    repaired. `margin` is the difference that does not matter. With `max_questions` it looks at more
    and more questions, from `limit` on, until every metric of `metrics` is decided. `limits` are of
    the whole verdict, what earlier attempts spent included; `on_message` gets a line for each thing
    that is done. Ask again to continue.

    Raises:
        StoppedError: a limit was reached before there was a verdict.
        RagbenchError: something the caller can mend.
    """
    from ragbench.experiments.compare.running import run_verdict
    from ragbench.experiments.compare.verdicts import VerdictRequest, verdict_folder
    from ragbench.knobs import resolve

    config = config_of(program, data, lm, retriever, corpus, options)
    compile_config = resolve(CompileConfig, "compile", {"optimizer": optimizer, **(settings or {})})
    request = VerdictRequest(seeds, equal_cost, form_too, tuple(metrics), margin, max_questions)
    with limited(limits or Limits(), verdict_folder(config, compile_config)):
        return run_verdict(config, compile_config, request, on_message=on_message)


def recommend(
    *runs: Run | str | Path, metric: str = "f1", common: bool = False
) -> Advice:
    """Which of the programs of `runs` to use: the cheapest not shown worse than the best mean.

    Raises:
        RagbenchError: the runs share no questions.
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.report.tables import label_runs

    evaluations = [open_run(run).evaluation for run in runs]
    return advise(evaluations, metric, labels=label_runs(evaluations), common=common)


def open_run(folder: Run | str | Path) -> Run:
    """The run in `folder`; reading it writes nothing.

    Raises:
        RunError: it is no run folder.
    """
    return folder if isinstance(folder, Run) else Run(reopen(Path(folder)))
