"""The words of a comparison and of a verdict, votes at equal cost, and when a compile pays back."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.calibration import WORDS
from ragbench.experiments.cells.verdict import reread, votes_for
from ragbench.experiments.compare.paired import Shared
from ragbench.experiments.compare.spending import BreakEven
from ragbench.experiments.compare.verdicts import Verdict
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.store import read_records
from ragbench.metrics import Method, compare_scores
from ragbench.record import Totals
from tests.experiments.scored_runs import make_verdict
from tests.metrics.records import record


@pytest.mark.parametrize(
    ("pay", "questions", "words"),
    [
        (
            BreakEven(10.0, 3.0, 1.0),
            5,
            "pays back after 5 questions, by the means of the questions",
        ),
        (BreakEven(10.0, 4.0, 1.0), 4, "pays back after 4 questions"),
        (BreakEven(10.0, 1.0, 3.0), None, "does not pay back by the means of the questions asked"),
        (BreakEven(10.0, 1.0, 1.0), None, "does not pay back"),
        (BreakEven(None, None, None), None, "unknown"),
        (BreakEven(0.0, 0.0, 0.0), None, "nothing is spent"),
    ],
)
def test_break_even(pay: BreakEven, questions: int | None, words: str) -> None:
    assert pay.questions == questions
    assert words in pay.words()


def seeded(spread: float, gain: float, **method: Any) -> Any:
    """Three programs whose means differ by about `spread`, against one that is not compiled."""
    rng = np.random.default_rng(0)
    after = 0.5 + gain + spread * np.array([[-1.0], [0.0], [1.0]]) + rng.normal(0, 0.1, (3, 200))
    return compare_scores(np.full((1, 200), 0.5), after, method=Method(**method))


def test_where_seeds_vary_it_takes_more_seeds() -> None:
    found = seeded(0.1, 0.04)
    assert found.verdict.startswith("no significant difference (it needs more seeds: about ")
    assert found.seeds_needed > 3
    assert found.n_needed == 200
    these = seeded(0.1, 0.04, random_seeds=False)
    assert (these.seeds_needed, these.verdict) == (None, "better")
    assert these.estimate.of_seeds == 0.0 < found.estimate.of_seeds
    width = [c.interval_b.high - c.interval_b.low for c in (these, found)]
    assert width[0] < width[1]
    more = seeded(0.001, 0.02)  # as many again, and not more seeds
    assert (more.seeds_needed, 200 < more.n_needed < 1000) == (None, True)
    alike = seeded(0.001, 0.05)
    assert (alike.seeds_needed, 10 < alike.n_needed < 200) == (None, True)


@pytest.mark.parametrize(("tokens", "votes"), [(3400, 4), (3200, 3), (1111, 3), (1099, 0)])
def test_votes_take_as_many_tokens_and_none_within_a_tenth(tokens: int, votes: int) -> None:
    def ran(spent: int) -> Any:
        return SimpleNamespace(summary=SimpleNamespace(n=1, as_if=Totals(prompt_tokens=spent)))

    assert votes_for([ran(1000)], [ran(tokens)]) == votes


def gains(spread: float, share: float, draw: int) -> tuple[list[bool], list[list[bool]]]:
    """Which of 150 questions are right before, and by ten programs that gain `share`.

    The programs' means differ by `spread` in their standard deviation, beside chance.
    """
    rng = np.random.default_rng(draw)
    before = rng.random(150) < 0.4
    programs = []
    for own in rng.normal(share, spread, 10):
        luck = rng.random(150)
        programs.append((np.where(before, luck > 0.25, luck < 0.17 + own)).tolist())
    return before.tolist(), programs


def test_usually_is_said_only_where_seeds_differ_by_more_than_their_questions(
    tmp_path: Path, command: Any
) -> None:
    """In both one of the ten programs is no better than before."""
    for spread, share, draw, words in ((0.0, 0.14, 25, ""), (0.1, 0.2, 1, "9 of 10 seeds")):
        before, programs = gains(spread, share, draw)
        assert sum(sum(program) > sum(before) for program in programs) == 9
        scores = np.array([before], dtype=float), np.array(programs, dtype=float), None
        verdict: Any = SimpleNamespace(_scores=lambda metric, scores=scores: scores)
        assert Verdict.share_of_seeds(verdict, "em") == words
    out = command("verdict", "--read", make_verdict(tmp_path / "v", before, programs))[1]
    assert "usually (9 of 10 seeds) improves em" in out


def test_repeats_of_an_arm_are_one_program(tmp_path: Path, command: Any) -> None:
    """Three programs, each asked three times, count as three."""
    before, programs = gains(0.05, 0.25, 3)
    before = before[:20]
    rng = np.random.default_rng(0)
    again = []
    for program in programs[:3]:
        again.append(program[:20])
        for _ in range(2):
            again.append((np.array(program[:20]) ^ (rng.random(20) < 0.1)).tolist())
    folder = make_verdict(tmp_path / "verdict", before, again, repeats=3)
    code, out, err = command("verdict", "--read", folder)
    assert code == 0, err
    means = [sum(map(sum, again[at : at + 3])) / 60 for at in (0, 3, 6)]
    assert f"Means of the seeds: {', '.join(f'{mean:.3f}' for mean in means)}" in out
    made = reread(folder)
    c = made.contrasts["zero-shot", "compiled"]["em"]
    alone = compare_scores(before, np.array(again).reshape(3, 3, 20).mean(axis=1))
    assert (c.p, c.interval, c.seeds) == (alone.p, alone.interval, 3)
    twice = make_verdict(tmp_path / "twice", before, again[:6], repeats=2)
    c = reread(twice).contrasts["zero-shot", "compiled"]["em"]
    assert (c.interval, c.interval_a, c.outcome) == (None, None, "undecided")
    assert "an interval over repeats needs three" in command("verdict", "--read", twice)[1]


def test_the_sentence_says_how_much_more_votes_took(tmp_path: Path, command: Any) -> None:
    before, programs = gains(0.0, 0.3, 1)
    for tokens, words in (
        ((100, 150, 300), "votes for 2.00 times its tokens"),
        ((100, 300, 300), "votes for as many tokens"),
    ):
        folder = tmp_path / str(tokens[1])
        make_verdict(folder, before, programs[:3], votes=before, tokens=tokens)
        out = command("verdict", "--read", folder)[1]
        assert f"  Against {words}: +0.209 " in out
        assert ("since votes are whole numbers" in out) == ("2.00" in words)


Folder = Callable[..., Path]


@pytest.mark.parametrize(
    ("gold", "named", "clusters"),
    [
        ("p1, p1 p2, p3", "", "a a c"),
        ("p1, p1 p2, p3", "xyy", "a b b"),
        ("p1, p2", "", ""),
        ("p1, p1", "", "a a"),
    ],
)
def test_clusters_are_those_named_or_those_that_share_gold_passages(
    gold: str, named: str, clusters: str, folder: Folder
) -> None:
    rows = [
        record(
            qid=qid,
            question=f"Who wrote {qid}?",
            gold_pids=pids.split(),
            extra={"cluster": named[n]} if named else {},
        )
        for n, (qid, pids) in enumerate(zip("abc", gold.split(","), strict=False))
    ]
    assert clusters_of(read_records(folder(*rows))) == dict(
        zip("abc", clusters.split(), strict=False)
    )


def test_clusters_that_only_some_records_name(folder: Folder) -> None:
    named = {"a": "x", "b": "x", "c": "y"}
    rows = [record(qid=q, gold_pids=[f"p{q}"], extra={"cluster": c}) for q, c in named.items()]
    rows += [record(qid=q, question=f"Who is {q}?", gold_pids=["shared"]) for q in "de"]
    assert clusters_of(read_records(folder(*rows))) == dict(zip("abcde", "aacdd", strict=True))
    of_file = [record(qid=q, question=q, gold_pids=[q], extra={"document": "x"}) for q in "fg"]
    every = read_records(folder(*rows, *of_file))
    assert clusters_of(every) == dict(zip("abcdefg", "aacddff", strict=True))


def test_mostly_right_is_more_than_half(folder: Folder) -> None:
    def run(*answers: str) -> Any:
        names = zip("abc", answers, strict=True)
        rows = [record(a, qid=qid) for qid, a in names]
        return SimpleNamespace(records=read_records(folder(*rows)))

    arm = [run("Norway", "Norway", "Chad"), run("Norway", "Chad", "Chad")]
    none = [run("Chad", "Chad", "Chad")]
    changed = Shared("abc", arm[0]).changed
    assert changed(none, arm) == (("a",), ())
    three = [*arm, run("Norway", "Norway", "Chad")]
    assert changed(three, none) == ((), ("a", "b"))
    assert changed(arm, three) == (("b",), ())


def test_every_verdict_is_of_calibrated_words() -> None:
    rng = random.Random(0)
    for n, gain, margin, clusters in itertools.product(
        (1, 4, 40), (-0.6, 0.0, 0.6), (None, 0.3), (0, 1, 10)
    ):
        a = [float(rng.random() < 0.3 - min(gain, 0)) for _ in range(n)]
        b = [max(0.0, min(1.0, x + gain * (rng.random() < 0.8))) for x in a]
        groups = [i % clusters for i in range(n)] if clusters else None
        verdict = compare_scores(a, b, groups, method=Method(margin=margin)).verdict
        assert any(word in verdict for word in WORDS), verdict


def test_every_claim_is_simulated() -> None:
    """What shows nothing claims nothing."""
    silent = [word for word, scenarios in WORDS.items() if not scenarios]
    assert all(word.startswith(("no", "the two", "too few")) for word in silent)
