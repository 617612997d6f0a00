"""Breaks metrics, statistics and verdicts one line at a time, and says which breaks no test sees.

Each mutant replaces one text in one file of a copy of the package and runs the tests named beside
it. A survivor is a line whose meaning no test holds.

    python -m benchmarks.mutants [--only WORD] [--jobs 1]
"""

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
REPORT, RUNS = "ragbench/experiments/report/", "ragbench/experiments/runs/"
ESTIMATES = ("tests/metrics/test_estimates.py",)
COMPARED = ("tests/metrics/test_comparison.py",)
SENTENCES = ("tests/experiments/test_sentences.py",)
DESIGN = ("tests/experiments/test_design.py", "tests/experiments/test_verdict.py")
BILL = ("tests/experiments/test_results.py",)
CAUSES = ("tests/metrics/test_errors.py", "tests/experiments/test_judge.py")
ANSWER = ("tests/metrics/test_answer.py", "tests/conformance/parity/test_parity.py")


class Mutant(NamedTuple):
    """`old` in `file` becomes `new`, which `tests` must see."""

    file: str
    old: str
    new: str
    tests: Sequence[str]


MUTANTS = [
    # Intervals and tests of a mean.
    Mutant(STATS + "estimates.py", "(1 + level) / 2, self.df", "level, self.df", ESTIMATES),
    Mutant(STATS + "estimates.py", "max(low, self.bounds[0])", "low", ESTIMATES),
    Mutant(STATS + "estimates.py", "return 2 * t_tail(off", "return t_tail(off", ESTIMATES),
    Mutant(STATS + "estimates.py", "abs(self.centre - null)", "abs(self.centre)", ESTIMATES),
    Mutant(STATS + "estimates.py", "len(every) / (len(every) - 1)", "1.0", ESTIMATES),
    Mutant(STATS + "estimates.py", "variance = max(robust, plain)", "variance = plain", ESTIMATES),
    Mutant(STATS + "estimates.py", "variance = max(robust, plain)", "variance = robust",
           ESTIMATES),
    Mutant(STATS + "estimates.py", "weight * ends.sum()", "ends.sum()", ESTIMATES),
    Mutant(STATS + "estimates.py", "if len(sizes) < 2:", "if len(sizes) < 1:", ESTIMATES),
    Mutant(STATS + "estimates.py", "room = margin - abs(self.centre)", "room = margin", ESTIMATES),
    Mutant(STATS + "estimates.py", "2 * t_tail(room", "t_tail(room", ESTIMATES),
    Mutant(STATS + "estimates.py", "math.log(2) - best", "-best", ESTIMATES),
    Mutant(STATS + "estimates.py", "_capital(-x, -null / reach)", "_capital(-x, null / reach)",
           COMPARED),
    Mutant(STATS + "estimates.py", "LEAST_SEEDS = 3", "LEAST_SEEDS = 2", ESTIMATES),
    Mutant(STATS + "estimates.py", "math.sqrt(own + of_seeds)", "math.sqrt(own)", ESTIMATES),
    Mutant(STATS + "power.py", "n = n / self.design_effect", "n = n / 1", COMPARED),
    Mutant(STATS + "power.py", "n * difference / total", "difference", COMPARED),
    Mutant(STATS + "power.py", "squared, df = squared + of_seeds,", "squared, df = squared,",
           COMPARED),
    Mutant(STATS + "power.py", "1 - alpha / 2, df", "1 - alpha, df", COMPARED),
    Mutant(STATS + "power.py", "changed = self.reach * max(0.0, difference - abs(seen))",
           "changed = 0.0", COMPARED),
    Mutant(STATS + "power.py", "square = variance + seen**2", "square = variance", COMPARED),
    Mutant(STATS + "power.py", "POWER = 0.8", "POWER = 0.5", COMPARED),
    Mutant(STATS + "estimates.py", "x[int((x @ counts).argmax()), left]", "x.max(axis=0)[left]",
           COMPARED),
    Mutant(STATS + "comparison.py", "(len(p_values) - rank)", "len(p_values)", COMPARED),
    # What a comparison says.
    Mutant(STATS + "comparison.py", "alpha=alpha / family", "alpha=alpha", COMPARED),
    Mutant(STATS + "comparison.py", "p <= alpha and c.interval.ex", "p <= 2 * alpha and "
           "c.interval.ex", COMPARED),
    Mutant(STATS + "comparison.py", "(c.difference > 0) == c.higher_is_better", "c.difference > 0",
           COMPARED),
    Mutant(STATS + "comparison.py", "equivalent = holm([c.p_equivalent for c in family])",
           "equivalent = [c.p_equivalent for c in family]", COMPARED),
    Mutant(STATS + "comparison.py", "different = holm([c.p for c in family])",
           "different = [c.p for c in family]", COMPARED),
    Mutant(STATS + "comparison.py", "interval_b=arms[1].interval() if arms[1]",
           "interval_b=arms[0].interval() if arms[0]", SENTENCES),
    Mutant(STATS + "comparison.py", "scale = len(units) / len(d)", "scale = 1.0", ESTIMATES),
    Mutant(STATS + "comparison.py", "max(c.n_needed, c.n + 1)", "c.n", COMPARED),
    Mutant(STATS + "comparison.py", "LEAST_PILOT = 10", "LEAST_PILOT = 2", COMPARED),
    Mutant(STATS + "comparison.py", "design_effect=c.estimate.design_effect",
           "design_effect=1.0", SENTENCES),
    Mutant(STATS + "comparison.py", "seed_variance=c.estimate.of_seeds * c.seeds",
           "seed_variance=0.0", DESIGN),
    Mutant(STATS + "comparison.py", "nothing = np.zeros((1, len(d)))", "nothing = left * 1.0",
           SENTENCES),
    Mutant(STATS + "comparison.py", "if method.clusters else None\n    d =",
           "if method.anytime else None\n    d =", SENTENCES),
    Mutant(STATS + "comparison.py", "one, other, bounds, clusters=clusters, random_seeds="
           "method.random_seeds", "one, other, bounds, clusters=clusters, random_seeds=True",
           DESIGN),
    # Runs against each other.
    Mutant(COMPARE + "paired.py", "clusters=clusters_of(a.records.only(qids))", "clusters={}",
           SENTENCES),
    Mutant(COMPARE + "paired.py", "family = iter(correct(", "family = iter(list(", SENTENCES),
    Mutant(COMPARE + "paired.py", 'if gate == "worse"', 'if gate != "worse"', SENTENCES),
    Mutant(COMPARE + "paired.py", 'if "by less than" not in c.verdict', "if True", SENTENCES),
    Mutant(COMPARE + "paired.py", "right_b - right_a", "right_a - right_b", SENTENCES),
    Mutant(COMPARE + "paired.py", "> len(arm) / 2", ">= len(arm) / 2", DESIGN),
    Mutant(COMPARE + "paired.py", "== len(names) else", "in (1, len(names)) else", DESIGN),
    Mutant(COMPARE + "spending.py", "Interval(-ends.high, -ends.low)",
           "Interval(ends.low, ends.high)", DESIGN),
    Mutant(COMPARE + "spending.py", "self.saving.low > 0", "self.saved > 0", DESIGN),
    Mutant(COMPARE + "spending.py", "index.usd or 0.0 if index else 0.0", "0.0", BILL),
    Mutant(COMPARE + "verdicts.py", "distinct_programs >= LEAST_SEEDS", "distinct_programs >= 1",
           DESIGN),
    Mutant(COMPARE + "verdicts.py", "and not self.anytime", "", DESIGN),
    Mutant(COMPARE + "verdicts.py", 'if overall.startswith("worse")', 'if overall == "worst"',
           DESIGN),
    Mutant(COMPARE + "running.py", "_GROWTH = 1.5", "_GROWTH = 2", DESIGN),
    Mutant(COMPARE + "running.py", "ratio <= 1 + _EQUAL", "ratio <= 1", DESIGN),
    Mutant(COMPARE + "verdicts.py", "return not any(c.verdict", "return not all(c.verdict", DESIGN),
    Mutant(REPORT + "comparison.py", ", last.most - last.questions", ", last.most", DESIGN),
    Mutant(REPORT + "comparison.py", 'with_interval("b", c.mean_b, c.interval_b)',
           'with_interval("b", c.mean_b, c.interval_a)', SENTENCES),
    Mutant(REPORT + "table.py", "return dict(zip((name, *ends_of(name)), (value, low, high)",
           "return dict(zip((name, *ends_of(name)), (value, high, low)", SENTENCES),
    Mutant(REPORT + "tables.py", "share != 1 for share in shares", "share == 1 for share in shares",
           SENTENCES),
    Mutant(REPORT + "tables.py", "KNOWN_SHARE = 1 / 3", "KNOWN_SHARE = 1 / 5", SENTENCES),
    # What was spent.
    Mutant("ragbench/record.py", "if self._billed and call.cached:", "if call.cached:", BILL),
    Mutant("ragbench/record.py", "call.paid if self._billed else call.cost_usd", "call.cost_usd",
           BILL),
    Mutant("ragbench/record.py", "self._billed and (lost := call.failed)", "(lost := call.failed)",
           BILL),
    Mutant("ragbench/record.py", "self._known = False", "pass", BILL),
    Mutant("ragbench/record.py", "None if a is None or b is None else a + b",
           "(a or 0) + (b or 0)", BILL),
    Mutant(RUNS + "summary.py", "chain(records.replaced(), records.cut_off())",
           "records.replaced()", BILL),
    Mutant(RUNS + "summary.py", "paid.add(call)\n    for", "as_if.add(call)\n    for", BILL),
    Mutant(RUNS + "summary.py", "mean_interval(scores, metric.score_range, clusters)",
           "mean_interval(scores, metric.score_range)", BILL),
    # Scores and causes.
    Mutant("ragbench/metrics/aggregate.py", 'None if "" in names else', "None if True else", BILL),
    Mutant("ragbench/experiments/score/judging.py", "if among else", "if not among else",
           CAUSES),
    Mutant("ragbench/metrics/errors.py", "_among_words(record) or _stopped", "_stopped", CAUSES),
    Mutant("ragbench/metrics/answer.py", "_MUSIQUE_F1 if record", "_HOTPOT_F1 if record", ANSWER),
    Mutant("ragbench/metrics/answer.py", "if a != b and (a in CLOSED or b in CLOSED)",
           "if a != b and (a in CLOSED and b in CLOSED)", ANSWER),
    Mutant("ragbench/metrics/answer.py", "return max(compare", "return min(compare", ANSWER),
    Mutant("ragbench/metrics/support.py", "    if gold_triples(record):\n        parts.append",
           "    if False:\n        parts.append", ("tests/metrics/test_support.py",)),
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
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        os._exit(int(pytest.main([*options, "-o", "addopts=", "-o", "filterwarnings=", *tests])))


def _checked(mutants: Sequence[Mutant]) -> list[tuple[Mutant, str]]:
    """The outcome of each, in one copy of the package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("ragbench", "tests", "docs"):
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
