"""How often `ragbench recommend` claims that a router gains, where it does and where it cannot.

    python -m benchmarks.advice --sets 200

Simulated answers of four programs to questions with features that say nothing (null) or say which
of two programs is better (signal). In the null sets programs are alike, or one is better for all
questions; questions are single, or come in clusters that are right or wrong together. Every claim
in a null set is false: at most about 5 % of the sets may have one.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from ragbench.experiments.routers import held_out, shows_gain
from ragbench.metrics import Comparison, compare_scores

Floats = NDArray[np.float64]
Choices = NDArray[np.int64]
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
) -> tuple[Floats, Floats, Choices]:
    """Features, scores and clusters of questions answered right (1) or wrong (0).

    Some questions are harder. With a `signal`, the first program is so much better where a feature
    holds, and the second where it does not.
    """
    rng = np.random.default_rng(seed)
    values = np.column_stack(
        [
            rng.integers(5, 30, questions),
            rng.random(questions) < 0.4,
            rng.integers(1, 5, questions),
            rng.random(questions) < 0.2,
            rng.integers(0, 5, questions),
        ]
    ).astype(np.float64)
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
    return values, scores, clusters


def gain(features: Floats, scores: Floats, clusters: Choices) -> Comparison:
    """The router against the best single program, both held out."""
    single, routed = held_out(features, scores, clusters)
    return compare_scores(single, routed, clusters.tolist())


def main() -> None:
    """Print the share of claims, and the mean held-out gain, by kind of set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    for kind in KINDS:
        lead, signal, cluster = KINDS[kind]
        found = [
            gain(*simulate(seed, given.questions, lead=lead, signal=signal, cluster=cluster))
            for seed in range(given.sets)
        ]
        shown = sum(map(shows_gain, found))
        gains = [each.difference for each in found]
        print(
            f"{kind}: claimed in {shown} of {len(found)} ({shown / len(found):.1%}), mean gain "
            f"{np.mean(gains):+.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
