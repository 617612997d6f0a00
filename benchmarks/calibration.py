"""Measures how often the words of a report are wrong, by simulation of what they claim.

`WORDS` lists every claim that a report can print, each with the scenarios that test it; a test
compares the list with the code. A claim is wrong at most 5 % of the time, an interval covers in
94 % at least (a share of n questions has n + 1 values, so that the coverage goes up and down by a
point), and what is said to be shown with 80 % power is shown in 75 to 90 %. Sets of questions are
asymmetric and in documents (`benchmarks.draws`).

    python -m benchmarks.calibration [--runs 3000] [--seed 0] [--only WORD]

Ends with code 1 where a bound does not hold, give or take two standard errors (at 1,000 runs and
5 %, 1.4 points). With 3,000 runs it takes about 4 minutes of one processor.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.draws import SETS, Draw, Rng, chances, lost, run_away, seeded
from ragbench.experiments.compare.spending import PayBack, saved
from ragbench.metrics.stats.comparison import Comparison, Method, compare_scores, correct
from ragbench.metrics.stats.estimates import (
    anytime_p,
    cluster_means,
    corrected_best,
    estimate_difference,
    estimate_mean,
    mean_interval,
    p_seeds_alike,
)
from ragbench.metrics.stats.repeats import differ_as_wholes

WRONG, COVER, LEAST_POWER, MOST_POWER = 0.05, 0.94, 0.75, 0.90
MARGIN = 0.05
DIFFERENCES = (-1.0, 1.0)
#: Twenty documents of ten questions and a hundred single ones: seeds, costs and choices.
MIXED = [10] * 20 + [1] * 100


class Outcome(NamedTuple):
    """How often something happened in `runs` simulations, and what it must lie between."""

    what: str
    rate: float
    runs: int
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the rate lies within the bounds, give or take two standard errors."""
        for bound, sign in ((self.low, 1), (self.high, -1)):
            error = math.sqrt(max(bound * (1 - bound), 0.0) / self.runs)
            if sign * (self.rate - bound) < -2 * error:
                return False
        return True


def wrong(what: str, count: float, runs: int) -> Outcome:
    """A claim that was false so often."""
    return Outcome(what, count / runs, runs, 0.0, WRONG)


def covers(what: str, count: float, runs: int) -> Outcome:
    """An interval that held the truth so often."""
    return Outcome(what, count / runs, runs, COVER, 1.0)


def power(what: str, count: float, runs: int) -> Outcome:
    """A difference that was shown so often."""
    return Outcome(what, count / runs, runs, LEAST_POWER, MOST_POWER)


def compared(draw: Draw, rng: Rng, difference: float = 0.0, **method: object) -> Comparison:
    """The comparison of a set in which B is so much better."""
    drawn = draw(rng, difference)
    how = Method(**method)  # type: ignore[arg-type]
    return compare_scores(drawn.a, drawn.b, drawn.documents, method=how)


def claims(runs: int, rng: Rng) -> Iterator[Outcome]:
    """One contrast of every set: equal means, and a difference of the margin or of the worth."""
    for name, draw in SETS.items():
        counts: Counter[str] = Counter()
        for _ in range(runs):
            drawn = draw(rng, 0.0)
            d = drawn.b - drawn.a
            found = estimate_mean(d, DIFFERENCES, drawn.documents)
            assert found is not None
            counts["better or worse"] += found.p_value() <= WRONG
            ends = found.interval()
            counts["interval of a difference"] += ends.low <= 0 <= ends.high
            bets = anytime_p(cluster_means(d, drawn.documents), 1.0) <= WRONG
            if len(set(Counter(drawn.documents).values())) == 1:  # else of another mean
                counts["decided"] += bets
            own = mean_interval(drawn.b, (0.0, 1.0), drawn.documents)
            counts["interval of a mean"] += bool(own and own.low <= drawn.mean_b <= own.high)
            drawn = draw(rng, -MARGIN)
            found = estimate_mean(drawn.b - drawn.a, DIFFERENCES, drawn.documents)
            assert found is not None
            counts["equivalent"] += found.p_beyond(MARGIN) <= WRONG
            counts["less than the worth below"] += found.p_at_most(-MARGIN) <= WRONG
        for what, count in counts.items():
            outcome = covers if what.startswith("interval") else wrong
            yield outcome(f"{what}, {name}", count, runs)


def families(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Families of six sets in which nothing differs, or all differ by just the margin."""
    draws = list(SETS.values())[1:7]
    few = runs // 4
    counts: Counter[str] = Counter()
    for _ in range(few):
        alike = correct([compared(draw, rng) for draw in draws])
        counts["better or worse"] += any(c.verdict.startswith(("better", "worse")) for c in alike)
        off = correct([compared(draw, rng, MARGIN, margin=MARGIN) for draw in draws])
        counts["equivalent"] += any(c.verdict.startswith("equivalent") for c in off)
        counts["by less than the margin"] += any("by less than" in c.verdict for c in off)
    for what, count in counts.items():
        yield wrong(f"{what}, a family of 6", count, few)


def planned(runs: int, rng: Rng) -> Iterator[Outcome]:
    """New sets as large as a pilot's sentence asks for, and gains that it calls detectable."""
    few = runs // 8
    sets = {"single": chances(60), "documents of 4": lost([4] * 25, 0.02)}
    for name, draw in sets.items():
        for size in (1, 6):
            shown = told = 0
            for _ in range(few):
                pilot, *_ = correct([compared(draw, rng)] * size)
                if pilot.minimum_detectable is None or pilot.minimum_detectable > 0.6:
                    continue
                drawn = draw(rng, pilot.minimum_detectable)
                found = estimate_mean(drawn.b - drawn.a, DIFFERENCES, drawn.documents)
                assert found is not None
                told += 1
                shown += found.p_value() <= WRONG / size
            if told:
                yield power(f"detectable, {name}, family of {size}", shown, told)
        shown = told = 0
        for _ in range(8 * few):
            drawn = draw(rng, 0.06)
            pilot = compare_scores(drawn.a, drawn.b, drawn.documents)
            if not (pilot.n_needed and "about" in pilot.verdict and pilot.n_needed < 20_000):
                continue
            named = int(pilot.verdict.split("about ")[1].split()[0].replace(",", ""))
            sizes = np.bincount(drawn.documents)
            chosen = rng.integers(0, len(sizes), max(2, round(named / sizes.mean())))
            d = (drawn.b - drawn.a).reshape(len(sizes), -1)[chosen].ravel()
            found = estimate_mean(
                d, DIFFERENCES, np.repeat(np.arange(len(chosen)), sizes[0]).tolist()
            )
            assert found is not None
            told += 1
            shown += found.p_value() <= WRONG
            if told == few:
                break
        if told:
            yield power(f"needed, {name}", shown, told)


def one_cluster(runs: int, rng: Rng) -> Iterator[Outcome]:
    """All questions need one passage: whatever they show, nothing is claimed."""
    few = runs // 10
    false = 0
    for _ in range(few):
        c = compared(lost([60], 0.3), rng)
        false += c.interval is not None or not c.verdict.startswith("no difference")
    yield wrong("one gold passage for all", false, few)


def compiling(runs: int, rng: Rng) -> Iterator[Outcome]:
    """An optimizer without effect whose programs vary, over documents; the mean of its arm."""
    few = runs // 2
    for seeds in (3, 5, 10):
        for spread in (0.0, 0.02, 0.04):
            false = covered = told = 0
            for _ in range(few):
                before, after, documents = seeded(rng, seeds, MIXED, spread, 0.0)
                found = estimate_difference(before, after, DIFFERENCES, clusters=documents)
                assert found is not None
                false += found.p_value() <= WRONG
                arm = estimate_difference(0 * before, after, (0.0, 1.0), clusters=documents)
                assert arm is not None
                ends = arm.interval()
                covered += ends.low <= 0.5 / 1.3 <= ends.high
                told += p_seeds_alike(after, documents) <= WRONG
            yield wrong(f"compiling helps, {seeds} seeds, sd {spread}", false, few)
            yield covers(f"mean of the compiled arm, {seeds} seeds, sd {spread}", covered, few)
            if not spread:
                yield wrong(f"usually, {seeds} seeds alike", told, few)
    shown = 0
    for _ in range(few):
        _, after, documents = seeded(rng, 10, MIXED, 0.0, 0.0)
        after[0] *= rng.random(after.shape[1]) < 0.5
        shown += p_seeds_alike(after, documents) <= WRONG
    yield Outcome("usually, one seed of ten fails", shown / few, few, LEAST_POWER, 1.0)


def more_seeds(runs: int, rng: Rng) -> Iterator[Outcome]:
    """With the seeds that the report asks for, a gain is shown as often as it says."""
    few = runs // 20
    shown = told = 0
    for _ in range(20 * few):
        if told == few:
            break
        before, after, _ = seeded(rng, 3, [1] * 200, 0.06, 0.05)
        pilot = compare_scores(before, after)
        if not pilot.seeds_needed or pilot.seeds_needed > 100 or pilot.estimate is None:
            continue
        told += 1
        # As many programs, drawn with the variance and the gain that the pilot showed.
        of_seeds = math.sqrt(pilot.estimate.of_seeds * 3)
        n = pilot.n_needed or 200
        means = rng.normal(pilot.difference, of_seeds, (pilot.seeds_needed, 1))
        noise = rng.normal(0, pilot.sd, (1, n))
        found = estimate_difference(np.zeros((1, n)), means + noise, DIFFERENCES)
        assert found is not None
        shown += found.p_value() <= WRONG
    if told:
        yield power(f"more seeds, {told} pilots", shown, told)


def pays_back(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Programs that take the same on average, where B runs away on one document in thirty."""
    few = runs // 2
    most = 50
    for name, sizes in {"10 single": [1] * 10, "100 single": [1] * 100, "mixed": MIXED}.items():
        false = covered = 0
        for _ in range(few):
            before, after, documents = run_away(rng, sizes, most)
            c = compare_scores(
                before, after, documents, higher_is_better=False, score_range=(0.0, most * 700.0)
            )
            pay = PayBack(1000.0, float(before.mean()), float(after.mean()), saved(c))
            false += pay.words().startswith(("pays back", "never pays back"))
            covered += bool(c.interval and c.interval.low <= 0 <= c.interval.high)
        yield wrong(f"pays back, {name}", false, few)
        yield covers(f"interval of what is saved, {name}", covered, few)


def best_chosen(runs: int, rng: Rng) -> Iterator[Outcome]:
    """The best of 16 candidates that are alike, over documents: its corrected mean."""
    few = runs // 10
    inside = 0
    document = np.repeat(np.arange(25), 2)
    for seed in range(few):
        chance = rng.beta(0.5, 0.8, 25)[document]
        scores = (rng.random((16, 50)) < chance).astype(float)
        best = corrected_best(scores, clusters=document.tolist(), seed=seed, resamples=300)
        assert best is not None
        inside += best.interval.low <= float(chance.mean()) <= best.interval.high
    yield covers("corrected mean of the best of 16", inside, few)


def asked_again(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Systems asked several times: mixes of the two variances, from questions to repeats alone.

    A question has a chance of its own to be answered rightly, and those of a document half of it in
    common. Alike is a system against itself, else each has chances of its own, of the same mean.
    """
    few = runs // 2
    for mix in (0.2, 1.0, 5.0, 50.0):
        for alike in (True, False):
            for sizes, repeats in (([1] * 40, 3), ([5] * 30, 2), ([1] * 150, 3), ([5] * 30, 5)):
                document = np.repeat(np.arange(len(sizes)), sizes)
                names = document.tolist()
                false = covered = 0
                for _ in range(few):
                    easy = rng.beta(0.4 * mix, 0.6 * mix, (2, len(sizes)))[:, document]
                    chance = (easy + rng.beta(0.4 * mix, 0.6 * mix, easy.shape)) / 2
                    if alike:
                        chance[1] = chance[0]
                    a, b = (rng.random((2, repeats, len(names))) < chance[:, None]).astype(float)
                    level = differ_as_wholes(a, names) or differ_as_wholes(b, names)
                    found = estimate_difference(
                        a, b, DIFFERENCES, clusters=names, random_seeds=level
                    )
                    own = estimate_difference(
                        0 * b, b, (0.0, 1.0), clusters=names, random_seeds=level
                    )
                    assert found is not None
                    assert own is not None
                    false += found.p_value() <= WRONG
                    ends = own.interval()
                    covered += ends.low <= 0.4 <= ends.high
                kind = "A/A" if alike else "A/B"
                name = f"{kind}, mix {mix:g}, {repeats} of {len(sizes)} x {sizes[0]}"
                yield wrong(f"asked again, {name}", false, few)
                yield covers(f"mean of repeats, {name}", covered, few)


Scenario = Callable[[int, Rng], Iterator[Outcome]]
#: Every claim that a report can print -> what tests it. Empty: it says that nothing is claimed.
WORDS: Mapping[str, tuple[Scenario, ...]] = {
    "better": (claims, families),
    "worse": (claims, families),
    "by less than the margin": (families,),
    "equivalent within": (claims, families),
    "shown less than": (claims,),
    "usually": (compiling,),
    "too few to tell": (),
    "no difference shown": (),
    "the two score the same": (),
    "too few questions to say": (),
    "all questions share a gold passage": (one_cluster,),
    "it needs more seeds: about": (more_seeds,),
    "a new run of about": (planned,),
    "to show the largest that the interval holds": (planned,),
    "detectable": (planned,),
    "helps": (compiling,),
    "hurts": (compiling,),
    "nothing that matters": (claims, families),
    "not shown to help or to hurt": (),
    "more than": (claims,),
    "less than": (claims,),
    "also": (claims,),
    "the reverse": (claims,),
    "not shown to help": (),
    "pays back after": (pays_back,),
    "not shown to pay back": (),
    "never pays back": (pays_back,),
    "low and high": (claims, compiling, best_chosen, pays_back, asked_again),
}


def main() -> None:
    """Run every scenario once, print its outcomes, and end with 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a scenario's name")
    options = parser.parse_args()
    scenarios = dict.fromkeys(one for some in WORDS.values() for one in some)
    broken = outcomes = 0
    began = time.process_time()
    for number, scenario in enumerate(scenarios):
        if options.only not in scenario.__name__:
            continue
        start = time.process_time()
        for found in scenario(options.runs, np.random.default_rng([options.seed, number])):
            mark = "" if found.holds else "  BROKEN"
            broken += not found.holds
            outcomes += 1
            bounds = f"[{found.low:.2f}, {found.high:.2f}]"
            print(f"{found.what:55} {found.rate:7.3f} {bounds} of {found.runs}{mark}", flush=True)
        print(f"  {scenario.__name__}: {time.process_time() - start:.0f} s", flush=True)
    took = (time.process_time() - began) / 60
    print(f"{outcomes} rates, {broken} bounds broken, {took:.0f} minutes of one processor")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
