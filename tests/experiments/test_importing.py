"""Predictions of other systems, in the forms that they write."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import DataError
from ragbench.experiments.config import make_config
from ragbench.experiments.importing import import_run
from ragbench.experiments.store import read_records
from ragbench.metrics import get_metric
from tests.data.samples import MUSIQUE


def questions(folder: Path) -> Path:
    context = [{"id": f"p{n}", "title": f"T{n}", "text": f"Text {n}."} for n in range(3)]
    rows = [{"id": f"q{n}", "question": f"Who is {n}?", "answer": f"Ann {n}", "context": context,
             "gold": ["p1"]} for n in range(2)]  # fmt: skip
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def imported(
    folder: Path, content: Any, name: str = "p.json", data: Path | None = None, **fields: str
) -> Any:
    """The records of an import, by qid."""
    path = folder / name
    if isinstance(content, str):
        path.write_text(content)
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    else:
        path.write_text(json.dumps(content))
    config = make_config({"data_file": str(data or questions(folder)), "split": "all"})
    import_run(config, path, "other", "m", folder / "run", fields)
    return read_records(folder / "run")


OWN = {"id": "q0", "answer": "Ann 0"}


@pytest.mark.parametrize(
    ("content", "name", "fields"),
    [
        ([OWN, {"id": "q1", "answer": "x"}], "p.jsonl", {}),
        ({"answer": {"q0": "Ann 0", "q1": "x"}, "sp": {"q0": [["T1", 0]]}}, "p.json", {}),
        ({"q0": "Ann 0", "q1": "x"}, "p.json", {}),  # SQuAD's
        ("id\tanswer\nq0\tAnn 0\n", "p.tsv", {}),
        ([{"qid": "q0", "generated_texts": "Ann 0", "retrieved_ids": ["p1"]}], "p.jsonl", {}),
        ([{"id": "q0", "question": "Who is 0?", "golden_answers": ["Ann 0"],
           "output": {"pred": "Ann 0", "retrieval_result": [{"id": "p1", "contents": "c"}]}}],
         "p.json", {}),
        ({"version": 3, "results": {"version": 3, "results": [
            {"vars": {"question": "Who is 0?"}, "cost": 0.5, "latencyMs": 1500,
             "response": {"output": "Ann 0", "tokenUsage": {"total": 12}}}]}}, "p.json", {}),
        ([{"id": "q0", "input": "Who is 0?", "output": [
            {"answer": "Ann 0", "provenance": [{"wikipedia_id": "p1"}]}]}], "p.jsonl", {}),
        ([{"question": "Who is 0?", "answer": "Ann 0", "docs": ["Text 1."]}], "p.json", {}),
        ([{"key": "q0", "said": [{"text": "Ann 0"}]}], "p.jsonl",
         {"id": "key", "answer": "said[0].text"}),
        ([{"question": "who is 0", "answer": ["Ann 0", "Ann"]}], "p.jsonl", {}),
        ([{"id": "q0", "answer": "Ann 0", "contexts": [{"id": "p1"}, {"id": "p9"}]}], "p.jsonl",
         {"passages": "contexts"}),
    ],
)  # fmt: skip
def test_predictions_as_systems_write_them(
    content: Any, name: str, fields: dict[str, str], tmp_path: Path
) -> None:
    record = imported(tmp_path, content, name, **fields)["q0"]
    assert (record.answer, record.scores["em"]) == ("Ann 0", 1.0)
    if "p1" in str(content) or "T1" in str(content):
        assert record.passages[0].pid == "p1"
    if "latencyMs" in str(content):
        assert record.latency_s == 1.5
        assert record.ledger.calls[0].cost_usd == 0.5


def test_predictions_of_musique_name_paragraphs_and_twins_come_in_order(tmp_path: Path) -> None:
    silent = json.loads(json.dumps(MUSIQUE[0])) | {"answerable": False}
    silent["paragraphs"].pop()
    data = tmp_path / "full.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in (MUSIQUE[0], silent)))
    gold = [n for n, p in enumerate(MUSIQUE[0]["paragraphs"]) if p["is_supporting"]]
    rows = [
        {"id": silent["id"], "predicted_answer": answer, "predicted_support_idxs": idxs,
         "predicted_answerable": answerable}
        for answer, idxs, answerable in ((MUSIQUE[0]["answer"], gold, True), ("no", [0], False))
    ]  # fmt: skip
    records = imported(tmp_path, rows, "p.jsonl", data)
    first, twin = records[silent["id"]], records[f"{silent['id']}::unanswerable"]
    assert (first.scores["em"], twin.answer) == (1.0, "no")
    assert set(first.citations) == set(first.gold_pids)
    assert twin.extra["answerable_as_written"] is False


def test_evidence_and_joint_scores_of_a_file_of_2wiki(tmp_path: Path) -> None:
    triples = [["Film", "director", "Ann"], ["Ann", "born in", "Q"]]
    data = tmp_path / "q.json"
    data.write_text(json.dumps([{
        "_id": "w1", "question": "Where?", "answer": "Q", "type": "compositional",
        "supporting_facts": [["Film", 0], ["Ann", 0]], "evidences": triples,
        "context": [["Film", ["By Ann."]], ["Ann", ["Born in Q."]]]}]))  # fmt: skip
    predicted = {"answer": {"w1": "Q"}, "sp": {"w1": [["Film", 0], ["Ann", 0]]},
                 "evidence": {"w1": triples[:1]}}  # fmt: skip
    record = imported(tmp_path, predicted, "p.json", data)["w1"]
    for name in ("evidence_f1", "joint_f1"):
        assert get_metric(name).score(record) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([{"id": "q0", "reply": "Ann"}], r"'answer': is missing.*--prediction-field answer=NAME"),
        ([{"key": "q0", "answer": "x"}], r"'id': is missing.*--prediction-field id=NAME"),
        ([OWN, OWN], "has a prediction already"),
        ([{"id": "zz", "answer": "x"}], "their ids, such as 'zz', must be ids of the data"),
        ([{**OWN, "tokens": True}], "not a number"),
        ([{**OWN, "tokens": "many"}], "field 'tokens'"),
        ([{**OWN, "calls": -1}], "field 'calls'"),
    ],
)
def test_predictions_that_cannot_be_read(content: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        imported(tmp_path, content, "p.jsonl")
