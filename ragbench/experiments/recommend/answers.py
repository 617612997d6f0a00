"""What several runs know of the same questions: features, scores and spending, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare import clusters_of, columns, shared_questions
from ragbench.experiments.recommend.rules import Table
from ragbench.experiments.recommend.trees import Floats, Splits, make_splits
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import get_metric
from ragbench.programs.routing import FEATURES, SCORE_FEATURES, question_features, score_features
from ragbench.record import Record

#: Searches that score features are taken of, at the most so deep.
_DEEPEST_SEARCH = 100


@dataclass(frozen=True)
class Limits:
    """What a question may take on average; None for no limit. Cost is in US dollars."""

    cost_usd: float | None = None
    calls: float | None = None
    tokens: float | None = None

    def given(self) -> dict[str, float]:
        """The limits that are set, by the metric that measures them."""
        return {name: float(limit) for name, limit in asdict(self).items() if limit is not None}


@dataclass(frozen=True)
class Asked:
    """Runs over the same questions, in one order.

    `spending` `(questions, programs)` by measure; None where it is not known of a question.
    `search_k` is the depth of the searches that the score features are of, None where there are no
    such features.
    """

    runs: Sequence[Evaluation]
    labels: Sequence[str]
    objective: str
    limits: Mapping[str, float]
    #: Question by id, in the order of the table.
    questions: Mapping[str, str]
    table: Table
    splits: Splits
    spending: Mapping[str, Floats | None]
    search_k: int | None
    #: Names of the features that are known of all questions.
    features: Sequence[str] = ()


def gather(
    runs: Sequence[Evaluation],
    objective: str = "f1",
    limits: Limits | None = None,
    *,
    labels: Sequence[str] = (),
    common: bool = False,
) -> Asked:
    """What is known of the questions that all `runs` asked; `labels` are the runs' names.

    Raises:
        UnknownNameError: there is no such metric.
        ConfigError: fewer than two runs, a metric that is not of accuracy, or a limit on what is
            not known of a question.
        CompareError: the runs are over other data or, without `common`, other questions.
    """
    metric = get_metric(objective)
    if not metric.higher_is_better or metric.score_range is None:
        raise ConfigError(f"{objective} is no measure of accuracy; give --objective f1 or em")
    if len(runs) < 2:
        raise ConfigError("advice chooses between programs: give two runs or more")
    qids = shared_questions(runs[0], runs[1], common=common)
    for run in runs[2:]:
        both = {*shared_questions(runs[0], run, common=common)}
        qids = [qid for qid in qids if qid in both]
    scored, rest = columns(runs[:1], runs[1:], objective, qids)
    qids = [qid for qid in qids if qid in scored]
    if not qids:
        raise CompareError("the runs share no question that all of them have a score for")
    shared = runs[0].records.only(qids)
    questions = shared.column(_question)
    scores = np.array([scored[qid] + rest[qid] for qid in qids], dtype=np.float64)
    spending = {name: _spending(runs, qids, name) for name in asdict(Limits())}
    given = (limits or Limits()).given()
    named = clusters_of(shared)
    values, names, search_k = _features(runs, questions)
    splits = make_splits(names, values)
    return Asked(
        runs=runs,
        labels=labels or [run.folder.name for run in runs],
        objective=objective,
        limits=given,
        questions=questions,
        table=Table(
            scores=scores,
            spent=_shares(spending, given, len(qids), len(runs)),
            holds=splits.holds,
            clusters=[named.get(qid, qid) for qid in qids],
        ),
        splits=splits,
        spending=spending,
        search_k=search_k,
        features=names,
    )


def _spending(runs: Sequence[Evaluation], qids: Sequence[str], name: str) -> Floats | None:
    columns = [run.records.only(qids).column(get_metric(name).score) for run in runs]
    rows = [[column[qid] for column in columns] for qid in qids]
    if any(value is None for row in rows for value in row):
        return None
    return np.array(rows, dtype=np.float64)


def _shares(
    spending: Mapping[str, Floats | None], limits: Mapping[str, float], n: int, programs: int
) -> Floats:
    """Spending divided by each limit, `(questions, programs, limits)`."""
    shares = []
    for name, limit in limits.items():
        spent = spending[name]
        if spent is None:
            raise ConfigError(
                f"{name} is not known of every question; leave that limit out, or give a price"
            )
        if spent.mean(axis=0).min() > limit:
            least = float(spent.mean(axis=0).min())
            raise ConfigError(
                f"no program keeps within {name} {limit:g} per question; the cheapest takes "
                f"{least:.4g}"
            )
        shares.append(spent / limit)
    return np.stack(shares, axis=2) if shares else np.zeros((n, programs, 0))


def _features(
    runs: Sequence[Evaluation], questions: Mapping[str, str]
) -> tuple[Floats, list[str], int | None]:
    """The features `(questions, features)` known of all questions, their names, and `search_k`."""
    rows = [question_features(question) for question in questions.values()]
    names = [name for name in FEATURES if name not in SCORE_FEATURES]
    search_k, scores = _searches(runs, list(questions))
    if search_k is not None:
        rows = [{**row, **score_features(own)} for row, own in zip(rows, scores, strict=True)]
        names = [*FEATURES]
    return np.array([[row[name] for name in names] for row in rows]), names, search_k


def _searches(
    runs: Sequence[Evaluation], qids: Sequence[str]
) -> tuple[int | None, list[list[float]]]:
    """Scores of a search for each question's own text, all of one depth, by one retriever."""
    if len({repr(_retriever(run)) for run in runs}) > 1:
        return None, []
    columns = [run.records.only(qids).column(_own_searches) for run in runs]
    searches = [{k: v for column in columns for k, v in column[qid].items()} for qid in qids]
    depths = set.intersection(*({*mine} for mine in searches))
    if not depths:
        return None, []
    depth = min(depths)
    return depth, [mine[depth] for mine in searches]


def _question(record: Record) -> str:
    return record.question


def _own_searches(record: Record) -> dict[int, list[float]]:
    """Depth -> scores of each search for the question itself."""
    return {
        search.k: [score for _, score in search.hits]
        for search in record.searches
        if search.query == record.question and 2 <= search.k <= _DEEPEST_SEARCH
    }


def _retriever(run: Evaluation) -> tuple[object, object]:
    identity = run.card.identity
    return identity.get("retriever"), identity.get("retriever_set")
