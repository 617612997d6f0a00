"""Measures how often corrected and plain intervals of a judge's scores hold the true share.

    python -m benchmarks.judge_of_claims [RUNS]

Simulated: a judge that catches and passes so many of 150 false and 150 true claims, and of the
claims of so many questions, of which so large a share is false.
"""

import random
import sys
from itertools import product
from math import sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ragbench.metrics import corrected_share

LABELLED = 150


def coverage(questions: int, share: float, caught: float, passed: float, runs: int) -> list[float]:
    """How often the corrected and the plain 95 % interval hold `share`."""
    dice = random.Random(0)

    def drawn(n: int, rate: float) -> int:
        return sum(dice.random() < rate for _ in range(n))

    hits = [0, 0]
    for _ in range(runs):
        false, true = (drawn(LABELLED, caught), LABELLED), (drawn(LABELLED, passed), LABELLED)
        wrong = [dice.random() < share for _ in range(questions)]
        said = [float(dice.random() < (caught if one else 1 - passed)) for one in wrong]
        found, mean = corrected_share(said, false, true), sum(said) / questions
        hits[0] += found is None or found[1].low <= share <= found[1].high
        hits[1] += abs(mean - share) <= 1.96 * sqrt(mean * (1 - mean) / questions)
    return [hit / runs for hit in hits]


def main(runs: int = 4000) -> None:
    """Print the coverage over questions, shares and judges."""
    rows = []
    print("questions  share  caught  passed  corrected  plain")
    for questions, share, (caught, passed) in product(
        (20, 100, 300), (0.02, 0.1, 0.3, 0.6), ((0.95, 0.97), (0.8, 0.9), (0.6, 0.8))
    ):
        rows.append(coverage(questions, share, caught, passed, runs))
        ours, plain = rows[-1]
        print(f"{questions:9}  {share:5}  {caught:6}  {passed:6}  {ours:9.3f}  {plain:5.3f}")
    for name, each in zip(("corrected", "plain"), zip(*rows, strict=True), strict=True):
        print(f"{name}: {min(each):.3f} to {max(each):.3f} in {len(each)} cases")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
