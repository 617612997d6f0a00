"""Measures how often the words of a report are wrong, by simulation of what they claim.

`WORDS` lists every claim that a report can print, each with the scenarios that test it; a test
compares the list with the code. A claim is wrong at most 6 % of the time, an interval covers in
93 % at least, and what is said to be shown with 80 % power is shown in 75 to 90 %.

    python -m benchmarks.calibration [--runs 2000] [--seed 0] [--only WORD]

Ends with code 1 where a bound does not hold. The standard error of a rate of 5 % is half a point
at 2,000 runs; a bound fails only beyond two standard errors.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]
Rng = np.random.Generator
#: Draws the scores of both arms for n questions.
Draw = Callable[[Rng, int], tuple[Floats, Floats]]

WRONG, COVER, LEAST_POWER, MOST_POWER = 0.06, 0.93, 0.75, 0.90


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
        slack = 2 * math.sqrt(max(self.rate * (1 - self.rate), 1e-4) / self.runs)
        return self.low - slack <= self.rate <= self.high + slack


def wrong(what: str, count: float, runs: int) -> Outcome:
    """A claim that was false so often."""
    return Outcome(what, count / runs, runs, 0.0, WRONG)


def covers(what: str, count: float, runs: int) -> Outcome:
    """An interval that held the truth so often."""
    return Outcome(what, count / runs, runs, COVER, 1.0)


def power(what: str, count: float, runs: int) -> Outcome:
    """A difference that was shown so often."""
    return Outcome(what, count / runs, runs, LEAST_POWER, MOST_POWER)


def binary(share: float) -> Draw:
    """Two runs that are right on a `share` of all questions, each by chance of its own."""
    return lambda rng, n: (
        (rng.random(n) < share).astype(float),
        (rng.random(n) < share).astype(float),
    )


def repeated(rng: Rng, n: int) -> tuple[Floats, Floats]:
    """Two runs of one program: every question has a chance of its own."""
    chance = rng.beta(0.5, 0.8, n)
    return (rng.random(n) < chance).astype(float), (rng.random(n) < chance).astype(float)


def partial(rng: Rng, n: int) -> tuple[Floats, Floats]:
    """As `repeated`, by F1: a third of the wrong answers are partly right."""
    a, b = repeated(rng, n)
    part = [np.where(rng.random(n) < 0.35, np.round(rng.beta(2, 2, n), 2), 0.0) for _ in "ab"]
    return np.where(a == 1, 1.0, part[0]), np.where(b == 1, 1.0, part[1])


def skewed(rng: Rng, n: int) -> tuple[Floats, Floats]:
    """B loses much on a tenth of the questions and gains a little on the others: alike in mean."""
    loses = rng.random(n) < 0.1
    return np.full(n, 0.5), np.where(loses, 0.05, 0.55)


SAME: Mapping[str, Draw] = {
    "EM .02": binary(0.02), "EM .10": binary(0.1), "EM .40": binary(0.4), "A/A": repeated,
    "F1": partial, "skewed": skewed,
}  # fmt: skip


def flipped(rng: Rng, b: Floats, gain: float) -> Floats:
    """`b` with wrong answers made right, or right ones wrong, so that its mean moves by `gain`."""
    room = float((1 - b).mean()) if gain > 0 else float(b.mean())
    share = min(1.0, abs(gain) / room) if room else 0.0
    return np.where(rng.random(len(b)) < share, 1.0 if gain > 0 else 0.0, b)


def column(values: Floats) -> dict[str, float]:
    """Scores by question id."""
    return {f"q{i:06}": float(value) for i, value in enumerate(values)}


def compared(a: Floats, b: Floats, **method: object) -> Comparison:
    """The comparison of two arms."""
    return compare_scores(column(a), column(b), method=Method(**method))  # type: ignore[arg-type]


def better_or_worse(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Arms that are alike: one contrast, and a family of six."""
    for name, draw in SAME.items():
        for n in (20, 100, 300):
            claims = covered = 0
            for _ in range(runs):
                a, b = draw(rng, n)
                estimate = estimate_mean(b - a, (-1.0, 1.0))
                assert estimate is not None
                claims += estimate.p_value() <= 0.05
                ends = estimate.interval()
                covered += ends.low <= 0 <= ends.high
            yield wrong(f"better or worse, {name}, n={n}", claims, runs)
            yield covers(f"interval of a difference, {name}, n={n}", covered, runs)
    few = runs // 8
    false = 0
    for _ in range(few):
        made = [compared(*repeated(rng, 100)) for _ in range(6)]
        false += any(c.verdict.startswith(("better", "worse")) for c in correct(made))
    yield wrong("better or worse, a family of 6", false, few)


def equivalent(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Arms that differ by just the margin, in families of 1, 10 and 30."""
    margin, n = 0.05, 400
    few = runs // 5
    for size in (1, 10, 30):
        false = 0
        for _ in range(few):
            family = []
            for _ in range(size):
                a = rng.random(n) * 0.4 + 0.2
                family.append(compared(a, a + margin + rng.normal(0, 0.16, n), margin=margin))
            false += any(c.verdict.startswith("equivalent") for c in correct(family))
        yield wrong(f"equivalent, family of {size}", false, few)
    false = 0
    for _ in range(few):
        a, b = binary(0.02)(rng, n)
        false += compared(a, flipped(rng, b, margin), margin=margin).verdict.startswith("equiv")
    yield wrong("equivalent, EM .02", false, few)


def less_than_margin(runs: int, rng: Rng) -> Iterator[Outcome]:
    """A true difference of just the margin is not called a smaller one."""
    few, false = runs // 5, 0
    for _ in range(few):
        a = rng.random(400) * 0.4 + 0.2
        c = compared(a, a + 0.05 + rng.normal(0, 0.16, 400), margin=0.05)
        false += "by less than the margin" in c.verdict
    yield wrong("by less than the margin", false, few)


def detectable(runs: int, rng: Rng) -> Iterator[Outcome]:
    """New questions on which B gains what the report calls detectable, by flipped answers."""
    few = max(100, runs // 6)
    for name, draw in (("EM .02", binary(0.02)), ("EM .40", binary(0.4)), ("A/A", repeated)):
        for n in (20, 200) if name != "EM .02" else (200,):
            for size in (1, 6, 30):
                shown = told = 0
                for _ in range(few):
                    pilot = compared(*draw(rng, n))
                    (pilot, *_) = correct([pilot] * size)
                    if pilot.minimum_detectable is None or pilot.minimum_detectable > 0.6:
                        continue
                    a, b = draw(rng, n)
                    gained = flipped(rng, b, pilot.minimum_detectable)
                    estimate = estimate_mean(gained - a, (-1.0, 1.0))
                    assert estimate is not None
                    told += 1
                    shown += estimate.p_value() <= 0.05 / size
                if told >= 50:
                    yield power(f"detectable, {name}, n={n}, family of {size}", shown, told)


def needed(runs: int, rng: Rng) -> Iterator[Outcome]:
    """New runs of as many questions as a pilot's sentence names, of the difference it saw."""
    few = max(100, runs // 6)
    for name, draw in (("EM .10", binary(0.1)), ("EM .40", binary(0.4)), ("A/A", repeated)):
        for n in (20, 60):
            shown = told = 0
            while told < few:
                a, b = draw(rng, n)
                pilot = compared(a, b)
                if not (pilot.n_needed and "about" in pilot.verdict and pilot.n_needed < 20_000):
                    continue
                named = int(pilot.verdict.split("about ")[1].split()[0].replace(",", ""))
                chosen = rng.integers(0, n, named)  # questions like those of the pilot
                estimate = estimate_mean((b - a)[chosen], (-1.0, 1.0))
                assert estimate is not None
                told += 1
                shown += estimate.p_value() <= 0.05
            yield power(f"needed, {name}, pilots of {n}", shown, told)


def one_cluster(runs: int, rng: Rng) -> Iterator[Outcome]:
    """All questions need one passage: whatever they show, nothing is claimed."""
    false, few = 0, runs // 10
    for _ in range(few):
        d = 0.3 * rng.normal() + rng.normal(0, 0.1, 60)
        one = {q: "one" for q in column(d)}
        c = compared(np.zeros(60), np.clip(d, -1, 1), clusters=one)
        false += c.interval is not None or not c.verdict.startswith("no difference")
    yield wrong("one gold passage for all", false, few)


def clustered(runs: int, rng: Rng) -> Iterator[Outcome]:
    """No difference, and questions of a cluster that correlate at .5."""
    for n, size in ((100, 5), (300, 10)):
        groups = np.arange(n) // size
        claims = 0
        for _ in range(runs):
            (a, b), (c, d) = repeated(rng, n), repeated(rng, n)
            values = np.where(rng.random(n) < 0.5**0.5, (b - a)[groups], d - c)
            estimate = estimate_mean(values, (-1.0, 1.0), list(groups))
            assert estimate is not None
            claims += estimate.p_value() <= 0.05
        yield wrong(f"better or worse, clusters of {size}, n={n}", claims, runs)


def _seeded(rng: Rng, seeds: int, n: int, spread: float, gain: float) -> tuple[Floats, Floats]:
    """One arm that is not compiled, and `seeds` programs whose means vary by `spread`."""
    chance = rng.beta(0.5, 0.8, n)
    room = chance * (1 - chance)
    shift = (gain + rng.normal(0, spread, (seeds, 1))) * room / room.mean()
    before = (rng.random((1, n)) < chance).astype(float)
    return before, (rng.random((seeds, n)) < np.clip(chance + shift, 0, 1)).astype(float)


def compiling(runs: int, rng: Rng) -> Iterator[Outcome]:
    """An optimizer without effect whose programs vary; and the mean of its arm."""
    few = runs // 2
    for seeds in (3, 5):
        for spread in (0.0, 0.02, 0.04):
            claims = covered = 0
            for _ in range(few):
                before, after = _seeded(rng, seeds, 300, spread, 0.0)
                found = estimate_difference(before, after, (-1.0, 1.0))
                assert found is not None
                claims += found.p_value() <= 0.05
                arm = estimate_difference(np.zeros((1, 300)), after, (0.0, 1.0))
                assert arm is not None
                ends = arm.interval()
                covered += ends.low <= 0.5 / 1.3 <= ends.high
            yield wrong(f"compiling helps, {seeds} seeds, sd {spread}", claims, few)
            yield covers(f"mean of the compiled arm, {seeds} seeds, sd {spread}", covered, few)


def more_seeds(runs: int, rng: Rng) -> Iterator[Outcome]:
    """With the seeds that the report asks for, a gain is shown as often as it says."""
    few = max(60, runs // 20)
    shown = told = 0
    for _ in range(20 * few):
        if told == few:
            break
        before, after = _seeded(rng, 3, 200, 0.06, 0.05)
        pilot = compare_scores(
            {q: [v] for q, v in column(before[0]).items()},
            {f"q{i:06}": list(map(float, after[:, i])) for i in range(200)},
        )
        if not pilot.seeds_needed or pilot.seeds_needed > 100 or pilot.estimate is None:
            continue
        told += 1
        # As many programs, drawn with the variance and the gain that the pilot showed.
        of_seeds = math.sqrt(pilot.estimate.of_seeds * 3)
        n = pilot.n_needed or 200
        means = rng.normal(pilot.difference, of_seeds, (pilot.seeds_needed, 1))
        noise = rng.normal(0, pilot.sd, (1, n))
        found = estimate_difference(np.zeros((1, n)), means + noise, (-1.0, 1.0))
        assert found is not None
        shown += found.p_value() <= 0.05
    if told >= 30:
        yield Outcome(f"more seeds, {told} pilots", shown / told, told, LEAST_POWER, MOST_POWER)


def looking_again(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Six looks at arms that are alike, and the price that the report names."""
    at = (50, 75, 113, 170, 255, 300)
    few = runs // 2
    false = often = once = 0
    for _ in range(few):
        a, b = repeated(rng, at[-1])
        false += any(anytime_p((b - a)[:n], 1.0) <= 0.05 for n in at)
        a, b = repeated(rng, at[-1])
        d = flipped(rng, b, 0.1) - a
        often += any(anytime_p(d[:n], 1.0) <= 0.05 for n in at)
        estimate = estimate_mean(d, (-1.0, 1.0))
        assert estimate is not None
        once += estimate.p_value() <= 0.05
    yield wrong("decided, six looks", false, few)
    yield Outcome("power of six looks", often / few, few, 0.40, 0.65)
    yield Outcome("power of one look at the end", once / few, few, 0.80, 0.95)


#: Documents and the questions on each, where a whole document fails now and then.
DOCUMENTS: Mapping[str, Sequence[int]] = {
    "5 x 40": [40] * 5, "10 x 20": [20] * 10, "20 x 10": [10] * 20, "30 x 10": [10] * 30,
    "Zipf": [max(1, 60 // rank) for rank in range(1, 31)],
}  # fmt: skip


def lost_documents(
    rng: Rng, sizes: Sequence[int], chance: float, difference: float = 0.0
) -> tuple[Floats, NDArray[np.int64]]:
    """Differences of B, which loses a document with `chance` and gains a little on the others.

    Their mean is `difference`; a tenth of the answers change either way. With the documents.
    """
    documents = np.repeat(np.arange(len(sizes)), sizes)
    gain = (chance + difference) / (1 - chance)
    lost = rng.random(len(sizes)) < chance
    luck = rng.random(len(documents))
    changed = np.where(luck < 0.1 + gain, 1.0, np.where(luck > 0.9, -1.0, 0.0))
    return np.where(lost[documents], -1.0, changed), documents


def documents_fail(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Equal means, and a mean difference of just the margin: whole documents fail."""
    few = runs // 2
    for name, sizes in DOCUMENTS.items():
        for chance in (0.05, 0.1, 0.2):
            claims = covered = bets = close = held = 0
            for _ in range(few):
                d, documents = lost_documents(rng, sizes, chance)
                names = documents.tolist()
                estimate = estimate_mean(d, (-1.0, 1.0), names)
                assert estimate is not None
                claims += estimate.p_value() <= 0.05
                ends = estimate.interval()
                covered += ends.low <= 0 <= ends.high
                bets += anytime_p(cluster_means(d, names), 1.0) <= 0.05
                d, _ = lost_documents(rng, sizes, chance, -0.05)
                estimate = estimate_mean(d, (-1.0, 1.0), names)
                assert estimate is not None
                close += estimate.p_beyond(0.05) <= 0.05
                right = np.where(rng.random(len(sizes)) < chance, 0.0, 0.8)[documents]
                ends_of_mean = mean_interval(
                    (rng.random(len(right)) < right).astype(float), (0.0, 1.0), names
                )
                assert ends_of_mean is not None
                held += ends_of_mean.low <= 0.8 * (1 - chance) <= ends_of_mean.high
            at = f"{name} documents, lost {chance:g}"
            yield wrong(f"better or worse, {at}", claims, few)
            yield covers(f"interval of a difference, {at}", covered, few)
            yield wrong(f"decided, {at}", bets, few)
            yield wrong(f"equivalent, {at}", close, few)
            yield covers(f"interval of a mean, {at}", held, few)


def advised(runs: int, rng: Rng) -> Iterator[Outcome]:
    """The dearer program is better by just what it is worth: the cheaper is not to be advised."""
    few = runs // 2
    for n in (4, 20, 100, 400):
        false = 0
        for _ in range(few):
            a, b = repeated(rng, n)
            c = compared(a, flipped(rng, b, -0.05) if n > 4 else b)
            truth = 0.05 if n > 4 else 0.0
            false += c.p_behind(max(0.05, truth)) <= 0.05
        yield wrong(f"shown less than the worth below the best, n={n}", false, few)
    for name, sizes in DOCUMENTS.items():
        false = 0
        for _ in range(few):
            d, documents = lost_documents(rng, sizes, 0.1, -0.05)
            names = dict(zip(column(d), documents.tolist(), strict=True))
            zero = column(np.zeros(len(d)))
            c = compare_scores(zero, column(d), method=Method(clusters=names))
            false += c.p_behind(0.05) <= 0.05
        yield wrong(f"shown less than the worth below, {name} documents", false, few)


def seeds_fail(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Seeds that are alike are not told apart, and one of ten that fails is."""
    few = runs // 2
    false = shown = 0
    for _ in range(few):
        chance = rng.beta(0.5, 0.8, 100)
        scores = (rng.random((10, 100)) < chance).astype(float)
        false += p_seeds_alike(scores) <= 0.05
        scores[0] *= rng.random(100) < 0.5
        shown += p_seeds_alike(scores) <= 0.05
    yield wrong("usually, ten seeds alike", false, few)
    yield Outcome("usually, one seed of ten fails", shown / few, few, LEAST_POWER, 1.0)


def pays_back(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Programs that take the same on average, and one in thirty questions of B runs away."""
    few, most = runs // 2, 50
    for n in (10, 50, 200):
        false = covered = 0
        for _ in range(few):
            before = rng.integers(3, 7, n) * rng.lognormal(6, 0.2, n)
            usual = (4.5 - 0.03 * most) / 0.97 / 4.5
            calls = np.where(rng.random(n) < 0.03, most, usual * rng.integers(3, 7, n))
            after = calls * rng.lognormal(6, 0.2, n)
            dearest = most * 700.0
            c = compare_scores(
                column(before), column(after), higher_is_better=False, score_range=(0.0, dearest)
            )
            pay = PayBack(1000.0, float(before.mean()), float(after.mean()), saved(c))
            false += pay.words().startswith("pays back")
            covered += bool(c.interval and c.interval.low <= 0 <= c.interval.high)
        yield wrong(f"pays back, n={n}", false, few)
        yield covers(f"interval of what is saved, n={n}", covered, few)


def means(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Low and high of one arm's mean."""
    for share in (0.02, 0.1, 0.4):
        for n in (20, 100, 300):
            hits = 0
            for _ in range(runs):
                ends = mean_interval((rng.random(n) < share).astype(float), (0.0, 1.0))
                hits += bool(ends and ends.low <= share <= ends.high)
            yield covers(f"interval of a mean, EM {share}, n={n}", hits, runs)


def best_chosen(runs: int, rng: Rng) -> Iterator[Outcome]:
    """The best of 16 candidates that are alike: its corrected mean is within its interval."""
    few, inside = max(60, runs // 20), 0
    for seed in range(few):
        base = partial(rng, 50)[0]
        fresh = np.stack([partial(rng, 50)[0] for _ in range(16)])
        scores = np.where(rng.random((16, 50)) < 0.4, fresh, base)
        best = corrected_best(scores, seed=seed, resamples=300)
        truth = 0.4 * (0.385 + 0.615 * 0.35 * 0.5) + 0.6 * float(base.mean())
        inside += best.interval.low <= truth <= best.interval.high
    yield covers("corrected mean of the best of 16", inside, few)


def asked_again(runs: int, rng: Rng) -> Iterator[Outcome]:
    """Systems asked several times: mixes of the two variances, from questions to repeats alone.

    A question has a chance of its own to be answered rightly. `alike` is a system against itself,
    else each has chances of its own, with the same mean.
    """
    for mix in (0.2, 1.0, 5.0, 50.0):
        for alike in (True, False):
            for n, repeats in ((40, 3), (150, 2), (150, 5)):
                false = covered = 0
                for _ in range(runs):
                    chance = rng.beta(0.4 * mix, 0.6 * mix, (2, n))
                    if alike:
                        chance[1] = chance[0]
                    a, b = (rng.random((2, repeats, n)) < chance[:, None]).astype(float)
                    level = differ_as_wholes(a) or differ_as_wholes(b)
                    found = estimate_difference(a, b, (-1.0, 1.0), random_seeds=level)
                    assert found is not None
                    false += found.p_value() <= 0.05
                    ends = estimate_difference(0 * b, b, (0.0, 1.0), random_seeds=level)
                    assert ends is not None
                    covered += ends.interval().low <= 0.4 <= ends.interval().high
                name = f"{'A/A' if alike else 'A/B'}, mix {mix:g}, {repeats} of n={n}"
                yield wrong(f"asked again, {name}", false, runs)
                yield covers(f"mean of repeats, {name}", covered, runs)


Scenario = Callable[[int, Rng], Iterator[Outcome]]
#: Every claim that a report can print -> what tests it. Empty: it says that nothing is claimed.
WORDS: Mapping[str, tuple[Scenario, ...]] = {
    "better": (better_or_worse, clustered, documents_fail),
    "worse": (better_or_worse, clustered, documents_fail),
    "by less than the margin": (less_than_margin,),
    "equivalent within": (equivalent, documents_fail),
    "shown less than": (advised,),
    "usually": (seeds_fail,),
    "too few to tell": (),
    "no difference shown": (),
    "the two score the same": (),
    "too few questions to say": (),
    "all questions share a gold passage": (one_cluster,),
    "it needs more seeds: about": (more_seeds,),
    "a new run of about": (needed,),
    "to show the largest that the interval holds": (needed,),
    "detectable": (detectable,),
    "helps": (compiling,),
    "hurts": (compiling,),
    "nothing that matters": (equivalent,),
    "not shown to help or to hurt": (),
    "more than": (better_or_worse,),
    "less than": (better_or_worse,),
    "also": (better_or_worse,),
    "the reverse": (better_or_worse,),
    "not shown to help": (),
    "decided after": (looking_again, documents_fail),
    "not decided after": (),
    "looking again has its price": (looking_again,),
    "pays back after": (pays_back,),
    "not shown to pay back": (),
    "never pays back": (pays_back,),
    "low and high": (means, compiling, best_chosen, documents_fail, asked_again),
}


def main() -> None:
    """Run every scenario once, print its outcomes, and end with 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a scenario's name")
    options = parser.parse_args()
    scenarios = dict.fromkeys(one for some in WORDS.values() for one in some)
    broken = simulations = 0
    for number, scenario in enumerate(scenarios):
        if options.only not in scenario.__name__:
            continue
        began = time.monotonic()
        for found in scenario(options.runs, np.random.default_rng([options.seed, number])):
            mark = "" if found.holds else "  BROKEN"
            broken += not found.holds
            simulations += found.runs
            bounds = f"[{found.low:.2f}, {found.high:.2f}]"
            print(f"{found.what:55} {found.rate:7.3f} {bounds}{mark}", flush=True)
        print(f"  {scenario.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{simulations:,} simulations, {broken} bounds broken")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
