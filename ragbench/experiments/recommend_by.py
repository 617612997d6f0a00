"""Advice on which program to use for each kind of question."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiments.recommend import Advice, advise
from ragbench.experiments.runs.summary import Evaluation
from ragbench.metrics import GROUPINGS

#: Name of a grouping on the command line -> the grouping of records.
BY = {"type": "qtype", "hops": "hops"}


@dataclass(frozen=True)
class GroupAdvice:
    """The advice for one group of questions, or None and the `reason` why there is none."""

    group: str
    questions: int
    advice: Advice | None
    reason: str = ""


def advise_by(
    runs: Sequence[Sequence[Evaluation]], by: str, metric: str = "f1", **options: Any
) -> list[GroupAdvice]:
    """Recommend a program for each group of questions.

    Args:
        runs: The runs of each program, as `advise` takes them.
        by: `type` or `hops`.
        metric: Metric of accuracy.
        **options: Further arguments of `advise`.

    Returns:
        One entry for each group, sorted by its name. The tests of each group are a family.

    Raises:
        ConfigError: No question has a type, or a number of hops.
    """
    groups = _groups(runs, by)
    if not groups:
        raise ConfigError(f"--by {by}: no question of these runs has one; leave --by out")
    advice = []
    for name in sorted(groups):
        parts = []
        for arm in runs:
            parts.append([_part(run, groups[name]) for run in arm])
        try:
            entry = GroupAdvice(name, len(groups[name]), advise(parts, metric, **options))
        except RagbenchError as error:
            entry = GroupAdvice(name, len(groups[name]), None, str(error))
        advice.append(entry)
    return advice


def _groups(runs: Sequence[Sequence[Evaluation]], by: str) -> dict[str, set[str]]:
    """Return the question ids of each group."""
    group_of = GROUPINGS[BY[by]]
    groups: dict[str, set[str]] = {}
    for run in chain.from_iterable(runs):
        for qid, group in run.records.column(group_of).items():
            if group is not None:
                groups.setdefault(str(group), set()).add(qid)
    return groups


def _part(run: Evaluation, qids: set[str]) -> Evaluation:
    """Return the run with the records of these questions only."""
    kept = [qid for qid in run.records if qid in qids]
    return Evaluation(run.run, run.records.only(kept))
