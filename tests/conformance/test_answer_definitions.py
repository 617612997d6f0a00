"""Answer metrics against second writings of their published definitions, and hand-worked cases."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from ragbench.metrics.answer import best, musique_token_f1, squad_token_f1, token_f1
from ragbench.metrics.base import get_metric
from ragbench.metrics.drop import answer_of, drop_score, spans_of
from tests.conformance import definitions as published
from tests.metrics.records import record

PAIRS = 12_000
TOLERANCE = 1e-12

SAME = [
    ("em", published.exact),
    ("f1", published.hotpot_f1),
    ("squad_f1", published.squad_f1),
    ("musique", published.musique_f1),
]


def scored(name: str, pred: str, golds: list[str]) -> float | None:
    """The score by the metric `name`; `musique` is `f1` on a question of that data set."""
    if name == "musique":
        return get_metric("f1").score(record(pred, answers=golds, extra={"f1": "musique"}))
    return get_metric(name).score(record(pred, answers=golds))


@pytest.mark.parametrize(("name", "definition"), SAME)
def test_metric_equals_the_published_definition(
    name: str, definition: Callable[[str, str], float]
) -> None:
    seen = set()
    for pred, golds in published.adversarial_pairs(PAIRS):
        expected = max(float(definition(pred, gold)) for gold in golds)
        got = scored(name, pred, golds)
        assert got == pytest.approx(expected, abs=TOLERANCE), (pred, golds)
        seen.add(got)
    assert {0.0, 1.0} < seen or (seen == {0.0, 1.0} and name.endswith("em"))


def test_drop_equals_the_published_definition() -> None:
    pairs = list(published.adversarial_pairs(PAIRS, seed=1))
    for index, (pred, golds) in enumerate(pairs):
        spans = [pred] if index % 3 else [pred, *pairs[index - 1][1]]
        em, f1 = drop_score(spans, golds)
        assert em == published.drop_exact(spans, golds), (spans, golds)
        # The definition rounds to two decimals; a half may fall either way by its last bit.
        assert abs(f1 - float(published.drop_f1(spans, golds))) <= 0.005 + 1e-9, (spans, golds)
        assert f1 == round(f1, 2)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=25)


@settings(max_examples=300, deadline=None)
@given(text, st.lists(text, min_size=1, max_size=4))
def test_properties_that_every_f1_has(pred: str, golds: list[str]) -> None:
    for compare in (token_f1, squad_token_f1, musique_token_f1):
        score = best(compare, pred, golds)
        assert 0.0 <= score <= 1.0
        assert compare(pred, golds[0]) == pytest.approx(compare(golds[0], pred))
        assert best(compare, pred, [*golds, "another"]) >= score
        if published.words(pred):
            assert best(compare, pred, [*golds, pred.upper().lower()]) >= score
            assert compare(pred, pred) == 1.0


# name, prediction, gold answers, score worked by hand
CASES = {
    "two answers that normalise to nothing match": ("em", "The", ["..."], 1.0),
    "their hotpotqa f1 is 0 all the same": ("f1", "The", ["..."], 0.0),
    "their musique f1 is 1": ("musique", "The", ["..."], 1.0),
    "no against no way is 0 in hotpotqa": ("f1", "no way", ["no"], 0.0),
    "no against no way is 2/3 in squad": ("squad_f1", "no way", ["no"], 2 / 3),
    "the best alias counts": ("musique", "Hall", ["G. Stanley Hall", "Hall"], 1.0),
    "em and f1 may take different aliases": ("f1", "x y", ["x", "y x z"], 0.8),
    "one digit is one point zero in drop": ("drop_em", "1", ["1.0"], 1.0),
    "a thousands comma is dropped in drop": ("drop_em", "1,000", ["1000"], 1.0),
    "a missed number costs all in drop": ("drop_f1", "12 May", ["13 May"], 0.0),
    "a shared number lets words count in drop": ("drop_f1", "12 May", ["12 June"], 0.5),
    "drop rounds each question": ("drop_f1", "x", ["x y"], 0.67),
    "drop as ircot uses it knows no aliases": ("drop_em", "b", ["a man", "b"], 0.0),
    "drop reads a chain of thought": ("drop_em", "So the answer is: Oslo.", ["Oslo"], 1.0),
    "drop mends curly quotes": ("drop_em", "O\u2019Brien", ["O'Brien"], 1.0),
    "contain finds the gold in a sentence": ("contain", "It is the Oslo fjord.", ["Oslo"], 1.0),
    "contain also finds it inside a word": ("contain", "Christmas", ["Christ"], 1.0),
    "contain rewards yes inside yesterday": ("contain", "yesterday", ["yes"], 1.0),
    "contain finds no in no blank answer": ("contain", "noanswer", ["no"], 0.0),
    "contain finds answer in no blank answer": ("contain", "Noanswer.", ["answer"], 0.0),
    "contain does not reward an empty gold": ("contain", "anything", ["The"], 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_hand_worked(case: str) -> None:
    name, pred, golds, expected = CASES[case]
    assert scored(name, pred, golds) == pytest.approx(expected)


def test_a_list_is_split_at_commas_as_ircot_does() -> None:
    assert spans_of('["Oslo", "Bergen"]') == ["Oslo", " Bergen"]
    assert spans_of("Oslo, Norway") == ["Oslo, Norway"]
    assert spans_of("Oslo, Bergen]") == ["Oslo", " Bergen"]
    assert drop_score(["Oslo", "Bergen"], ["Bergen", "Oslo"]) == (1.0, 1.0)
    assert drop_score(["Oslo", "Bergen"], ["Oslo"]) == (0.0, 0.5)
    assert drop_score(["x", "x"], ["x"]).em == 0.0


def test_the_last_answer_is_counts_and_one_full_stop_goes() -> None:
    assert answer_of("First the answer is A. Then the answer is: B..") == "B."
    assert answer_of('"quoted"') == "quoted"
    assert answer_of("The answer is C") == "C"
    assert answer_of("answer is D") == "answer is D"
