"""Measures how often the words of a report are wrong, by simulation of what they claim.

`WORDS` lists every claim that a report can print, each with the scenarios that test it; a test
compares the list with the code. A claim is wrong at most 5 % of the time (5.5 % with documents), an
interval covers in 94 % at least (a share of n questions has n + 1 values, so that the coverage goes
up and down by a point), and what is shown with 80 % power is shown in 75 to 90 %. With documents,
the power is within .03 of a reference wherever the reference keeps its level.

    python -m benchmarks.calibration [--runs 2000] [--seed 0] [--only WORD]

Ends with code 1 if a bound does not hold, within two standard errors (at 1,000 runs and 5 %, 1.4
points). With 2,000 runs it takes less than three minutes of one processor.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from benchmarks.cluster_reference import reference_cr2
from benchmarks.draws import (
    SETS,
    SHAPES,
    Draw,
    Floats,
    Rng,
    chances,
    in_documents,
    lost,
    moved,
    seeded,
    symmetric,
)
from ragbench.experiments.compare.family import Family, ProgramStatistics
from ragbench.experiments.recommend import RankedProgram, decide
from ragbench.metrics.stats.comparison import Comparison, Method, compare_scores, correct, holm
from ragbench.metrics.stats.estimates import (
    Clusters,
    MeanEstimate,
    estimate_difference,
    estimate_mean,
    mean_interval,
    p_seeds_alike,
)
from ragbench.metrics.stats.repeats import repeats_differ
from ragbench.metrics.stats.selection import corrected_best

WRONG, COVER, LEAST_POWER, MOST_POWER = 0.05, 0.94, 0.75, 0.90
#: With documents: false claims, and power that may be lost against the reference.
MOST_FALSE, LOST_POWER = 0.055, 0.03
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


def estimated(values: Floats, documents: Clusters = None) -> MeanEstimate:
    """The estimate of the mean of differences."""
    found = estimate_mean(values, DIFFERENCES, documents)
    assert found is not None
    return found


def compared(draw: Draw, rng: Rng, difference: float = 0.0, **method: object) -> Comparison:
    """The comparison of a set in which B is so much better."""
    drawn = draw(rng, difference)
    how = Method(**method)  # type: ignore[arg-type]
    return compare_scores(drawn.a, drawn.b, drawn.documents, method=how)


def single_questions(runs: int, rng: Rng) -> Iterator[Outcome]:
    """One contrast of single questions: equal means, and a difference of just the margin."""
    for name, draw in SETS.items():
        counts: Counter[str] = Counter()
        for _ in range(runs):
            drawn = draw(rng, 0.0)
            found = estimated(drawn.b - drawn.a)
            counts["better or worse"] += found.p_value() <= WRONG
            ends = found.interval()
            counts["interval of a difference"] += ends.low <= 0 <= ends.high
            own = mean_interval(drawn.b, (0.0, 1.0))
            counts["interval of a mean"] += bool(own and own.low <= drawn.mean_b <= own.high)
            drawn = draw(rng, -MARGIN)
            found = estimated(drawn.b - drawn.a)
            counts["equivalent"] += found.equivalence_p(MARGIN) <= WRONG
            counts["gains less than the minimum gain"] += found.p_at_most(-MARGIN) <= WRONG
        for what, count in counts.items():
            outcome = covers if what.startswith("interval") else wrong
            yield outcome(f"{what}, {name}", count, runs)


def clustered(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Symmetric effects of documents: false claims, coverage, and power next to the reference."""
    few = runs // 2
    for name, sizes in SHAPES.items():
        documents = np.repeat(np.arange(len(sizes)), sizes).tolist()
        for correlation in (0.0, 0.1, 0.3, 0.5) if max(sizes) > 1 else (0.0,):
            shown = []
            for gain in (0.0, 0.10):
                values = symmetric(sizes, correlation, gain, rng, few)
                ours = sum(estimated(row, documents).p_value() <= WRONG for row in values)
                shown.append((ours, int(reference_cr2(values, sizes).sum())))
            (false, theirs_false), (ours, theirs) = shown
            what = f"{name}, correlation {correlation:g}"
            yield Outcome(f"better or worse, {what}", false / few, few, 0.0, MOST_FALSE)
            yield Outcome(f"  CR2 without it, {what}", theirs_false / few, few, 0.0, 1.0)
            yield Outcome(f"  power for +.10, {what}", ours / few, few, 0.0, 1.0)
            lost_power = (theirs - ours) / few
            most = LOST_POWER if theirs_false / few <= MOST_FALSE else 1.0
            yield Outcome(f"  power less than CR2's, {what}", lost_power, few, -1.0, most)


def lost_documents(runs: int, rng: Rng) -> Iterator[Outcome]:
    """B loses whole documents and gains on all else, equal means: false, and what is said then.

    Nothing bounds these rates. The breakdown share that is printed next to "better" has to be
    below the share of documents that were lost.
    """
    few = runs // 4
    for name in ("20 x 10", "30 x 10", "60 x 5", "Zipf", "10 x 20 + 100", "10 x 20 + 400"):
        sizes = SHAPES[name]
        chance = 0.3 if name == "Zipf" else 0.1
        draw = lost(sizes, chance, documents_only=max(sizes) > min(sizes))
        shares = []
        named = 0
        for _ in range(few):
            drawn = draw(rng, 0.0)
            found = compare_scores(drawn.a, drawn.b, drawn.documents)
            if found.outcome == "better" and found.breakdown is not None:
                shares.append(found.breakdown)
                named += found.breakdown < chance
        what = f"{name}, {chance:.0%} of documents lost"
        yield Outcome(f"better, {what}", len(shares) / few, few, 0.0, 1.0)
        if shares:
            yield Outcome(f"  breakdown share, mean, {what}", float(np.mean(shares)), few, 0.0, 1.0)
            yield Outcome(f"  breakdown below it, {what}", named / len(shares), few, 0.95, 1.0)


def chosen_best(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Equal programs on a board: no pair may be called better or worse in more than 5 %."""
    for k, n, sets in ((6, 200, runs // 4), (10, 200, runs // 4), (20, 200, runs // 8)):
        false = of_best = 0
        for _ in range(sets):
            chance = rng.beta(0.5, 0.8, n)
            scores = (rng.random((k, n)) < chance).astype(float)
            best = int(scores.mean(axis=1).argmax())
            p_values = {}
            for a, b in combinations(range(k), 2):
                p_values[a, b] = estimated(scores[b] - scores[a]).p_value()
            false += min(holm(list(p_values.values()))) <= WRONG
            only = [p for pair, p in p_values.items() if best in pair]
            of_best += min(holm(only)) <= WRONG
        yield wrong(f"better or worse, {k} equal programs", false, sets)
        yield Outcome(f"  by the best's pairs only, {k}", of_best / sets, sets, 0.0, 1.0)


def recommended(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Advise the cheaper of two programs, which is wrong: the other gains .10 (minimum: .05)."""
    few = runs // 4
    for n in (10, 20, 50, 100):
        false = 0
        for _ in range(few):
            chance = rng.beta(0.5, 0.8, n)
            cheap = (rng.random(n) < chance).astype(float)
            expensive = moved(rng, (rng.random(n) < chance).astype(float), 0.10, 0.5 / 1.3)
            costs = (1.0, 2.0)
            standings = []
            for scores, cost in zip((cheap, expensive), costs, strict=True):
                standings.append(
                    ProgramStatistics((), float(scores.mean()), None, {"calls": cost}, 0, 1)
                )
            tests = {(0, 1): correct([compare_scores(cheap, expensive)])[0]}
            best = int(expensive.mean() > cheap.mean())
            family = Family("em", (), {}, tuple(standings), best, None, "calls", tests)
            arms = [RankedProgram(**vars(s), label=str(at)) for at, s in enumerate(standings)]
            false += decide(arms, family, 0.05, n).use == 0
        yield wrong(f"use the cheaper one, {n} questions", false, few)


def families(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Families of five sets in which nothing differs, or all differ by just the margin."""
    draws = list(SETS.values())
    few = runs // 4
    counts: Counter[str] = Counter()
    for _ in range(few):
        alike = correct([compared(draw, rng) for draw in draws])
        counts["better or worse"] += any(c.outcome in ("better", "worse") for c in alike)
        off = correct([compared(draw, rng, MARGIN, margin=MARGIN) for draw in draws])
        counts["equivalent"] += any(c.outcome == "equivalent" for c in off)
        counts["by less than the margin"] += any(c.slight for c in off)
    for what, count in counts.items():
        yield wrong(f"{what}, a family of 5", count, few)


def planned(runs: int, rng: Rng) -> Iterator[Outcome]:
    """New sets as large as a pilot's sentence asks for, and gains that it calls detectable."""
    few = runs // 8
    sets = {"single": chances(60), "documents of 4": in_documents([4] * 25)}
    for name, draw in sets.items():
        for size in (1, 6):
            shown = told = 0
            for _ in range(few):
                pilot, *_ = correct([compared(draw, rng)] * size)
                if pilot.minimum_detectable is None or pilot.minimum_detectable > 0.6:
                    continue
                drawn = draw(rng, pilot.minimum_detectable)
                found = estimated(drawn.b - drawn.a, drawn.documents)
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
            found = estimated(d, np.repeat(np.arange(len(chosen)), sizes[0]).tolist())
            told += 1
            shown += found.p_value() <= WRONG
            if told == few:
                break
        if told:
            yield power(f"needed, {name}", shown, told)


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


def best_chosen(runs: int, rng: Rng) -> Iterator[Outcome]:
    """The best of 16 candidates that are alike, over documents: its corrected mean."""
    few = runs // 10
    inside = 0
    document = np.repeat(np.arange(25), 2)
    for seed in range(few):
        chance = rng.beta(0.5, 0.8, 25)[document]
        scores = (rng.random((16, 50)) < chance).astype(float)
        best = corrected_best(
            scores, (0.0, 1.0), clusters=document.tolist(), seed=seed, resamples=300
        )
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
                    level = repeats_differ(a, names) or repeats_differ(b, names)
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
    "better": (single_questions, clustered, families, chosen_best),
    "worse": (single_questions, clustered, families, chosen_best),
    "holds unless more than": (lost_documents,),
    "by less than the margin": (families,),
    "equivalent within": (single_questions, families),
    "use": (recommended,),
    "usually": (compiling,),
    "no significant difference": (),
    "the two score the same": (),
    "too few questions to say": (),
    "it needs more seeds: about": (more_seeds,),
    "a new run of about": (planned,),
    "to show the largest that the interval holds": (planned,),
    "detectable": (planned,),
    "helps": (compiling,),
    "hurts": (compiling,),
    "nothing that matters": (single_questions, families),
    "no significant effect": (),
    "more than": (single_questions, clustered),
    "less than": (single_questions, clustered),
    "also": (single_questions, clustered),
    "the reverse": (single_questions, clustered),
    "not significantly": (),
    "not tested": (),
    "low and high": (single_questions, compiling, best_chosen, asked_again),
}


def main() -> None:
    """Run every scenario once, print its outcomes, and end with 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
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
    print(f"{outcomes} rates, {broken} bounds broken, {took:.1f} minutes of one processor")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
