"""The policy that an advice comes to."""

from __future__ import annotations

from typing import Any

from ragbench.errors import RagbenchError
from ragbench.experiments.artifacts import question_hash, versions
from ragbench.experiments.recommend.advice import Advice, Arm, Difference
from ragbench.experiments.recommend.conclusion import conclusion
from ragbench.experiments.records import RunCard
from ragbench.programs import PROGRAMS
from ragbench.programs.routing import FORMAT, Candidate, LearnedFrom, Policy

#: What of an identity may differ between the programs that one router runs.
_OWN = frozenset({"program", "set", "program_source", "k"})


def make_policy(advice: Advice) -> Policy:
    """The policy that `advice` recommends, with the evidence for it."""
    asked = advice.asked
    cards = [run.card for run in asked.runs]
    first = cards[0]
    policy = Policy(
        format=FORMAT,
        objective=asked.objective,
        limits=dict(asked.limits),
        programs=[
            _candidate(card, label, run.folder.name)
            for card, label, run in zip(cards, asked.labels, asked.runs, strict=True)
        ],
        rule=advice.rule_used,
        features=list(asked.features),
        search_k=asked.search_k,
        retriever={name: first.identity.get(name) for name in ("retriever", "retriever_set")},
        not_runnable=_not_runnable(cards),
        learned_from=LearnedFrom(
            dataset=first.data.name,
            digest=first.data.digest,
            ids=list(asked.questions),
            hashes=[question_hash(question) for question in asked.questions.values()],
        ),
        seed=advice.seed,
        evidence=_evidence(advice),
        versions=versions(),
    )
    return policy if policy.reads_scores else policy.model_copy(update={"search_k": None})


def _candidate(card: RunCard, label: str, run: str) -> Candidate:
    return Candidate(
        label=label,
        program=card.program,
        set=dict(card.identity.get("set") or {}),
        run=run,
        identity=card.identity,
    )


def _not_runnable(cards: list[RunCard]) -> str:
    """Why no router can run these programs as one; empty where one can."""
    for card in cards:
        try:
            PROGRAMS.get(card.program)
        except RagbenchError:
            return f"{card.system} is no program that can be run here"
        for name, state in (("compiled", "compiled"), ("form", "run with --form"),
                           ("votes", "run with --votes")):  # fmt: skip
            if card.identity.get(name):
                return f"{card.program} is {state}, and a router runs programs as they are"
    shared = [{k: v for k, v in card.identity.items() if k not in _OWN} for card in cards]
    for name in sorted({name for each in shared for name in each}):
        values = [each.get(name) for each in shared]
        if any(value != values[0] for value in values):
            return f"the runs differ in {name}, and a router runs its programs with one"
    return ""


def _evidence(advice: Advice) -> dict[str, Any]:
    return {
        "conclusion": conclusion(advice),
        "questions": len(advice.asked.questions),
        "clusters": advice.clusters,
        "shown": advice.shown,
        "gain": _shown(advice.gain),
        "regret": _shown(advice.regret),
        "programs": [_arm(arm) for arm in advice.programs],
        "held_out": [_arm(arm) for arm in (advice.single, advice.rule, advice.oracle) if arm],
        "rule_learned": advice.rule_learned.model_dump(mode="json"),
    }


def _arm(arm: Arm) -> dict[str, Any]:
    ends = None if arm.interval is None else [arm.interval.low, arm.interval.high]
    return {"name": arm.name, "mean": arm.mean, "interval": ends, "spending": dict(arm.spending)}


def _shown(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    interval = difference.interval
    return {
        "mean": difference.mean,
        "interval": None if interval is None else [interval.low, interval.high],
    }
