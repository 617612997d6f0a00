"""Measures how often verdicts are wrong: false differences, and power against its estimate.

Arms are simulated question by question: each question has its own chance of a right answer (many
near 0 or 1), and a wrong answer often earns a partial F1. Identical arms must show a difference in
at most 5 % of families of comparisons; a true difference must be shown as often as
`ragbench.metrics.power` says, within 5 points.

    python benchmarks/aa_calibration.py [--runs 2000] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ragbench.metrics.power import power
from ragbench.metrics.stats import Comparison, compare_scores, correct

Floats = NDArray[np.float64]
SIZES = (20, 40, 100, 300)


def chances(n: int, rng: np.random.Generator) -> Floats:
    """The chance of a right answer for each of `n` questions."""
    return np.asarray(rng.beta(0.5, 0.8, size=n), dtype=np.float64)


def answers(chance: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """EM and F1 of one arm."""
    right = rng.random(len(chance)) < chance
    touched = rng.random(len(chance)) < 0.35
    partial = np.round(rng.beta(2, 2, size=len(chance)), 2)
    return right.astype(float), np.where(right, 1.0, np.where(touched, partial, 0.0))


def lifted(chance: Floats, by: float) -> Floats:
    """Chances with `by` added to their log odds."""
    odds = np.exp(by) * chance / np.maximum(1 - chance, 1e-12)
    return np.asarray(odds / (1 + odds), dtype=np.float64)


def by_qid(scores: Floats) -> dict[str, float]:
    """Scores under made-up question ids."""
    return {f"q{i}": float(score) for i, score in enumerate(scores)}


def family(n: int, by: float, seed: int) -> list[Comparison]:
    """EM and F1 of two arms over `n` questions, corrected as one family."""
    rng = np.random.default_rng(seed)
    chance = chances(n, rng)
    a, b = answers(chance, rng), answers(lifted(chance, by), rng)
    pairs = zip(a, b, strict=True)
    return correct(
        [compare_scores(by_qid(x), by_qid(y), seed=seed, n_resamples=2_000) for x, y in pairs]
    )


def claims(comparison: Comparison) -> bool:
    """Whether the verdict is a difference."""
    return comparison.verdict.startswith(("better", "worse"))


def false_differences(runs: int, seed: int) -> Iterator[tuple[int, int, int, int]]:
    """Per size: size, families, families with a false claim, single tests with p <= 0.05."""
    for size in SIZES:
        families = [family(size, 0.0, seed + size * 100_000 + i) for i in range(runs // len(SIZES))]
        wrong = sum(any(claims(c) for c in found) for found in families)
        single = sum(c.p <= 0.05 for found in families for c in found)
        yield size, len(families), wrong, single


def power_check(by: float, n: int, runs: int, seed: int) -> tuple[float, float, float]:
    """True F1 difference, the printed power, and the share of simulated verdicts that show it."""
    rng = np.random.default_rng(seed)
    chance = chances(400_000, rng)
    d = answers(lifted(chance, by), rng)[1] - answers(chance, rng)[1]
    shown = 0
    for i in range(runs):
        rng = np.random.default_rng(seed + 1 + i)
        chance = chances(n, rng)
        a, b = answers(chance, rng)[1], answers(lifted(chance, by), rng)[1]
        found = compare_scores(by_qid(a), by_qid(b), seed=i, n_resamples=2_000)
        shown += found.verdict.startswith("better")
    return float(d.mean()), power(float(d.mean()), float(d.std()), n), shown / runs


def share(hits: int, runs: int) -> str:
    """A rate with its exact 95 % interval."""
    interval = stats.binomtest(hits, runs).proportion_ci()
    return f"{hits / runs:6.2%}  [{interval.low:.2%}, {interval.high:.2%}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("identical arms: families (EM and F1, Holm) with a false difference; target <= 5 %")
    rows = list(false_differences(options.runs, options.seed))
    for size, families, wrong, single in rows:
        alone = share(single, 2 * families)
        print(f"  n={size:<4d} {share(wrong, families)}   single tests, uncorrected {alone}")
    total = sum(row[1] for row in rows)
    print(f"  all    {share(sum(row[2] for row in rows), total)}   of {total} families")
    print("true difference: printed power against the share of verdicts that show it")
    for by, n in ((0.4, 100), (0.6, 100), (0.4, 300), (0.6, 300), (1.0, 60)):
        true, printed, shown = power_check(by, n, options.runs // 2, options.seed)
        print(f"  d={true:.3f} n={n:<4d} printed {printed:6.1%}  simulated {shown:6.1%}")


if __name__ == "__main__":
    main()
