"""Measures how well a judge tells true claims from false ones, and how its correction covers.

    python -m benchmarks.judge_of_claims                                    # coverage, simulated
    python -m benchmarks.judge_of_claims --judge openai/gpt-5-mini --out /tmp/claims

With --judge the labelled claims are asked about. The replies are kept in
--out, so that the same command continues.
"""

import os
import random
import sys
from collections import Counter
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from ragbench.cli.options import asking_options, make_asking
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.grounding import label_claims, labelled_claims
from ragbench.metrics import JudgeErrors, corrected_share

#: True claims, and as many false ones, that the judge is measured by.
LABELLED = 150


def coverage(questions: int, share: float, caught: float, passed: float, runs: int) -> list[float]:
    """How often the corrected and the plain 95 % interval hold `share`."""
    dice = random.Random(0)

    def drawn(n: int, rate: float) -> int:
        return sum(dice.random() < rate for _ in range(n))

    hits = [0, 0]
    for _ in range(runs):
        errors = JudgeErrors(drawn(LABELLED, caught), LABELLED, drawn(LABELLED, passed), LABELLED)
        said = [
            float(dice.random() < (caught if dice.random() < share else 1 - passed))
            for _ in range(questions)
        ]
        found, mean = corrected_share(said, errors), sum(said) / questions
        half = 1.96 * sqrt(mean * (1 - mean) / questions)
        hits[0] += found is None or found.low <= share <= found.high
        hits[1] += abs(mean - share) <= half
    return [hit / runs for hit in hits]


def print_coverage(runs: int) -> None:
    """The coverage over questions, shares and judges."""
    print("questions  share  caught  passed  corrected  uncorrected")
    for questions, share, (caught, passed) in product(
        (20, 100, 300), (0.02, 0.1, 0.3, 0.6), ((0.95, 0.97), (0.8, 0.9), (0.6, 0.8))
    ):
        ours, plain = coverage(questions, share, caught, passed, runs)
        print(f"{questions:9}  {share:5}  {caught:6}  {passed:6}  {ours:9.3f}  {plain:11.3f}")


def print_judge(out: Path, asking: Asking, n: int) -> None:
    """How often the judge is right, by kind of claim."""
    made = labelled_claims(n)
    labels, _ = label_claims(out, made, asking)
    right: Counter[str] = Counter()
    every: Counter[str] = Counter()
    kind: str
    for one, said in zip(made, labels, strict=True):
        for kind, judged in zip(one.kinds, said, strict=True):
            every[kind] += 1
            right[kind] += judged is (kind == "true")
    print("claims     n  judge right")
    for kind, count in every.most_common():
        print(f"{kind:9} {count:3}  {right[kind]:11}")


@click.command()
@click.option("--judge", metavar="LM", help="LM that labels the claims.")
@click.option("--claims", type=int, default=2 * LABELLED)
@click.option("--runs", type=int, default=1000, help="Simulated runs of each case.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/judge_of_claims"))
@asking_options
def main(judge: str | None, claims: int, runs: int, out: Path, **options: Any) -> None:
    """Print the judge's errors, or without one the coverage of the correction."""
    asking = make_asking(options, judge)
    if asking is None:
        print_coverage(runs)
        return
    out.mkdir(parents=True, exist_ok=True)
    print_judge(out, asking, claims)


if __name__ == "__main__":
    main()
