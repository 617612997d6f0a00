"""Answer metrics on records: failures, names, and where DSPy's own metrics differ."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.errors import UnknownNameError
from ragbench.metrics import METRICS, get_metric, metric_names
from ragbench.metrics.answer import exact_match, token_f1
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


@pytest.mark.parametrize("name", ANSWER_METRICS)
def test_a_right_answer_scores_1_and_a_failed_record_scores_the_worst(name: str) -> None:
    metric = get_metric(name)
    assert metric.score(record("Norway")) == 1.0
    assert metric.score(failure()) == metric.worst == 0.0
    assert metric.score(record(None)) == 0.0
    broken = {"boundary": "lm", "error": "X", "message": ""}
    assert metric.score(record("Norway", failure=broken)) == 0.0


def test_there_are_few_names_and_parts_of_a_family_are_known_on_request() -> None:
    assert len(metric_names()) <= 41  # with five that take a cut-off
    assert "sp_f1" in metric_names()
    assert "sp_recall" not in metric_names()
    assert get_metric("sp_recall").description.startswith("recall")


def test_an_unknown_metric_names_the_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="squad_f1"):
        get_metric("squad_f2")


def test_every_listed_metric_scores_any_record_and_a_failed_one_the_worst() -> None:
    failed = replace(failure(), extra=TRIPLES)
    ledger = replace(failed.ledger, calls=[*failed.ledger.calls, Call("e", kind="embed")])
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
    assert set(ANSWER_METRICS) <= set(METRICS.names())
    assert get_metric("answer_length").score(record("It is Norway, of course")) == 5.0
    assert get_metric("answer_length").score(failure()) is None


def test_composed_and_decomposed_letters_differ_as_in_the_official_scripts() -> None:
    assert exact_match("Caf\u00e9", "Cafe\u0301") == 0.0
    assert token_f1("Caf\u00e9 Oslo", "Cafe\u0301 Oslo") == 0.5
    assert exact_match("\u00e0 bas", "\u0300 bas") == 0.0
    assert token_f1("no way", "no") == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "The", "a, an; THE!", "--", "\u2013", "the\u2013a", "a-n", "Norway", "\u00a0An\u00a0"],
)
def test_blank_is_what_normalises_to_nothing(text: str) -> None:
    assert is_blank(text) == (not normalise_answer(text))
