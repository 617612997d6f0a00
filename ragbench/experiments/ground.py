"""Grounding by a judge: which claims of a program its passages support, as a model sees it.

The claims are those of the cheap rule (`metrics.grounding`): the sentences of the thoughts, and of
the answer. A short answer is put as an answer to its question. The judge labels at most
`MOST_CLAIMS` at once, one label each; a reply with another number of labels, or with a label that
is none, is asked for once more, and then the question is unscored in what it concerns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ragbench.experiments.passes import (
    Asking,
    PassResult,
    Task,
    ask_strictly,
    key_of,
    not_failed,
    run_pass,
)
from ragbench.experiments.records import Record
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.agreement import cohens_kappa
from ragbench.metrics.grounding import claims_of_answer, claims_of_chain, grounded, says_something
from ragbench.programs.base import predict
from ragbench.programs.trace import render
from ragbench.retrievers.base import Passage
from ragbench.signatures.judging import LabelClaims

MOST_CLAIMS = 8
#: Tokens of passages shown with them; later ones are left out, and the cut is counted.
CONTEXT_TOKENS = 8000


@dataclass(frozen=True)
class Group:
    """Claims of one text, and the passages that they are held against."""

    qid: str
    claims: Sequence[str]
    shown: Sequence[str]  # the claims as the judge sees them
    passages: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Grounded:
    """Scores per question and metric, and what the pass came to."""

    scores: Mapping[str, Mapping[str, float | None]]
    summary: Mapping[str, Any]


def ground(folder: Path, records: Sequence[Record], asking: Asking) -> Grounded:
    """The judged chain fidelity and hallucination rate of every answered record.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    answered = not_failed(records)
    chains = [Group(r["qid"], c := claims_of_chain(r), c, r["passages"]) for r in answered]
    answers = [
        Group(r["qid"], claims := claims_of_answer(r), _in_words(r, claims), r["passages"])
        for r in answered
    ]
    labels, result = label_claims(folder, [*chains, *answers], asking)
    scores: dict[str, dict[str, float | None]] = {}
    for record, chain, answer in zip(answered, labels, labels[len(chains) :], strict=False):
        unfounded = _share(answer)
        scores[record["qid"]] = {
            "chain_fidelity_judged": _share(chain),
            "hallucination_rate_judged": None if unfounded is None else 1 - unfounded,
        }
    summary = {"model": asking.lm.model, **summarize_labels([*chains, *answers], labels, result)}
    return Grounded(scores, summary)


def label_claims(
    folder: Path, groups: Sequence[Group], asking: Asking
) -> tuple[list[list[bool | None]], PassResult]:
    """For each claim of each group whether its passages support it; None for unscored.

    What no passage was retrieved for is not supported, and not asked about.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    tasks = {i: list(_tasks(group, asking.lm)) for i, group in enumerate(groups) if group.passages}
    result = run_pass(folder, [task for some in tasks.values() for task in some], asking)
    labels: list[list[bool | None]] = []
    for i, group in enumerate(groups):
        found: list[bool | None] = [] if group.passages else [False] * len(group.claims)
        for number, task in enumerate(tasks.get(i, ())):
            one = result.results.get(task.key)
            n = len(group.claims[number * MOST_CLAIMS :][:MOST_CLAIMS])
            value = one.value if one else None
            found += value if value is not None and len(value) == n else [None] * n
        labels.append(found)
    return labels, result


def summarize_labels(
    groups: Sequence[Group], labels: Sequence[Sequence[bool | None]], result: PassResult
) -> dict[str, Any]:
    """Counts of claims, the agreement with the cheap rule, and spending; JSON-ready."""
    rule = [one for group in groups for one in grounded(group.claims, group.passages)]
    said = [one for group in labels for one in group]
    pairs = [(a, b) for a, b in zip(rule, said, strict=True) if b is not None]
    why = Counter(one.why for one in result.results.values() if one.value is None)
    return {
        "claims": len(said),
        "supported": sum(one is True for one in said),
        "unsupported": sum(one is False for one in said),
        "unscored": sum(one is None for one in said),
        "unscored_because": dict(why.most_common(5)),
        "not_asked": result.left,
        "cut": sum(_is_cut(group.passages) for group in groups if group.claims),
        "rule": {
            "n": len(pairs),
            "same": sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
            "cohen_kappa": cohens_kappa([a for a, _ in pairs], [b for _, b in pairs]),
        },
        "as_if": asdict(result.totals()),
        "billed": asdict(result.billed()),
    }


def _in_words(record: Record, claims: Sequence[str]) -> list[str]:
    return [
        text if says_something(text) else f'The answer to "{record["question"]}" is: {text}'
        for text in claims
    ]


def _share(labels: Sequence[bool | None]) -> float | None:
    known = [label for label in labels if label is not None]
    return sum(known) / len(known) if known and len(known) == len(labels) else None


def _tasks(group: Group, lm: RagbenchLM) -> Iterator[Task]:
    context = _rendered(group.passages, CONTEXT_TOKENS)
    for start in range(0, len(group.shown), MOST_CLAIMS):
        claims = list(group.shown[start : start + MOST_CLAIMS])
        key = key_of("grounding", lm.model, context, claims)
        yield Task(group.qid, "grounding", key, partial(_ask, context, claims, lm))


def _ask(context: Sequence[str], claims: Sequence[str], lm: RagbenchLM) -> list[bool]:
    def wrong(reply: dspy.Prediction) -> str:
        n = len(reply.verdicts)
        return "" if n == len(claims) else "another number of verdicts than of claims"

    reply = ask_strictly(
        predict(LabelClaims),
        lm,
        wrong=wrong,
        context=list(context),
        claims=[f"[{number}] {claim}" for number, claim in enumerate(claims, start=1)],
    )
    return [label == "supported" for label in reply.verdicts]


def _rendered(passages: Sequence[Mapping[str, Any]], max_tokens: int) -> list[str]:
    shown = [Passage(p.get("pid", ""), p["title"], p["text"]) for p in passages]
    return render(shown, max_tokens=max_tokens)


def _is_cut(passages: Sequence[Mapping[str, Any]]) -> bool:
    return _rendered(passages, CONTEXT_TOKENS) != _rendered(passages, 10**9)
