"""All questions of a study that the runs at hand say something to."""

from __future__ import annotations

from collections.abc import Sequence

from ragbench.errors import RagbenchError
from ragbench.experiments.recommend import Advice, conclusion, gather, recommend
from ragbench.experiments.report.advice import (
    arm_table,
    held_out_note,
    held_out_table,
    kind_table,
    rule_note,
    rule_table,
)
from ragbench.experiments.report.questions.budgets import budgets
from ragbench.experiments.report.questions.families import families
from ragbench.experiments.report.questions.retrieval import retrieval
from ragbench.experiments.report.questions.section import Named, Section, Titled
from ragbench.experiments.report.tables import grid_of
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import Metric

_LEAD = (
    "Learned from these runs by what is known of a question before it is answered, and tested on "
    "questions that it was not learned from; see `ragbench recommend`."
)


def answers(runs: Sequence[Evaluation], labels: Sequence[str], metric: Metric) -> list[Section]:
    """A section for each question that `runs` have something to say to, but for `advice`."""
    named = [Named(label, run) for label, run in zip(labels, runs, strict=True)]
    if not named:
        return []
    makers = [families, retrieval, budgets]
    sections = [make(named, metric) for make in makers]
    return [section for section in sections if section]


def advice(runs: Sequence[Evaluation], labels: Sequence[str], metric: Metric) -> Section | None:
    """Which architecture when, learned in seconds; None where the runs share no questions."""
    try:
        asked = gather(runs, metric.name, labels=labels, common=True)
    except RagbenchError:
        return None
    advised = recommend(asked)
    lead = f"Over the {len(asked.questions)} questions that all runs have. {_LEAD}"
    title = "When which architecture"
    return Section("advice", title, lead, _tables(advised), conclusion(advised))


def _tables(advice: Advice) -> list[Titled]:
    objective = advice.asked.objective
    tables = [Titled("advice_programs", "Programs", grid_of(arm_table(advice.programs, objective)))]
    if advice.gain is not None:
        held_out = grid_of(held_out_table(advice))
        rule = grid_of(rule_table(advice))
        tables.append(Titled("advice_held_out", "Held out", held_out, held_out_note(advice)))
        tables.append(Titled("advice_rule", "Rule", rule, rule_note(advice)))
    kinds = grid_of(kind_table(advice))
    return [*tables, Titled("advice_kinds", "By predicted kind of question", kinds)]
