"""Breaks metrics, statistics and verdicts one line at a time, and says which breaks no test sees.

Each mutant replaces one text in one file of a copy of the package and runs the tests named beside
it. A survivor is a line whose meaning no test holds.

    python benchmarks/mutants.py [--only WORD] [--jobs 1]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
STATS, COMPARE = "ragbench/metrics/stats/", "ragbench/experiments/compare/"
ESTIMATES = ("tests/metrics/test_estimates.py",)
BOTH = (*ESTIMATES, "tests/metrics/test_comparison.py")
DESIGN = ("tests/experiments/test_design.py",)
ANSWER = ("tests/metrics/test_answer.py", "tests/conformance/test_answer_definitions.py")
COSTS = ("tests/lms/test_costs.py",)


class Mutant(NamedTuple):
    """`old` in `file` becomes `new`, which `tests` must see."""

    file: str
    old: str
    new: str
    tests: Sequence[str]


MUTANTS = [
    Mutant(STATS + "estimates.py", "self.low > 0 or", "self.low >= 0 or", ESTIMATES),
    Mutant(STATS + "estimates.py", "self.df, (1 + level) / 2", "self.df, level", ESTIMATES),
    Mutant(STATS + "estimates.py", "max(low, self.bounds[0])", "low", ESTIMATES),
    Mutant(STATS + "estimates.py", "2 * scipy.special.stdtr(", "scipy.special.stdtr(", ESTIMATES),
    Mutant(STATS + "estimates.py", "abs(self.centre - null)", "abs(self.centre)", ESTIMATES),
    Mutant(STATS + "estimates.py", "difference * self.shrinkage", "difference", ESTIMATES),
    Mutant(STATS + "estimates.py", "self.standard_error / self.shrinkage", "self.standard_error",
           ESTIMATES),
    Mutant(STATS + "estimates.py", "len(every) / (len(every) - 1)", "1.0", ESTIMATES),
    Mutant(STATS + "estimates.py", "variance = max(robust, plain)", "variance = robust",
           ESTIMATES),
    Mutant(STATS + "estimates.py", "variance = max(robust, plain)", "variance = plain", ESTIMATES),
    Mutant(STATS + "estimates.py", "weight * ends.sum()", "ends.sum()", ESTIMATES),
    Mutant(STATS + "estimates.py", "return len(x) / len(sizes)", "return 1.0", ESTIMATES),
    Mutant(STATS + "estimates.py", "both.var(ddof=1)", "both.var(ddof=0)", ESTIMATES),
    Mutant(STATS + "estimates.py", "(all_sizes**2).sum()) - 1)", "(all_sizes**2).sum()))",
           ESTIMATES),
    Mutant(STATS + "estimates.py", "return (-width, width)", "return (0.0, width)", ESTIMATES),
    Mutant(STATS + "betting.py", "_BOLDNESS / means", "1.0 / means", ESTIMATES),
    Mutant(STATS + "betting.py", "[[0.25], spread[:-1]]", "[spread]", ESTIMATES),
    Mutant(STATS + "betting.py", "2 * math.log(2 / alpha)", "math.log(2 / alpha)", ESTIMATES),
    Mutant(STATS + "betting.py", "np.maximum(up, down) - math.log(2)", "np.maximum(up, down)",
           ESTIMATES),
    Mutant(STATS + "betting.py", "self.log_down) - math.log(2)", "self.log_down)", ESTIMATES),
    Mutant(STATS + "betting.py", "_capital(-x, 0.0)", "_capital(x, 0.0)", ESTIMATES),
    Mutant(STATS + "betting.py", "limit = math.log(2 / alpha)", "limit = math.log(1 / alpha)",
           ESTIMATES),
    Mutant(STATS + "betting.py", "- math.log(len(_BETS))", "", ESTIMATES),
    Mutant(STATS + "betting.py", "/ (1 + mean)", "/ 1", ESTIMATES),
    Mutant(STATS + "betting.py", "low * reach, high * reach", "low, high", ESTIMATES),
    Mutant(STATS + "seeds.py", "LEAST_SEEDS = 3", "LEAST_SEEDS = 2", ESTIMATES),
    Mutant(STATS + "seeds.py", "_SHARE_OF_DF = 0.6", "_SHARE_OF_DF = 1.0", ESTIMATES),
    Mutant(STATS + "seeds.py", "own + of_seeds)", "own)", ESTIMATES),
    Mutant(STATS + "seeds.py", ".var(ddof=1)) / len(arm)", ".var(ddof=1))", ESTIMATES),
    Mutant(STATS + "seeds.py", "of_questions - residual) / seeds", "of_questions) / seeds",
           ESTIMATES),
    Mutant(STATS + "seeds.py", "(of_seeds - residual) / n", "of_seeds / seeds", ESTIMATES),
    Mutant(STATS + "power.py", "least_shift(df: float, *, alpha: float = ALPHA, wanted: float"
           " = POWER", "least_shift(df: float, *, alpha: float = ALPHA, wanted: float = 0.5",
           ESTIMATES),
    Mutant(STATS + "power.py", "1 - alpha / 2, df", "1 - alpha, df", ESTIMATES),
    Mutant(STATS + "power.py", "math.sqrt(n) / sd, n - 1", "math.sqrt(n) / sd, n", BOTH),
    Mutant(STATS + "selection.py", "** (candidates - 1)", "** candidates", ESTIMATES),
    Mutant(STATS + "selection.py", "x[int((x @ counts).argmax()), left]", "x.max(axis=0)[left]",
           ESTIMATES),
    Mutant(STATS + "significance.py", "(len(p_values) - rank)", "len(p_values)", BOTH),
    Mutant(STATS + "significance.py", "(extreme + 1) / (n + 1)", "extreme / n / 2", BOTH),
    Mutant(STATS + "significance.py", "int((d > 0).sum()), len(d)",
           "int((d > 0).sum()), len(d) + 1", BOTH),
    Mutant(STATS + "significance.py", "left & ~right", "left", BOTH),
    Mutant(STATS + "comparison.py", "alpha / family", "alpha", BOTH),
    Mutant(STATS + "comparison.py", "p <= alpha and", "p <= 2 * alpha and", BOTH),
    Mutant(STATS + "comparison.py", "(c.difference > 0) == c.higher_is_better", "c.difference > 0",
           BOTH),
    Mutant(STATS + "comparison.py", "and c.interval.high < c.margin", "", BOTH),
    Mutant(STATS + "comparison.py", "right.mean(axis=0) - left.mean(axis=0)",
           "left.mean(axis=0) - right.mean(axis=0)", BOTH),
    Mutant(STATS + "comparison.py", "scale = len(units) / len(d)", "scale = 1.0", BOTH),
    Mutant(STATS + "comparison.py", "max(c.n_needed, c.n + 1)", "c.n", BOTH),
    Mutant(COMPARE + "design.py", "distinct_programs >= LEAST_SEEDS", "distinct_programs >= 1",
           DESIGN),
    Mutant(COMPARE + "design.py", "and not (self.exact or self.anytime)", "", DESIGN),
    Mutant(COMPARE + "design.py", '(FORM, COMPILED_FORM) if self.form_too', "(FORM, COMPILED) if"
           " self.form_too", DESIGN),
    Mutant(COMPARE + "design.py", 'if overall.startswith("worse")', 'if overall == "worst"',
           DESIGN),
    Mutant(COMPARE + "design.py", 'good, bad = word.startswith("better")',
           'good, bad = word.startswith("")', DESIGN),
    Mutant(COMPARE + "design.py", "for fine, text in clauses if not fine",
           "for fine, text in clauses if fine", DESIGN),
    Mutant(COMPARE + "looks.py", "_GROWTH = 1.5", "_GROWTH = 2", DESIGN),
    Mutant(COMPARE + "looks.py", "last.most - last.questions", "last.most", DESIGN),
    Mutant(COMPARE + "running.py", "ratio <= 1 + _EQUAL", "ratio <= 1", DESIGN),
    Mutant(COMPARE + "running.py", "<= _EQUAL * tokens", "<= tokens", DESIGN),
    Mutant(COMPARE + "arms.py", "> len(arm) / 2", ">= len(arm) / 2", DESIGN),
    Mutant(COMPARE + "arms.py", "in (1, len(named))", "in (1, 2, len(named))", DESIGN),
    Mutant(COMPARE + "break_even.py", "math.ceil(self.compile / self.saved)",
           "int(self.compile / self.saved)", DESIGN),
    Mutant(COMPARE + "break_even.py", "self.saved <= 0", "self.saved < 0", DESIGN),
    Mutant("ragbench/metrics/answer.py", "if a != b and (a in CLOSED or b in CLOSED)",
           "if a != b and (a in CLOSED and b in CLOSED)", ANSWER),
    Mutant("ragbench/metrics/answer.py", "2 * common / (len(pred) + len(gold))",
           "common / max(len(pred), len(gold))", ANSWER),
    Mutant("ragbench/metrics/answer.py", "float(a == b)", "0.0", ANSWER),
    Mutant("ragbench/metrics/answer.py", "return max(compare", "return min(compare", ANSWER),
    Mutant("ragbench/metrics/answer.py", "inner in normalise_answer(pred)",
           "normalise_answer(pred) in inner", ANSWER),
    Mutant("ragbench/metrics/text.py", '_ARTICLE_WORDS = ("a", "an", "the")',
           '_ARTICLE_WORDS = ("a", "the")', ANSWER),
    Mutant("ragbench/metrics/text.py", "strip_punctuation(text.lower())\n    return",
           "strip_punctuation(text)\n    return", ANSWER),
    Mutant("ragbench/calls.py", "if self._billed and call.cached:", "if call.cached:", COSTS),
    Mutant("ragbench/calls.py", "call.paid if self._billed else call.cost_usd", "call.cost_usd",
           COSTS),
    Mutant("ragbench/calls.py", "if self._billed and call.failed", "if call.failed", COSTS),
    Mutant("ragbench/metrics/word_overlap.py", "if step.action not in _NO_CLAIMS", "",
           ("tests/metrics/test_grounding.py",)),
    Mutant("ragbench/metrics/answer.py", "or is_blank_answer(pred):", ":", ANSWER),
    Mutant("ragbench/data/clusters.py", "parent[b] = a", "parent[a] = a",
           ("tests/data/test_clusters.py",)),
    Mutant("ragbench/data/splits.py", "if held.isdisjoint(links(example))", "",
           ("tests/data/test_clusters.py",)),
]  # fmt: skip


def survives(mutant: Mutant, folder: Path) -> str:
    """How the tests took `mutant`: killed, survived, or that its text is not there."""
    path = folder / mutant.file
    text = path.read_text("utf-8")
    if mutant.old not in text:
        return "NOT FOUND"
    path.write_text(text.replace(mutant.old, mutant.new, 1), "utf-8")
    try:
        return "SURVIVED" if passes(folder, mutant.tests) else "killed"
    finally:
        path.write_text(text, "utf-8")


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Whether `tests` pass on the copy of the package in `folder`."""
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache, ignore_errors=True)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(folder, tests))
    process.start()
    process.join(600)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == 0


def _run(folder: Path, tests: Sequence[str]) -> None:
    import pytest

    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--noconftest", "-p", "no:xdist"]
        os._exit(int(pytest.main([*options, "-o", "addopts=", "-o", "filterwarnings=", *tests])))


def _checked(mutants: Sequence[Mutant]) -> list[tuple[Mutant, str]]:
    """The outcome of each, in one copy of the package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("ragbench", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for tests in {tuple(mutant.tests) for mutant in mutants}:
            if not passes(folder, tests):
                sys.exit(f"{', '.join(tests)} fails on the package as it is")
        found = []
        for mutant in mutants:
            found.append((mutant, survives(mutant, folder)))
            print(f"{found[-1][1]:9} {mutant.file}: {mutant.old!r} -> {mutant.new!r}", flush=True)
        return found


def main() -> None:
    """Print each mutant's fate; exit code 1 where one survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="part of a file's name")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the package at once")
    options = parser.parse_args()
    # Once in this process, not once in each that is forked from it.
    import dspy  # noqa: F401
    import scipy.stats  # noqa: F401
    import statsmodels.api  # noqa: F401

    chosen = [mutant for mutant in MUTANTS if options.only in mutant.file]
    shares = [chosen[i :: options.jobs] for i in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [row for rows in pool.map(_checked, shares) for row in rows]
    alive = [mutant for mutant, outcome in outcomes if outcome != "killed"]
    print(f"{len(outcomes)} mutants, {len(alive)} not killed")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
