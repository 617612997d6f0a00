"""How often `ragbench recommend` claims that a router gains, where it does and where it cannot.

    python benchmarks/advice.py --sets 200

Simulated answers of four programs to questions with features that say nothing (null) or say which
of two programs is better (signal). In the null sets programs are alike, or one is better for all
questions; questions are single, or come in clusters that are right or wrong together. Every claim
in a null set is false: at most about 5 % of the sets may have one.
"""

from __future__ import annotations

import argparse

import numpy as np

from ragbench.experiments.recommend import Advice, Asked, recommend
from ragbench.experiments.recommend.rules import Table
from ragbench.experiments.recommend.trees import make_splits

PROGRAMS = 4
#: Kind of set -> best program's lead over the others, gain of the right choice, cluster size.
KINDS = {
    "null, programs alike": (0.0, 0.0, 1),
    "null, one program better": (0.2, 0.0, 1),
    "null, clusters of 4": (0.0, 0.0, 4),
    "signal of 0.10": (0.0, 0.10, 1),
    "signal of 0.20": (0.0, 0.20, 1),
}


def simulate(
    seed: int, questions: int, *, lead: float, signal: float, cluster: int, programs: int = PROGRAMS
) -> Asked:
    """Answers that are right (1) or wrong (0), harder and easier questions among them.

    With a `signal`, the first program is so much better where a feature holds, and the second
    where it does not.
    """
    rng = np.random.default_rng(seed)
    values = np.column_stack(
        [
            rng.integers(5, 30, questions),
            rng.random(questions) < 0.4,
            rng.integers(1, 5, questions),
            rng.normal(10, 3, questions),
            rng.random(questions),
        ]
    ).astype(np.float64)
    names = ("words", "comparison", "hops", "top_score", "score_fall")
    clusters = np.arange(questions) // cluster
    difficulty = rng.normal(0, 0.15, questions)[clusters]
    chance = np.full((questions, programs), 0.5) + difficulty[:, None]
    chance[:, 0] += lead
    turned = np.where(values[:, 1] > 0, signal, -signal)
    chance[:, 0] += turned
    chance[:, 1] -= turned
    # Within a cluster a program is right or wrong as it was on the first question, mostly.
    luck = rng.random((questions, programs))
    same = rng.random((questions, programs)) < 0.7
    luck = np.where(same, luck[clusters * cluster], luck)
    scores = (luck < chance).astype(np.float64)
    splits = make_splits(names, values)
    table = Table(scores, np.zeros((questions, programs, 0)), splits.holds, clusters.tolist())
    labels = [f"program {number}" for number in range(programs)]
    return Asked((), labels, "em", {}, {}, table, splits, {}, None)


def claims(kind: str, sets: int, questions: int) -> list[Advice]:
    """The advice on each simulated set of one kind."""
    lead, signal, cluster = KINDS[kind]
    return [
        recommend(simulate(seed, questions, lead=lead, signal=signal, cluster=cluster))
        for seed in range(sets)
    ]


def main() -> None:
    """Print the share of claims, and the mean held-out gain, by kind of set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    for kind in KINDS:
        found = claims(kind, given.sets, given.questions)
        shown = sum(advice.shown for advice in found)
        gains = [advice.gain.mean for advice in found if advice.gain]
        print(
            f"{kind}: claimed in {shown} of {len(found)} ({shown / len(found):.1%}), mean gain "
            f"{np.mean(gains):+.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
