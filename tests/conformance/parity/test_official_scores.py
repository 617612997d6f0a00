"""Answer, support and evidence metrics: what the official scripts gave, and ours.

`official_scores.json` holds, as facts, the outcomes of the scripts of HotpotQA, 2WikiMultiHopQA,
MuSiQue and IRCoT (DROP) on made-up predictions. Every accepted difference stands in
`departures.json` with the words of the documentation that state it.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.metrics import get_metric
from ragbench.record import Record
from tests.metrics.records import record

FOLDER = Path(__file__).parent
FACTS: dict[str, Any] = json.loads((FOLDER / "official_scores.json").read_text("utf-8"))
PARTS = ("answers", "sentences", "passages", "triples")
DEPARTURES = {
    (row["part"], row["at"], row["score"]): row
    for row in json.loads((FOLDER / "departures.json").read_text("utf-8"))
    if row["case"] == "official_scores"
}


def recorded(part: str, row: dict[str, Any]) -> Record:
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


def ours(name: str, made: Record) -> float | None:
    """Our score by the metric that a script's `name` stands for: one name for all data sets."""
    if name.startswith("musique_"):
        made = replace(made, extra={"f1": "musique"})
    if name.startswith("2wiki_sp_"):
        made = replace(made, extra={"evidences": [["a", "b", "c"]]})
    return get_metric(name.removeprefix("musique_").removeprefix("2wiki_")).score(made)


def pairs() -> Iterator[tuple[tuple[str, int, str], float, float]]:
    """Part, place and metric of each outcome, with the official score and ours."""
    for part in PARTS:
        for at, row in enumerate(FACTS[part]):
            made = recorded(part, row)
            for name, official in row["scores"].items():
                score = ours(name, made)
                assert score is not None
                yield (part, at, name), official, score


def test_every_score_is_the_official_one_but_for_the_departures() -> None:
    found = {key: (official, ours) for key, official, ours in pairs()}
    different = {
        key: scores for key, scores in found.items() if scores[0] != pytest.approx(scores[1])
    }
    expected = {key: (row["official"], row["ours"]) for key, row in DEPARTURES.items()}
    assert different.keys() == expected.keys()
    for key, scores in different.items():
        assert scores == pytest.approx(expected[key])
    given = {name for source in FACTS["sources"] for name in source["gives"]}
    assert given == {name for _, _, name in found}


@pytest.mark.parametrize("row", DEPARTURES.values(), ids=lambda row: f"{row['at']}-{row['score']}")
def test_every_departure_is_stated_in_the_documentation(row: dict[str, Any]) -> None:
    text = (FOLDER.parents[2] / row["docs"]).read_text("utf-8")
    assert row["stated"] in " ".join(text.split())
