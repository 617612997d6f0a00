"""The words of a verdict, its arms and looks, votes at equal cost, and when a compile pays back."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ragbench.experiments.compare.paired import clusters_of, mostly_right
from ragbench.experiments.compare.running import schedule, votes_for
from ragbench.experiments.compare.spending import PayBack, saved
from ragbench.experiments.compare.verdicts import (
    Design,
    Look,
    Verdict,
    VerdictRequest,
    conclusion,
    subject,
)
from ragbench.experiments.report.verdict import looks_in_words
from ragbench.experiments.store import StoredRecords, read_records
from ragbench.metrics import Interval, Method, compare_scores
from ragbench.record import Record, Totals
from tests.experiments.scored_runs import make_run
from tests.metrics.records import record

PAIRS = [("zero-shot", "compiled"), ("form", "compiled-form"), ("zero-shot", "form")]
LESS = "by less than the margin of 0.05"


@pytest.mark.parametrize(
    ("who", "words", "said"),
    [
        ("compiling", ["better", "better"], "helps, also where the answer's form is repaired"),
        (
            "compiling",
            ["better", "no difference shown"],
            "helps, but not shown to help where the answer's form is repaired",
        ),
        ("compiling", ["worse", "better"], "hurts"),
        ("compiling", [f"worse, {LESS}", "better"], f"hurts, {LESS}"),
        ("this set of 2 compiled programs", ["worse", "better"], "hurts"),
        ("this compiled program", ["equivalent", "better"], "changes nothing that matters"),
        ("this set of 3 compiled programs", ["no", "better"], "is not shown to help or to hurt"),
    ],
)
def test_conclusions(who: str, words: list[str], said: str) -> None:
    found = dict(zip(PAIRS, [*words, "better"], strict=True))
    assert conclusion(who, found) == f"{who} {said}"


def test_conclusions_read_the_votes_at_equal_cost() -> None:
    def said(overall: str, tokens: str) -> str:
        words = {("zero-shot", "compiled"): overall, ("form", "compiled"): "better"}
        words["votes", "compiled"] = tokens
        return conclusion("compiling", words)

    assert said("better", "better") == (
        "compiling helps, more than repairing the answer's form and more than votes for as many "
        "tokens"
    )
    assert said("better", "worse") == (
        "compiling helps, more than repairing the answer's form, but less than votes for as many "
        "tokens"
    )
    assert said("better", "no difference shown").endswith(
        ", but not shown to help more than votes for as many tokens"
    )
    assert said("no difference shown", "worse") == (
        "compiling is not shown to help or to hurt, and is worse than votes for as many tokens"
    )


def test_looks_grow_by_half() -> None:
    assert schedule(20, 100) == [20, 30, 45, 68, 100]
    assert schedule(20, 20) == [20]
    assert schedule(50, 20) == [20]


@pytest.mark.parametrize(
    ("pay", "questions", "words"),
    [
        (PayBack(10.0, 3.0, 1.0, Interval(1, 4)), 5, "pays back after 5 questions (3 to 10)"),
        (PayBack(10.0, 4.0, 1.0, Interval(2, 4)), 4, "pays back after 4 questions (3 to 5)"),
        (PayBack(10.0, 3.0, 1.0, Interval(-1, 5)), None, "not shown to pay back: it saves -1 to 5"),
        (PayBack(10.0, 1.0, 3.0, Interval(-3, -1)), None, "never pays back"),
        (PayBack(10.0, 3.0, 1.0), None, "not known: too few questions"),
        (PayBack(None, None, None), None, "unknown"),
        (PayBack(0.0, 0.0, 0.0), None, "nothing is spent"),
    ],
)
def test_break_even(pay: PayBack, questions: int | None, words: str) -> None:
    assert pay.questions == questions
    assert words in pay.words()


def test_what_is_saved_is_the_difference_turned_round() -> None:
    before = {f"q{n}": 10.0 + n % 3 for n in range(30)}
    after = {qid: value - 4 - n % 2 for n, (qid, value) in enumerate(before.items())}
    found = saved(compare_scores(before, after, higher_is_better=False, score_range=None))
    assert found is not None
    assert 4 < found.low < 4.5 < found.high < 5
    assert saved(None) is None


def test_who_a_verdict_is_on() -> None:
    three = Design((0, 1, 2))
    assert subject(three, 3, 20) == "compiling on these 20 questions"
    assert subject(three, 2, 20) == "this set of 3 compiled programs"
    assert subject(Design((0,)), 1, 20) == "this compiled program"
    assert subject(Design((0, 1)), 2, 20) == "this set of 2 compiled programs"
    assert subject(Design((0, 1, 2), anytime=True), 3, 20) == "this set of 3 compiled programs"


def seeded(spread: float, gain: float, **method: Any) -> Any:
    """Three programs whose means differ by about `spread`, against one that is not compiled."""
    rng = np.random.default_rng(0)
    after = 0.5 + gain + spread * np.array([[-1.0], [0.0], [1.0]]) + rng.normal(0, 0.1, (3, 200))
    before = {f"q{n}": [0.5] for n in range(200)}
    return compare_scores(
        before, {f"q{n}": list(after[:, n]) for n in range(200)}, method=Method(**method)
    )


def test_where_seeds_vary_it_takes_more_seeds() -> None:
    found = seeded(0.1, 0.04)
    assert found.verdict.startswith("no difference shown (it needs more seeds: about ")
    assert found.seeds_needed > 3
    assert found.n_needed == 200
    these = seeded(0.1, 0.04, random_seeds=False)
    assert (these.seeds_needed, these.verdict) == (None, "better")
    assert these.estimate.of_seeds == 0.0 < found.estimate.of_seeds
    width = [c.interval_b.high - c.interval_b.low for c in (these, found)]
    assert width[0] < width[1]
    alike = seeded(0.001, 0.05)
    assert (alike.seeds_needed, 10 < alike.n_needed < 200) == (None, True)


def test_decided_is_every_metric() -> None:
    def decided(*words: str) -> bool:
        by_metric = {str(n): SimpleNamespace(verdict=word) for n, word in enumerate(words)}
        made: Any = SimpleNamespace(contrasts={("zero-shot", "compiled"): by_metric})
        return Verdict.decided(made)

    assert decided("better", "worse")
    assert not decided("better", "no difference shown")
    assert not decided("no difference shown", "no difference shown")


def test_arms_and_contrasts_of_a_design() -> None:
    whole = Design((4, 5), votes=3.25, form_too=True)
    assert whole.folders() == {
        "zero-shot": ["zero-shot"],
        "form": ["form"],
        "compiled": ["compiled-4", "compiled-5"],
        "compiled-form": ["compiled-form-4", "compiled-form-5"],
        "votes": ["votes-3.25"],
    }
    assert whole.contrasts() == [
        ("zero-shot", "compiled"),
        ("form", "compiled-form"),
        ("zero-shot", "form"),
        ("votes", "compiled"),
    ]
    assert VerdictRequest().equal_cost
    assert VerdictRequest().form_too


def costs(tokens: int) -> Any:
    as_if = Totals(prompt_tokens=tokens * 9, completion_tokens=tokens)
    return SimpleNamespace(summary=SimpleNamespace(n=10, as_if=as_if))


@pytest.mark.parametrize(
    ("before", "after", "votes"),
    [
        (100, 340, 3.4),
        (100, 109, 0.0),
        (100, 50, 0.0),
        (0, 200, 0.0),
        (1, 500, 99.0),
    ],
)
def test_votes_cost_as_much_as_compiled(before: int, after: int, votes: float) -> None:
    assert votes_for(costs(before), [costs(after)]) == votes


def test_what_votes_took_is_a_share_of_what_compiled_took() -> None:
    arms = {"votes": [costs(100)], "compiled": [costs(200)]}
    assert Verdict.matched(SimpleNamespace(arms=arms)) == 0.5  # type: ignore[arg-type]


def test_what_stopping_saved_counts_against_the_questions_that_there_are() -> None:
    one = Look(5, 10, False, 2.5, "em", 0.1, 0.3)
    two = Look(8, 10, True, 2.5, "em", 0.1, 0.01)
    said = looks_in_words([one, two], 100.0, 0.25)
    assert said[0] == "look 1, 5 questions: compiled - zero-shot em +0.100, p 0.300, not decided"
    assert said[2] == (
        "decided after 8 of at most 10 questions, which saved about 200 tokens and $0.5000"
    )
    assert said[3].startswith("looking again has its price")
    assert looks_in_words([two], 100.0, None)[1].endswith("200 tokens")
    assert looks_in_words([one], 1.0, None)[1] == "not decided after 5 of at most 10 questions"
    whole = replace(two, questions=10)
    assert looks_in_words([whole], 1.0, None)[1] == "decided after 10 of at most 10 questions"
    assert looks_in_words([], 1.0, None) == []


def records(gold: dict[str, list[str]], **extra: str) -> Any:
    return stored(
        record(qid=qid, gold_pids=pids, extra={"cluster": extra[qid]} if extra else {})
        for qid, pids in gold.items()
    )


def stored(records: Iterable[Record]) -> StoredRecords:
    """`records` as a run on disk has them."""
    with tempfile.TemporaryDirectory() as folder:
        found = read_records(make_run(Path(folder), records))
        list(found.values())  # read before the folder goes
        return found


def test_clusters_are_those_named_or_those_that_share_gold_passages() -> None:
    gold = {"a": ["p1"], "b": ["p1", "p2"], "c": ["p3"]}
    assert clusters_of(records(gold)) == {"a": "a", "b": "a", "c": "c"}
    assert clusters_of(records(gold, a="x", b="y", c="y")) == {"a": "x", "b": "y", "c": "y"}
    assert clusters_of(records({"a": ["p1"], "b": ["p2"]})) == {}
    assert clusters_of(records({"a": ["p1"], "b": ["p1"]})) == {"a": "a", "b": "a"}


def test_mostly_right_is_more_than_half_of_the_runs() -> None:
    def run(*answers: str) -> Any:
        names = zip("abc", answers, strict=True)
        return SimpleNamespace(records=stored(record(a, qid=qid) for qid, a in names))

    arm = [run("Norway", "Norway", "Chad"), run("Norway", "Chad", "Chad")]
    assert mostly_right(arm, "abc") == {"a"}
    assert mostly_right([*arm, run("Norway", "Norway", "Chad")], "abc") == {"a", "b"}
