"""What the authors' code made of made-up inputs, as facts, and what ours makes of them.

- `official_scores.json`: the scripts of HotpotQA, 2WikiMultiHopQA, MuSiQue and IRCoT (DROP).
- `arag_eval.json`: A-RAG's evaluation.
- `systems/`: a case per system, with its inputs, commit and date
  (`python -m benchmarks.parity SYSTEM --official CHECKOUT --record FILE`).

Every accepted difference stands in `deviations.json` with the words of the documentation that state
it.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.score.protocols import apply, get_protocol
from ragbench.experiments.store import RunCard
from ragbench.metrics import get_metric
from ragbench.record import Record
from tests.conformance.parity import ours
from tests.experiments.scored_runs import CARD, answered
from tests.metrics.records import failure, record

FOLDER = Path(__file__).parent


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


FACTS, ARAG = read("official_scores.json"), read("arag_eval.json")
DEVIATIONS: list[dict[str, Any]] = read("deviations.json")
SYSTEMS: dict[str, Any] = {
    path.stem: read(f"systems/{path.name}") for path in sorted((FOLDER / "systems").glob("*.json"))
}


def test_every_departure_is_stated_in_the_documentation() -> None:
    for row in DEVIATIONS:
        text = " ".join((FOLDER.parents[2] / row["docs"]).read_text("utf-8").split())
        assert row["stated"] in text, row["stated"]


def official(part: str, row: dict[str, Any]) -> Record:
    if part == "answers":
        return record(row["prediction"], answers=row["golds"])
    if part == "sentences":
        said = [(title, index) for title, index in row["predicted"]]
        return record(attribution=said, support=[tuple(fact) for fact in row["gold"]])
    if part == "passages":
        pids = [f"p{number}" for number in row["predicted"]]
        return record(citations=pids, gold_pids=[f"p{number}" for number in row["gold"]])
    forms = {"evidence_forms": row["gold"]}
    return record(attributed_triples=[tuple(t) for t in row["predicted"]], extra=forms)


def score_of(name: str, made: Record) -> float | None:
    """Our score by the metric that a script's `name` stands for: one name for all data sets."""
    if name.startswith("musique_"):
        made = replace(made, extra={"f1": "musique"})
    if name.startswith("2wiki_sp_"):
        made = replace(made, extra={"evidences": [["a", "b", "c"]]})
    return get_metric(name.removeprefix("musique_").removeprefix("2wiki_")).score(made)


def pairs() -> Iterator[tuple[tuple[str, int, str], float, float]]:
    """Part, place and metric of each outcome, with the official score and ours."""
    for part in ("answers", "sentences", "passages", "triples"):
        for at, row in enumerate(FACTS[part]):
            made = official(part, row)
            for name, theirs in row["scores"].items():
                score = score_of(name, made)
                assert score is not None
                yield (part, at, name), theirs, score


def test_every_score_is_the_official_one_but_for_the_departures() -> None:
    found = {key: (theirs, ours) for key, theirs, ours in pairs()}
    different = {
        key: scores for key, scores in found.items() if scores[0] != pytest.approx(scores[1])
    }
    expected = {
        (row["part"], row["at"], row["score"]): (row["official"], row["ours"])
        for row in DEVIATIONS if row["case"] == "official_scores"
    }  # fmt: skip
    assert different.keys() == expected.keys()
    for key, scores in different.items():
        assert scores == pytest.approx(expected[key])
    given = {name for source in FACTS["sources"] for name in source["gives"]}
    assert given == {name for _, _, name in found}


def predicted(row: dict[str, Any]) -> Record:
    """The record of a prediction: an error's text is a failure here, and a blank is `noanswer`."""
    if row["prediction"].startswith("Error: "):
        return replace(failure(), qid=row["qid"], answers=[row["gold"]])
    answer = row["prediction"] if row["prediction"].strip() else "noanswer"
    scores = {"judge_arag": row["llm"]}
    return answered(row["qid"], answer, answers=[row["gold"]], scores=scores)


OF_ARAG = [row for row in DEVIATIONS if row["case"] == "arag_eval"]


@pytest.mark.parametrize(("name", "metric"), [("contain", "contain"), ("llm", "judge_arag")])
def test_every_question_of_arag_scores_as_officially(name: str, metric: str) -> None:
    accepted = {row["qid"]: row for row in OF_ARAG if row["score"] == name}
    assert accepted.keys() <= {r["qid"] for r in ARAG["questions"] if r["status"] != "failed"}
    score = get_metric(metric).score
    for row in ARAG["questions"]:
        if row["status"] == "failed":  # blank: left out of the mean
            continue
        expected = accepted.get(row["qid"], {"ours": row[name], "official": row[name]})
        assert (score(predicted(row)), row[name]) == (expected["ours"], expected["official"]), row


def test_the_means_of_arag_are_over_the_same_questions() -> None:
    records = [predicted(row) for row in ARAG["questions"]]
    scores = apply(get_protocol("arag"), RunCard.model_validate(CARD), records, {})["scores"]
    summary = ARAG["summary"]
    for name, label in (("contain", "Cont-Acc"), ("llm", "LLM-Acc")):
        lost = sum(r["official"] - r["ours"] for r in OF_ARAG if r["score"] == name)
        mean = summary[f"{name}_accuracy"] - lost / summary["answered_samples"]
        assert scores[label]["n"] == summary["answered_samples"]
        assert scores[label]["mean"] == pytest.approx(mean)


# -- systems


@cache
def parts(system: str) -> ours.Parts:
    """Our parts of a system, made once, and only by the worker whose tests ask them."""
    return ours.parts(system, SYSTEMS[system]["world"])


PARTS = [(system, part) for system, case in SYSTEMS.items() for part in case["parts"]]


@pytest.mark.parametrize(("system", "part"), PARTS)
def test_every_outcome_is_the_official_one_but_for_the_departures(system: str, part: str) -> None:
    rows = SYSTEMS[system]["parts"][part]
    accepted = {
        row["at"]: row for row in DEVIATIONS if (row["case"], row.get("part")) == (system, part)
    }
    assert max(accepted, default=-1) < len(rows) > 0
    for at, row in enumerate(rows):
        found = parts(system)[part](row["input"])
        assert found == accepted.get(at, {"ours": row["official"]})["ours"], row["input"]
        assert (found == row["official"]) is (at not in accepted), "the deviation is gone"


def test_every_case_names_its_source() -> None:
    for case in SYSTEMS.values():
        source = case["source"]
        assert source.keys() - {"commit", "release"} == {"repository", "files", "date"}
        assert source["release"] if "release" in source else len(source["commit"]) == 40
