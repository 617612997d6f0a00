"""Measures how often verdicts are wrong: coverage, false claims and power, by simulation.

Every table stands beside an alternative in the same run: the percentile bootstrap with sign flips,
questions without their clusters, one seed for many, looks without correction.

    python benchmarks/calibration.py [--runs 2000] [--seed 0]

Standard errors: 0.5 points for a rate of 5 % at 2,000 runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ragbench.metrics.stats.betting import betting_interval, e_process
from ragbench.metrics.stats.comparison import Method, compare_scores, correct
from ragbench.metrics.stats.estimates import estimate_mean, mean_interval
from ragbench.metrics.stats.seeds import estimate_difference
from ragbench.metrics.stats.selection import corrected_best
from ragbench.metrics.stats.significance import sign_flip_p

Floats = NDArray[np.float64]
Rng = np.random.Generator
#: Draws the differences of n questions.
Draw = Callable[[Rng, int], Floats]
SIZES = (20, 40, 100, 300)
REACH = (-1.0, 1.0)


def f1_scores(rng: Rng, n: int) -> Floats:
    """F1 of answers: 40 % right, a third of the others partly."""
    partial = np.where(rng.random(n) < 0.35, np.round(rng.beta(2, 2, n), 2), 0.0)
    return np.where(rng.random(n) < 0.4, 1.0, partial)


def changed(share: float) -> Draw:
    """A `share` of the answers is drawn anew, to no better or worse."""

    def draw(rng: Rng, n: int) -> Floats:
        a = f1_scores(rng, n)
        return np.where(rng.random(n) < share, f1_scores(rng, n), a) - a

    return draw


def improved(share: float) -> Draw:
    """A `share` of the answers changes, four of five for the better."""

    def draw(rng: Rng, n: int) -> Floats:
        sizes = np.where(rng.random(n) < 0.6, 1.0, np.round(rng.beta(2, 2, n), 2))
        signs = np.where(rng.random(n) < 0.8, 1.0, -1.0)
        return np.where(rng.random(n) < share, signs * sizes, 0.0)

    return draw


def independent(rng: Rng, n: int) -> Floats:
    """Two runs of one program, each answer drawn by its question's own chance."""
    chance = rng.beta(0.5, 0.8, n)
    return np.asarray(_answers(rng, chance) - _answers(rng, chance))


def _answers(rng: Rng, chance: Floats) -> Floats:
    partial = np.where(rng.random(len(chance)) < 0.35, np.round(rng.beta(2, 2, len(chance)), 2), 0)
    return np.where(rng.random(len(chance)) < chance, 1.0, partial)


def skewed(share: float, gain: float) -> Draw:
    """Most questions gain a little, a `share` loses as much in all: the mean is 0."""
    loss = gain * (1 - share) / share
    return lambda rng, n: np.where(rng.random(n) < share, -loss, gain)


CASES: dict[str, Draw] = {
    "5 % change": changed(0.05),
    "15 % change": changed(0.15),
    "40 % change": changed(0.40),
    "independent A/A": independent,
    "skewed, 5 %": skewed(0.05, 0.05),
    "skewed, 10 %": skewed(0.10, 0.10),
    "skewed, 20 %": skewed(0.20, 0.20),
    "5 % change, better": improved(0.05),
    "15 % change, better": improved(0.15),
    "40 % change, better": improved(0.40),
}


def percentile(d: Floats, rng: Rng) -> tuple[float, float]:
    """The percentile bootstrap interval of 1,000 resamples."""
    means = d[rng.integers(len(d), size=(1_000, len(d)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def intervals(runs: int, rng: Rng) -> Iterable[str]:
    """Coverage and width of three intervals, and claims of two tests, for each case and size."""
    yield "coverage of 95 % intervals (mean width), and how often a difference is claimed"
    yield "(of a mean of 0 the claims are false; of the others they are power)"
    yield f"  {'case':20} {'n':>4} {'mean':>6}   plus-two          betting          bootstrap"
    yield f"  {'':32}   cover  width    cover  width    cover  width   t claims  flips claim"
    for name, draw in CASES.items():
        better = "better" in name
        mean = float(draw(rng, 2_000_000).mean()) if better else 0.0
        for n in SIZES:
            yield f"  {name:20} {n:4d} {mean:6.3f}   " + _interval_row(draw, n, mean, runs, rng)


def _interval_row(draw: Draw, n: int, mean: float, runs: int, rng: Rng) -> str:
    rows, claims = [], np.zeros(2)
    for i in range(runs):
        d = draw(rng, n)
        estimate = estimate_mean(d, REACH)
        assert estimate is not None
        plus, bet = estimate.interval(), None
        slow = i % 5 == 0  # the alternatives take longer: every fifth run
        if slow:
            bet = betting_interval(d, REACH)
            boot = percentile(d, rng)
        claims += (estimate.p_value() <= 0.05, sign_flip_p(d, n=199) <= 0.05)
        ends = [(plus.low, plus.high)]
        ends += [(bet.low, bet.high), boot] if bet else [(np.nan, np.nan)] * 2
        rows.append([(low <= mean <= high, high - low) for low, high in ends])
    table = np.array(rows, dtype=float)
    table[np.isnan(table[:, :, 1]), 0] = np.nan
    cells = [f"{c:6.1%} {w:6.3f}" for c, w in np.nanmean(table, axis=0)]
    return "   ".join(cells) + "   " + "      ".join(f"{c:6.1%}" for c in claims / runs)


def seeds(runs: int, rng: Rng) -> Iterable[str]:
    """False claims about an optimizer that does nothing but vary."""
    yield "an optimizer without effect, its programs' means of standard deviation s: false claims"
    yield "     n    s    1 seed   random effect of 3, 4, 5 seeds   power at +.10 of 3, 5 seeds"
    for n in (100, 300, 1000):
        for spread in (0.0, 0.02, 0.04):
            one = _seed_claims(1, n, spread, runs // 2, rng)
            many = [_seed_claims(s, n, spread, runs, rng) for s in (3, 4, 5)]
            shown = [_seed_claims(s, n, spread, runs // 4, rng, gain=0.1) for s in (3, 5)]
            cells = "  ".join(f"{c:6.1%}" for c in many)
            power = "  ".join(f"{c:6.1%}" for c in shown)
            yield f"  {n:4d}  {spread:.2f}   {one:6.1%}   {cells}           {power}"


def _seed_claims(count: int, n: int, spread: float, runs: int, rng: Rng, gain: float = 0) -> float:
    claims = 0
    for _ in range(runs):
        chance = rng.beta(0.5, 0.8, n)
        room = chance * (1 - chance)
        shift = (gain + rng.normal(0, spread, (count, 1))) * room / room.mean()
        before = (rng.random((1, n)) < chance).astype(float)
        after = (rng.random((count, n)) < chance + shift).astype(float)
        found = estimate_difference(before, after, REACH)
        assert found is not None
        claims += found.p_value() <= 0.05
    return claims / runs


def clusters(runs: int, rng: Rng) -> Iterable[str]:
    """False claims where questions of a cluster vary together."""
    yield "clusters whose questions correlate at .5, no difference: false claims (power at +.15)"
    yield "     n  size   questions alone   by cluster        design effect"
    for n in (40, 100, 300):
        for size in (5, 10):
            counts, effect = np.zeros(3), 0.0
            for _ in range(runs):
                groups = np.arange(n) // size
                own, shared = independent(rng, n), independent(rng, n)[groups]
                d = np.where(rng.random(n) < 0.5**0.5, shared, own)
                plain = estimate_mean(d, REACH)
                robust = estimate_mean(d, REACH, list(groups))
                shifted = estimate_mean(np.clip(d + 0.15, -1, 1), REACH, list(groups))
                assert plain is not None
                assert robust is not None
                assert shifted is not None
                effect += robust.design_effect / runs
                counts += [e.p_value() <= 0.05 for e in (plain, robust, shifted)]
            a, b, power = counts / runs
            row = f"{a:6.1%}            {b:6.1%} ({power:6.1%})   {effect:.1f}"
            yield f"  {n:4d}  {size:4d}   {row}"


def looks(runs: int, rng: Rng) -> Iterable[str]:
    """Six looks at growing data: false claims, power, and questions asked until decided."""
    at = (50, 100, 150, 200, 250, 300)
    yield f"six looks, after {', '.join(map(str, at))} questions: claims at any of them"
    yield "  case                  t at each look   betting at each look   t once at 300   asked"
    better: Draw = lambda rng, n: np.clip(independent(rng, n) + 0.2, -1, 1)  # noqa: E731
    for name, draw in {**dict(list(CASES.items())[:7]), "independent +.20": better}.items():
        counts, asked = np.zeros(3), 0
        for _ in range(runs // 2):
            d = draw(rng, at[-1])
            fixed = [_p(d[:n]) <= 0.05 for n in at]
            bets = [e_process(d[:n], 1.0).p <= 0.05 for n in at]
            counts += (any(fixed), any(bets), fixed[-1])
            asked += at[bets.index(True)] if any(bets) else at[-1]
        a, b, c = counts / (runs // 2)
        mean = asked / (runs // 2)
        row = f"{a:6.1%}           {b:6.1%}                 {c:6.1%}         {mean:.0f}"
        yield f"  {name:20}  {row}"


def _p(d: Floats) -> float:
    estimate = estimate_mean(d, REACH)
    return estimate.p_value() if estimate else 1.0


def detectable(runs: int, rng: Rng) -> Iterable[str]:
    """How often a family of six shows a difference of the printed detectable size."""
    yield "power at the detectable difference printed for a family of 6 (80 % is claimed)"
    for n in SIZES[1:]:
        shown = printed = 0.0
        for _ in range(runs // 4):
            d = independent(rng, n)
            pair = [_scores(np.zeros(n)), _scores(d)]
            family = correct([compare_scores(*pair, method=Method(flips=1))] * 6)
            least = family[0].minimum_detectable or np.nan
            printed += least / (runs // 4)
            other = independent(rng, n) + least  # new questions, of which the difference is true
            shown += _p(other) <= 0.05 / 6
        yield f"  n={n:<4d} printed {printed:.3f}: shown {shown / (runs // 4):6.1%}"


def _scores(values: Floats) -> dict[str, float]:
    return {f"q{i:04}": float(value) for i, value in enumerate(values)}


def families(runs: int, rng: Rng) -> Iterable[str]:
    """Families of EM and F1 of identical arms with a false verdict, through the whole path."""
    yield "identical arms, EM and F1 as one family: verdicts of a difference"
    for n in SIZES:
        wrong = 0
        for _ in range(runs // 2):
            chance = rng.beta(0.5, 0.8, n)
            a, b = _answers(rng, chance), _answers(rng, chance)
            pairs = [(a, b), (np.floor(a), np.floor(b))]
            made = [
                compare_scores(_scores(x), _scores(y), method=Method(flips=1)) for x, y in pairs
            ]
            wrong += any(c.verdict.startswith(("better", "worse")) for c in correct(made))
        yield f"  n={n:<4d} {wrong / (runs // 2):6.1%}"


def single_means(runs: int, rng: Rng) -> Iterable[str]:
    """Coverage of the interval of one arm's mean."""
    yield "coverage of the interval of one mean (share right: 2 %, 10 %, 40 %; F1)"
    for n in SIZES:
        cells = []
        for share in (0.02, 0.1, 0.4, None):
            mean = 0.4 + 0.6 * 0.35 * 0.5 if share is None else share
            hits = 0
            for _ in range(runs):
                x = f1_scores(rng, n) if share is None else (rng.random(n) < share).astype(float)
                found = mean_interval(x, (0.0, 1.0))
                hits += bool(found and found.low <= mean <= found.high)
            cells.append(f"{hits / runs:6.1%}")
        yield f"  n={n:<4d} {'  '.join(cells)}"


def best_of(runs: int, rng: Rng) -> Iterable[str]:
    """The best of 16 candidates that are all alike, on 50 questions."""
    found = []
    for seed in range(max(50, runs // 10)):
        base = f1_scores(rng, 50)
        fresh = np.stack([f1_scores(rng, 50) for _ in range(16)])
        scores = np.where(rng.random((16, 50)) < 0.4, fresh, base)
        best = corrected_best(scores, seed=seed, resamples=400)
        truth = 0.4 * 0.505 + 0.6 * float(base.mean())
        inside = best.interval.low <= truth <= best.interval.high
        found.append((best.seen - truth, best.corrected - truth, inside))
    seen, corrected, inside = np.mean(found, axis=0)
    yield (
        f"best of 16 equal candidates: looks {seen:+.3f}, corrected {corrected:+.3f}, "
        f"its interval covers {inside:.1%}"
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    tables = (
        intervals, families, single_means, seeds, clusters, looks, detectable, best_of,
    )  # fmt: skip
    for table in tables:
        for line in table(options.runs, rng):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
