"""Asks a program one question and makes its record, whatever happens.

What went wrong is filed by the boundary that failed.

    the question
    ├── limit        a limit of the run or of the question refused its next call
    ├── provider     the LM's server: refused, timed out, out of quota, context too long
    ├── parse        a reply that no adapter could read
    ├── retriever    a search: an index, or a server of embeddings or rerankings
    ├── tool         a tool that the model used: page, chunk, sandbox
    └── program      anything else that left `forward`: a defect of ours or of a third party

The class of the error decides where it says enough, else the innermost `crossing` that it passed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import dspy
from dspy import AdapterParseError, CodeInterpreterError, LMError

from ragbench.context import current, use
from ragbench.errors import DataError, MissingExtraError
from ragbench.experiments.runs.summary import score_record
from ragbench.ledger import open_ledger
from ragbench.lms.calls import CallRefusedError, question_time, stopped_by
from ragbench.logs import fields, get
from ragbench.own_code import contained, message_of
from ragbench.programs.core import done_so_far
from ragbench.record import CUT_OFF, Call, Fact, Failure, Ledger, Record, ShownPassage
from ragbench.redact import redact
from ragbench.retrievers import Passage

_log = get(__name__)

Alignment = Mapping[str, Sequence[Fact]]

_EXAMPLE_FIELDS = frozenset(
    {"qid", "question", "answers", "qtype", "hops", "support", "gold_pids", "decomposition"}
)

Boundary = Literal["limit", "provider", "parse", "retriever", "tool", "program"]
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)

#: Classes of error that name their boundary; the first that fits counts.
_BY_CLASS: tuple[tuple[type[BaseException], Boundary], ...] = (
    (CallRefusedError, "limit"),
    (LMError, "provider"),
    (AdapterParseError, "parse"),
    (CodeInterpreterError, "tool"),
    (DataError, "retriever"),
)
_LONGEST = 2000


def ask(
    program: dspy.Module,
    example: dspy.Example,
    *,
    also: Callable[[Call], None] | None = None,
    keep: Callable[[str], str] | None = None,
) -> Record:
    """The scored record of `program` on `example`; an error becomes its failure.

    `also` gets every call as it ends; `keep` stores a text and gives its id.

    Raises:
        MissingExtraError: the program, or what it searches, needs a package that is not installed.
    """
    prediction, failure = None, None
    with open_ledger(also, keep) as ledger, use(replace(current(), qid=example.qid), trace=None):
        _log.info("question started")
        start = time.perf_counter()
        try:
            with question_time(), contained("the program"):
                prediction = program(question=example.question)
        except MissingExtraError:  # of the installation, not of the question
            raise
        except Exception as error:  # failures are data; only this place catches them all
            failure = classify(error)
            prediction = done_so_far(error)
            if not ledger.refused:  # that is no failure of the question
                _log.warning("question failed", exc_info=True, extra=fields(failure=failure.name))
        latency = time.perf_counter() - start
    if ledger.refused:  # also where the program went on without the call that was refused
        failure = Failure("limit", CUT_OFF, f"stopped by {stopped_by() or 'an LM that is down'}")
    corpus = getattr(getattr(program, "retriever", None), "corpus", None)
    record = make_record(
        example,
        prediction,
        ledger,
        latency_s=latency,
        failure=failure,
        alignment=getattr(corpus, "alignment", None),
    )
    record = replace(record, scores=score_record(record))
    spent = record.ledger.as_if
    told = fields(
        scores=record.scores,
        stop_reason=record.stop_reason,
        calls=spent.calls,
        tokens=spent.tokens,
        seconds=record.latency_s,
    )
    with use(replace(current(), qid=example.qid)):
        _log.info("question ended", extra=told)
    return record


def classify(error: BaseException) -> Failure:
    """The failure that `error` is."""
    marked = getattr(error, "ragbench_boundary", None)
    boundary = next(
        (boundary for kind, boundary in _BY_CLASS if isinstance(error, kind)),
        marked if marked in BOUNDARIES else "program",
    )
    return Failure(boundary, type(error).__name__, redact(message_of(error))[:_LONGEST])


def make_record(
    example: dspy.Example,
    prediction: dspy.Prediction | None,
    ledger: Ledger,
    *,
    latency_s: float,
    failure: Failure | None = None,
    alignment: Alignment | None = None,
) -> Record:
    """The record of one question, without scores.

    `alignment` says which sentences of the paragraphs each chunk of the corpus holds. `prediction`
    of a failed question holds what it did before it failed, if that is known. `latency_s` is wall
    time; the record adds the time that the cache saved.
    """
    if prediction is None:
        nothing: dict[str, Any] = {"steps": [], "searches": [], "passages": [], "counts": {}}
        prediction = dspy.Prediction(answer=None, stop_reason=None, **nothing)
    return Record(
        qid=example.qid,
        question=example.question,
        answers=list(example.answers),
        qtype=example.get("qtype", ""),
        hops=example.get("hops"),
        support=[tuple(pair) for pair in example.get("support", [])],
        gold_pids=list(example.get("gold_pids", [])),
        decomposition=list(example.get("decomposition", [])),
        extra={k: _plain(v) for k, v in example.items() if k not in _EXAMPLE_FIELDS},
        ledger=Ledger(list(ledger.calls), replace(ledger.path)),
        latency_s=round(latency_s + ledger.path.cached_s, 6),
        failure=failure,
        scores={},
        answer=None if failure else str(prediction.answer),
        stop_reason=prediction.stop_reason,
        steps=list(prediction.steps),
        searches=list(prediction.searches),
        passages=[_passage(passage, alignment or {}) for passage in prediction.passages],
        counts=dict(sorted(prediction.counts.items())),
        citations=_plain(prediction.get("citations")),
        plan=_plain(prediction.get("plan")),
        facts=_plain(prediction.get("facts")),
        tree=_plain(prediction.get("tree")),
    )


def _passage(passage: Passage, alignment: Alignment) -> ShownPassage:
    holds = alignment.get(passage.pid)
    return ShownPassage(
        passage.pid,
        passage.title,
        passage.text,
        tuple(passage.sentences),
        None if holds is None else tuple(holds),
    )


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
