"""Answer metrics on records: failures, names, cases by hand; official scores: tests/conformance."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.errors import UnknownNameError
from ragbench.metrics import METRICS, get_metric, metric_names
from ragbench.metrics.drop import answer_of, drop_score, spans_of
from ragbench.metrics.text import is_blank, normalise_answer
from ragbench.record import Call
from tests.metrics.records import failure, record

ANSWER_METRICS = ["em", "f1", "squad_f1", "drop_em", "drop_f1", "contain"]
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
#: What the second paragraph of the docs says of failed questions.
NAMED = set(
    re.findall(r"`(\w+)`", DOCS.read_text("utf-8").split("worst score.")[1].split("A metric")[0])
)
TRIPLES = {"evidences": [["Ann Lee", "place of birth", "Oslo"]]}


def test_get_metric_if_unknown_names_similar_metrics() -> None:
    assert len(metric_names()) <= 51  # with five that take a cut-off
    assert "sp_f1" in metric_names()
    assert "sp_recall" not in metric_names()  # parts of a family are known on request
    assert get_metric("sp_recall").description.startswith("recall")
    with pytest.raises(UnknownNameError, match="squad_f1"):
        get_metric("squad_f2")


def test_metric_if_the_question_failed_has_its_worst_score() -> None:
    failed = replace(failure(), extra=TRIPLES)
    embedding = Call("e", kind="embed", prompt_tokens=7)
    ledger = replace(failed.ledger, calls=[*failed.ledger.calls, embedding])
    for name in metric_names():
        metric = get_metric(name.replace("@K", "@3"))
        assert metric.description
        score = metric.score(replace(failed, ledger=ledger))
        assert (score == metric.worst) is (name not in NAMED), name
        for sample in (record(), failure(), record(pids=()), record(gold_pids=[], support=[])):
            value = metric.score(sample)
            assert value is None or isinstance(value, float), name
            if value is not None and metric.score_range:
                assert metric.score_range[0] <= value <= metric.score_range[1], name
    for name in ANSWER_METRICS:
        metric = METRICS.get(name)
        broken = replace(record("Norway"), failure=failed.failure)
        assert [metric.score(r) for r in (record("Norway"), record(None), broken)] == [1, 0, 0]
    assert get_metric("answer_length").score(record("It is Norway, of course")) == 5.0
    assert get_metric("answer_length").score(failure()) is None


@pytest.mark.parametrize(
    ("name", "pred", "golds", "expected"),
    [
        ("f1_chars", "北京市", ["北京"], 0.8),
        ("f1", "北京市", ["北京"], 0.0),
        ("f1_chars", "「東京 タワー」。", ["東京タワー"], 1.0),
        ("f1_chars", "สวัสดี", ["สวัสดี"], 1.0),
        ("f1_chars", "Ann Bo", ["Ann Lee"], 0.5),
        ("f1_chars", "iPhone 手机", ["iphone"], 0.5),
        ("squad_f1", "no way", ["no"], 2 / 3),  # where HotpotQA's is 0
        ("squad_f1", "The", ["..."], 0.0),
        ("contain", "It is the Oslo fjord.", ["Oslo"], 1.0),
        ("contain", "yesterday", ["yes"], 1.0),  # also inside a word
        ("contain", "noanswer", ["no"], 0.0),  # but not in a blank answer
        ("contain", "Noanswer.", ["answer"], 0.0),
        ("contain", "anything", ["The"], 0.0),  # nor an empty gold
    ],
)
def test_by_hand(name: str, pred: str, golds: list[str], expected: float) -> None:
    assert get_metric(name).score(record(pred, answers=golds)) == pytest.approx(expected)


def test_drop_score_of_spans_is_that_of_the_best_pairs() -> None:
    assert spans_of('["Oslo", "Bergen"]') == ["Oslo", " Bergen"]
    assert spans_of("Oslo, Norway") == ["Oslo, Norway"]
    assert drop_score(["Oslo", "Bergen"], ["Bergen", "Oslo"]) == (1.0, 1.0)
    assert drop_score(["Oslo", "Bergen"], ["Oslo"]) == (0.0, 0.5)
    assert drop_score(["a b", "a c", "d"], ["a c", "e", "a b x"]) == (0.0, 0.56)  # best pairs
    assert answer_of("First the answer is A. Then the answer is: B..") == "B."


@pytest.mark.parametrize("blank", ["", "The", "a, an; THE!", "the\u2013a", "a-n", "\u00a0An\u00a0"])
def test_is_blank_if_normalized_text_is_empty_is_true(blank: str) -> None:
    assert is_blank(blank) == (not normalise_answer(blank))
