"""Races of twelve simulated programs: what they cost, and how often the best program is lost.

    python -m benchmarks.races [--races 400]

A race is compared with the full table: every program over every question. Scores are right or
wrong, F1-like or clustered by document; difficulty is shared by the programs as `rho` says; failed
questions score 0. "Lost" counts races that end without the best program; with `min_gain`, without
one that scores within `min_gain` of the best. Seeds are fixed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from ragbench.experiments.choose.racing import Race, Rule

Floats = NDArray[np.float64]

QUESTIONS = 1000
BLOCK = 20
SPREAD = (0.25, 0.3, 0.33, 0.35, 0.38, 0.4, 0.42, 0.45, 0.5, 0.52, 0.55, 0.62)
TWO_CLOSE = (0.2, 0.25, 0.3, 0.3, 0.35, 0.35, 0.4, 0.4, 0.45, 0.5, 0.58, 0.6)
ONE_CLEAR = (0.3,) * 11 + (0.6,)
EQUAL = (0.45,) * 12


@dataclass(frozen=True)
class Shape:
    """Programs over questions: their means, shared difficulty, clusters, failures, costs."""

    name: str
    means: tuple[float, ...]
    rho: float = 0.3
    cluster_sizes: tuple[int, ...] = (1,)
    partial: bool = False
    failures: float = 0.0
    dear_is_better: bool = True
    document_failures: float = 0.0


SHAPES = (
    Shape("spread, rho .3", SPREAD),
    Shape("spread, rho .6", SPREAD, rho=0.6),
    Shape("spread, partial scores", SPREAD, partial=True),
    Shape("spread, 5 % failures", SPREAD, failures=0.05),
    Shape("spread, clusters of 5", SPREAD, cluster_sizes=(5,)),
    Shape("spread, clusters of 1 to 10", SPREAD, cluster_sizes=(1, 1, 2, 3, 10)),
    Shape("spread, dear is worse", SPREAD, dear_is_better=False),
    Shape("two close, rho .3", TWO_CLOSE),
    Shape("two close, rho .6", TWO_CLOSE, rho=0.6),
    Shape("two close, clusters of 5", TWO_CLOSE, cluster_sizes=(5,)),
    Shape("two close, partial scores", TWO_CLOSE, partial=True),
    Shape("one clear, rho .3", ONE_CLEAR),
    Shape("one clear, rho .6", ONE_CLEAR, rho=0.6),
    Shape("one clear, partial scores", ONE_CLEAR, partial=True),
    Shape("one clear, clusters of 5", ONE_CLEAR, cluster_sizes=(5,)),
    Shape("one clear, 5 % failures", ONE_CLEAR, failures=0.05),
    Shape("a hair apart", tuple(0.45 + 0.005 * place for place in range(12))),
    Shape("documents fail whole, of 10", TWO_CLOSE, cluster_sizes=(10,), document_failures=0.1),
    Shape("documents fail whole, of 40", TWO_CLOSE, cluster_sizes=(40,), document_failures=0.1),
    Shape("equal", EQUAL),
)


def draw(shape: Shape, rng: np.random.Generator) -> tuple[Floats, list[int]]:
    """Returns the scores (programs, questions), and the cluster of each question."""
    clusters: list[int] = []
    while len(clusters) < QUESTIONS:
        size = int(rng.choice(shape.cluster_sizes))
        clusters += [len(set(clusters))] * min(size, QUESTIONS - len(clusters))
    means = np.array(shape.means)
    count = len(means)
    documents = clusters[-1] + 1
    shared = np.sqrt(shape.rho / 2) * rng.standard_normal((1, QUESTIONS))
    by_document = np.sqrt(shape.rho / 2) * rng.standard_normal((1, documents))
    own = np.sqrt(1 - shape.rho) * rng.standard_normal((count, QUESTIONS))
    latent = shared + by_document[:, clusters] + own
    chance = 1 - norm.cdf(latent)
    reach = (1 - shape.failures) * (1 - shape.document_failures)
    level = np.minimum(means / reach, 1)[:, None]
    if shape.partial:
        scores = np.clip(level + 0.35 * norm.ppf(np.clip(chance, 1e-6, 1 - 1e-6)), 0, 1)
        scores += level - scores.mean(axis=1, keepdims=True)
        scores = np.clip(scores, 0, 1)
    else:
        scores = (chance > 1 - level).astype(np.float64)
    scores *= rng.random(scores.shape) >= shape.failures
    kept = rng.random((count, documents)) >= shape.document_failures
    return scores * kept[:, clusters], clusters


def run(scores: Floats, clusters: Sequence[int], costs: Floats, rule: Rule) -> tuple[Race, float]:
    """Returns the race when it ended, and its share of the calls of the full table."""
    count, questions = scores.shape
    race = Race(count, rule, largest=max(np.bincount(clusters)))
    asked = 0
    start = 0
    while start < questions and not race.over:
        end = min(start + BLOCK, questions)
        while end < questions and clusters[end] == clusters[end - 1]:
            end += 1
        block = scores[:, start:end].copy()
        out = [program for program in range(count) if program not in race.running]
        block[out] = np.nan
        asked += len(race.running) * (end - start)
        so_far = np.repeat(costs[:, None], end, axis=1)
        race.look(block, so_far, np.zeros_like(block), clusters[start:end])
        start = end
    return race, asked / (count * questions)


def report(shape: Shape, rule: Rule, races: int) -> str:
    """Returns the line of `shape` under `rule`."""
    count = len(shape.means)
    means = np.array(shape.means)
    order = np.arange(count) if shape.dear_is_better else np.arange(count)[::-1]
    costs = (1.0 + order).astype(np.float64)
    lost = 0
    shares = []
    remaining = []
    for seed in range(races):
        rng = np.random.default_rng([seed, len(shape.name)])
        race, share = run(*draw(shape, rng), costs, rule)
        shares.append(share)
        remaining.append(len(race.running))
        good = means >= means.max() - max(rule.min_gain, 1e-9)
        lost += not any(good[program] for program in race.running)
    return (
        f"{shape.name:28s} min_gain {rule.min_gain:.2f}  calls {np.mean(shares):.2f}  "
        f"left {np.mean(remaining):4.1f}  best lost {lost / races:.3f}"
    )


def main() -> None:
    """Prints a line for each shape and each minimum gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--races", type=int, default=400)
    parser.add_argument("--min-gain", type=float, nargs="*", default=[0.0, 0.05, 0.1])
    options = parser.parse_args()
    for min_gain in options.min_gain:
        for shape in SHAPES:
            print(report(shape, Rule(min_gain=min_gain), options.races), flush=True)


if __name__ == "__main__":
    main()
