"""What a program's own index cost, and from how many questions on it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ragbench.experiments.records import RunCard
from ragbench.experiments.runs import Evaluation


@dataclass(frozen=True)
class IndexCost:
    """What an index took in all, as if nothing had been kept; `usd` None: a price is unknown."""

    calls: int
    tokens: int
    usd: float | None


def index_cost(card: RunCard) -> IndexCost | None:
    """The cost of the index in `card`; None where the program has none that an LM makes."""
    calls = card.index.get("index_calls", 0)
    if not calls:
        return None
    return IndexCost(calls, card.index.get("index_tokens", 0), card.index.get("index_usd"))


def whole_cost(evaluation: Evaluation) -> float | None:
    """US dollars of all questions of a run as if uncached, with its index; None where unknown."""
    usd = evaluation.summary.as_if.cost_usd
    index = index_cost(evaluation.card)
    if usd is None or (index is not None and index.usd is None):
        return None
    return float(usd + (index.usd or 0.0 if index else 0.0))


def pays_from(index: float, each: float, other: float) -> int | None:
    """Questions from which `index` and `each` per question are less than `other` per question.

    None where they never are. All three are of one unit, dollars or tokens.
    """
    if each >= other:
        return None
    return math.floor(index / (other - each)) + 1


def index_lines(evaluation: Evaluation, others: Sequence[tuple[str, Evaluation]]) -> list[str]:
    """The index of a run in words, and against each of the `others`, by name, that has none.

    In dollars where all prices are known and something is spent, else in tokens. In the distractor
    setting every question has an index of its own, whose cost is part of the question's.
    """
    index = index_cost(evaluation.card)
    if index is None or not evaluation.summary.n:
        return []
    n = evaluation.summary.n
    whole = whole_cost(evaluation)
    usd = "unknown" if index.usd is None else f"{index.usd:.4f}"
    in_all = "unknown" if whole is None else f"{whole:.4f}"
    lines = [
        f"index: {index.calls:,} calls, {index.tokens:,} tokens, {usd} $; "
        f"the {n} questions with it: {in_all} $"
    ]
    for name, other in others:
        if index_cost(other.card) is not None or not other.summary.n:
            continue
        mine, theirs = _dollars(evaluation), _dollars(other)
        unit, spent = "dollars", index.usd
        if not (mine and theirs and spent):
            unit, spent = "tokens", index.tokens
            mine, theirs = _tokens(evaluation), _tokens(other)
        if evaluation.card.data.setting == "distractor":
            cheaper = mine + spent / n < theirs
            when = f"{'always' if cheaper else 'never'}, for every question has one of its own"
        else:
            from_n = pays_from(spent, mine, theirs)
            when = "never" if from_n is None else f"from {from_n:,} questions on"
        lines.append(f"the index pays against {name}, in {unit}: {when}")
    return lines


def _dollars(evaluation: Evaluation) -> float | None:
    usd = evaluation.summary.as_if.cost_usd
    return None if usd is None else float(usd / evaluation.summary.n)


def _tokens(evaluation: Evaluation) -> float:
    return evaluation.summary.as_if.tokens / evaluation.summary.n
