"""The words of a verdict, its arms and looks, votes at equal cost, and when a compile pays back."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from ragbench.experiments.compare.arms import clusters_of, mostly_right
from ragbench.experiments.compare.break_even import PayBack
from ragbench.experiments.compare.design import Design, VerdictRequest, conclusion, subject
from ragbench.experiments.compare.looks import (
    Look,
    Seen,
    keep_look,
    looks_in_words,
    read_looks,
    schedule,
)
from ragbench.experiments.compare.running import votes_for
from ragbench.experiments.records.stored import Shelf, StoredRecords
from ragbench.record import Record, Totals
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
        ("these 2 compiled programs", ["worse", "better"], "hurt"),
        ("this compiled program", ["equivalent", "better"], "changes nothing that matters"),
        ("these 3 compiled programs", ["no", "better"], "are not shown to help or to hurt"),
    ],
)
def test_conclusions(who: str, words: list[str], said: str) -> None:
    found = dict(zip(PAIRS, [*words, "better"], strict=True))
    assert conclusion(who, found) == f"{who} {said}"


def test_conclusions_read_the_votes_at_equal_cost() -> None:
    def said(overall: str, tokens: str, usd: str | None = None) -> str:
        words = {("zero-shot", "compiled"): overall, ("form", "compiled"): "better"}
        words["votes", "compiled"] = tokens
        if usd:
            words["votes-usd", "compiled"] = usd
        return conclusion("compiling", words)

    assert said("better", "better") == (
        "compiling helps, more than repairing the answer's form and more than votes for as many "
        "tokens"
    )
    assert said("better", "worse", "no difference shown") == (
        "compiling helps, more than repairing the answer's form, but less than votes for as many "
        "tokens and not shown to help more than votes for as many dollars"
    )
    assert said("no difference shown", "worse") == (
        "compiling is not shown to help or to hurt, and is worse than votes for as many tokens"
    )


def test_designs_of_earlier_versions_are_read() -> None:
    old = {"seeds": [0, 1], "votes": 4, "metrics": ["em"], "margin": None}
    design = Design.from_dict(old)
    assert design.folders()["votes"] == ["votes-4"]
    assert ("form", "compiled") in design.contrasts()
    assert "compiled-form" not in design.folders()


def test_looks_grow_by_half() -> None:
    assert schedule(20, 100) == [20, 30, 45, 68, 100]
    assert schedule(20, 20) == [20]
    assert schedule(50, 20) == [20]


@pytest.mark.parametrize(
    ("pay", "questions", "words"),
    [
        (PayBack(10.0, 3.0, 1.0), 5, "pays back after 5 questions"),
        (PayBack(10.0, 4.0, 1.0), 4, "pays back after 4 questions"),
        (PayBack(10.0, 1.0, 3.0), None, "never pays back"),
        (PayBack(10.0, 1.0, 1.0), None, "never pays back"),
        (PayBack(None, None, None), None, "unknown"),
        (PayBack(0.0, 0.0, 0.0), None, "nothing is spent"),
    ],
)
def test_break_even(pay: PayBack, questions: int | None, words: str) -> None:
    assert pay.questions == questions
    assert words in pay.words()


def test_who_a_verdict_is_on() -> None:
    three = Design((0, 1, 2))
    assert subject(three, 3) == "compiling"
    assert subject(three, 2) == "these 3 compiled programs"
    assert subject(Design((0,)), 1) == "this compiled program"
    assert subject(Design((0, 1, 2), exact=True), 3) == "these 3 compiled programs"
    assert subject(Design((0, 1, 2), anytime=True), 3) == "these 3 compiled programs"


def test_arms_and_contrasts_of_a_design() -> None:
    whole = Design((4, 5), votes=3.25, votes_usd=2, form_too=True)
    assert whole.folders() == {
        "zero-shot": ["zero-shot"],
        "form": ["form"],
        "compiled": ["compiled-4", "compiled-5"],
        "compiled-form": ["compiled-form-4", "compiled-form-5"],
        "votes": ["votes-3.25"],
        "votes-usd": ["votes-usd-2"],
    }
    assert whole.contrasts() == [
        ("zero-shot", "compiled"),
        ("form", "compiled-form"),
        ("zero-shot", "form"),
        ("votes", "compiled"),
        ("votes-usd", "compiled"),
    ]
    assert VerdictRequest().equal_cost
    assert VerdictRequest().form_too


def costs(tokens: float, usd: float | None) -> Any:
    as_if = Totals(prompt_tokens=int(tokens * 9), completion_tokens=int(tokens), cost_usd=usd)
    return SimpleNamespace(summary=SimpleNamespace(n=10, as_if=as_if))


@pytest.mark.parametrize(
    ("before", "after", "votes"),
    [
        ((100, 1.0), (340, 3.4), (3.4, 0.0)),
        ((100, 1.0), (340, 2.0), (3.4, 2.0)),
        ((100, 1.0), (340, 1.05), (3.4, 0.0)),
        ((100, 1.0), (109, 1.0), (0.0, 0.0)),
        ((100, 1.0), (50, 3.0), (0.0, 3.0)),
        ((100, None), (200, None), (2.0, 0.0)),
        ((0, None), (200, None), (0.0, 0.0)),
        ((1, 0.1), (500, 50.0), (99.0, 0.0)),
    ],
)
def test_votes_cost_as_much_as_compiled(before: Any, after: Any, votes: Any) -> None:
    assert votes_for(costs(*before), [costs(*after)]) == votes


def test_looks_are_kept_once_and_damaged_lines_left_out(tmp_path: Any) -> None:
    one = Look(5, 10, False, (2.5, 0.0), (Seen("a", "b", "em", 0.1, 0.2, 0.3, "better"),))
    two = Look(8, 10, True, (2.5, 0.0), one.seen)
    for look in (one, two, one):
        keep_look(tmp_path, look)
    assert read_looks(tmp_path) == [one, two]
    path = tmp_path / "looks.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.1", b"0.9", 1))
    assert read_looks(tmp_path) == [two]
    said = looks_in_words([one, two], 100.0, 0.25)
    assert said[0] == "look 1, 5 questions: b - a em +0.100, p 0.300, not decided"
    assert said[2] == (
        "decided after 8 of at most 10 questions, which saved about 200 tokens and $0.5000"
    )
    assert looks_in_words([two], 100.0, None)[-1].endswith("200 tokens")
    assert looks_in_words([one], 1.0, None)[-1] == "not decided after 5 of at most 10 questions"
    assert looks_in_words([], 1.0, None) == []


def records(gold: dict[str, list[str]], **extra: str) -> Any:
    return stored(
        record(qid=qid, gold_pids=pids, extra={"cluster": extra[qid]} if extra else {})
        for qid, pids in gold.items()
    )


def stored(records: Iterable[Record]) -> StoredRecords:
    found = list(records)
    places = {record.qid: place for place, record in enumerate(found)}
    return StoredRecords(Shelf(found.__getitem__), places)


def test_clusters_are_those_named_or_those_that_share_gold_passages() -> None:
    gold = {"a": ["p1"], "b": ["p1", "p2"], "c": ["p3"]}
    assert clusters_of(records(gold)) == {"a": "a", "b": "a", "c": "c"}
    assert clusters_of(records(gold, a="x", b="y", c="y")) == {"a": "x", "b": "y", "c": "y"}
    assert clusters_of(records({"a": ["p1"], "b": ["p2"]})) == {}
    assert clusters_of(records({"a": ["p1"], "b": ["p1"]})) == {}


def test_mostly_right_is_more_than_half_of_the_runs() -> None:
    def run(*answers: str) -> Any:
        names = zip("abc", answers, strict=True)
        return SimpleNamespace(records=stored(record(a, qid=qid) for qid, a in names))

    arm = [run("Norway", "Norway", "Chad"), run("Norway", "Chad", "Chad")]
    assert mostly_right(arm, "abc") == {"a"}
    assert mostly_right([*arm, run("Norway", "Norway", "Chad")], "abc") == {"a", "b"}
