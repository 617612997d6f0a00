"""A-RAG's evaluation: its own script's outcome on made-up predictions, and ours.

`arag_eval.json` holds what the official script gave, as facts. Every accepted difference stands in
`departures.json` with the words of the documentation that state it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.score.protocols import apply, get_protocol
from ragbench.experiments.store import RunCard
from ragbench.metrics import get_metric
from ragbench.record import Record
from tests.experiments.scored_runs import CARD, answered
from tests.metrics.records import failure

FOLDER = Path(__file__).parent
CASE: dict[str, Any] = json.loads((FOLDER / "arag_eval.json").read_text("utf-8"))
DEPARTURES = [
    row for row in json.loads((FOLDER / "departures.json").read_text("utf-8"))
    if row["case"] == "arag_eval"
]  # fmt: skip
METRICS = {"contain": "contain", "llm": "judge_arag"}


def recorded(row: dict[str, Any]) -> Record:
    """The record of a prediction: an error's text is a failure here, and a blank is `noanswer`."""
    if row["prediction"].startswith("Error: "):
        return replace(failure(), qid=row["qid"], answers=[row["gold"]])
    answer = row["prediction"] if row["prediction"].strip() else "noanswer"
    scores = {"judge_arag": row["llm"]}
    return answered(row["qid"], answer, answers=[row["gold"]], scores=scores)


def ours(name: str) -> dict[str, float | None]:
    return {r["qid"]: get_metric(METRICS[name]).score(recorded(r)) for r in CASE["questions"]}


@pytest.mark.parametrize("name", METRICS)
def test_every_question_scores_as_officially_but_for_the_departures(name: str) -> None:
    accepted = {row["qid"]: row for row in DEPARTURES if row["score"] == name}
    assert accepted.keys() <= {r["qid"] for r in CASE["questions"] if r["status"] != "failed"}
    found = ours(name)
    for row in CASE["questions"]:
        if row["status"] == "failed":  # blank: left out of the mean
            continue
        if row["qid"] in accepted:
            expected = (accepted[row["qid"]]["ours"], accepted[row["qid"]]["official"])
            assert (found[row["qid"]], row[name]) == expected, "the departure is gone"
        else:
            assert found[row["qid"]] == row[name], row


def test_the_means_are_over_the_same_questions() -> None:
    records = [recorded(row) for row in CASE["questions"]]
    scores = apply(get_protocol("arag"), RunCard.model_validate(CARD), records, {})["scores"]
    summary = CASE["summary"]
    for name, label in (("contain", "Cont-Acc"), ("llm", "LLM-Acc")):
        lost = sum(r["official"] - r["ours"] for r in DEPARTURES if r["score"] == name)
        mean = summary[f"{name}_accuracy"] - lost / summary["answered_samples"]
        assert scores[label]["n"] == summary["answered_samples"]
        assert scores[label]["mean"] == pytest.approx(mean)


def test_every_departure_is_stated_in_the_documentation() -> None:
    root = FOLDER.parents[2]
    for row in DEPARTURES:
        text = " ".join((root / row["docs"]).read_text("utf-8").split())
        assert row["stated"] in text
