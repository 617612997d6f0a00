"""Predictions of other systems, in the forms that they write."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError, DataError, RunError
from ragbench.experiments.config import make_config
from ragbench.experiments.export import export_runs
from ragbench.experiments.importing import folder_of, import_run
from ragbench.experiments.store import read_records
from ragbench.metrics import get_metric
from tests.data.samples import MUSIQUE


def questions(folder: Path, count: int = 2) -> Path:
    context = [{"id": f"p{n}", "title": f"T{n}", "text": f"Text {n}."} for n in range(3)]
    rows = [{"id": f"q{n}", "question": f"Who is {n}?", "answer": f"Ann {n}", "context": context,
             "gold": ["p1"]} for n in range(count)]  # fmt: skip
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
        ("id\tanswer\nq0\tAnn 0\n", "p.tsv", {}),
        ([{"id": "q0", "generated_answer": "Ann 0", "ground_truth": "Ann 0", "evidence": "none",
           "context": ["Text 1."]}], "p.json", {}),  # GraphRAG-Bench's
        ([{"qid": "q0", "generated_texts": "Ann 0", "retrieved_ids": ["p1"]}], "p.jsonl", {}),
        ([{"id": "q0", "output": [{"text": "no"}, {"text": "Ann 0"}]}], "p.jsonl",
         {"answer": "output[-1].text"}),
        ([{"key": "q0", "said": [{"text": "Ann 0"}]}], "p.jsonl",
         {"id": "key", "answer": "said[0].text"}),
        ("id,said\nq0,Ann 0\nq1,\n", "p.csv", {"answer": "said"}),  # no answer to the second
        ([{"id": "q0", "out": {"a": "Ann 0"}}, {"id": "q1", "error": "x"}], "p.jsonl",
         {"answer": "out.a"}),
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
    if any(name in str(content) for name in ("p1", "T1", "Text 1")):
        assert record.passages[0].pid == "p1"


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
    export_runs([tmp_path / "run"], "musique", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [silent["id"]] * 2
    assert lines[0]["predicted_support_idxs"] == gold


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
        ([OWN, OWN], "already has a prediction"),
        ([{"id": "q0", "reply": "x"}], "there are id, reply: give"),
        ([{"id": "zz", "answer": "x"}], "their ids, such as 'zz', must be ids of the data"),
        ([{**OWN, "tokens": True}], "not a number"),
        ({"answer": {}}, "list of records"),
        ([{**OWN, "tokens": "many"}], "field 'tokens'"),
        ([{**OWN, "calls": -1}], "field 'calls'"),
        ([{**OWN, "supporting_facts": [["T1"]]}], "supporting_facts.0.1"),
    ],
)
def test_predictions_that_cannot_be_read(content: Any, says: str, tmp_path: Path) -> None:
    name = "p.json" if isinstance(content, dict) else "p.jsonl"
    with pytest.raises(DataError, match=says):
        imported(tmp_path, content, name)


ANSWERS = ["Ann & Bo", "yes.", "Zürich", 'a "b"\tc']


@pytest.mark.parametrize("target", ["hotpotqa", "2wiki", "musique"])
def test_what_is_imported_is_exported_with_the_same_answers(target: str, tmp_path: Path) -> None:
    data = tmp_path / "many.jsonl"
    rows = [{"id": f"q{n}", "question": f"Who is {n}?", "answer": "x"} for n in range(5)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = {f"q{n}": answer for n, answer in enumerate(ANSWERS)}
    facts = {qid: [["S", 0], ["T", 1]] for qid in answers}
    triples = {qid: [["a", "b", "c"]] for qid in answers}
    content: Any = {"answer": answers, "sp": facts, "evidence": triples}
    name = "p.json"
    if target == "musique":
        name = "p.jsonl"
        content = [{"id": qid, "predicted_answer": answer, "predicted_support_idxs": [],
                    "predicted_answerable": True} for qid, answer in answers.items()]  # fmt: skip
    imported(tmp_path, content, name, data)
    path = tmp_path / "out.json"
    said = export_runs([tmp_path / "run"], target, path)
    assert f"{len(ANSWERS)} answers of {len(ANSWERS) + 1} questions" in said
    if target == "musique":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[: len(ANSWERS)] == content
        assert lines[-1]["predicted_answer"] == ""  # its script wants every question
        assert lines[-1]["predicted_answerable"] is False
    else:
        written = json.loads(path.read_text())
        assert written["answer"] == answers
        assert written["sp"] == facts
        assert written.get("evidence") == (triples if target == "2wiki" else None)
    with pytest.raises(ConfigError, match="one run"):
        export_runs([tmp_path / "run"] * 2, target, path)


def test_import_of_passages_by_any_name_finds_the_passage(tmp_path: Path) -> None:
    names = ["p1", "T1", "Text 1.", " text  1 ", "T1 | Text 1.", '"T1"\nText 1.', "T1: Text 1."]
    rows = [{"id": f"q{n}", "answer": "x", "passages": [name]} for n, name in enumerate(names)]
    data = questions(tmp_path, len(names))
    records = imported(tmp_path, rows, "p.jsonl", data).values()
    assert [[p.pid for p in record.passages] for record in records] == [["p1"]] * len(names)
    assert {get_metric("all_recall").score(record) for record in records} == {1.0}


def test_import_of_unmatched_or_missing_passages_leaves_evidence_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [["Text 1.", "of another corpus"], ["of another corpus"], [], None]
    rows = [{"id": f"q{n}", "answer": "x", "passages": names} for n, names in enumerate(lists)]
    records = imported(tmp_path, rows, "p.jsonl", questions(tmp_path, 4))
    score = get_metric("all_recall").score
    assert [score(record) for record in records.values()] == [1.0, None, 0.0, None]
    assert "2 of 3 passages match no id, title or text" in caplog.text
    assert "unknown for 2 questions" in caplog.text


@pytest.mark.parametrize("setting", ["distractor", "pooled"])
def test_import_of_titles_takes_the_questions_own_passage(setting: str, tmp_path: Path) -> None:
    rows = []
    for n in range(3):
        paragraphs = [
            {"title": title, "paragraph_text": f"{title} {n}.", "is_supporting": title < "C"}
            for title in ("A", "B", "C")
        ]
        rows.append({"id": f"2hop__{n}", "question": f"Who is {n}?", "answer": "x",
                     "answerable": True, "paragraphs": paragraphs})  # fmt: skip
    data = tmp_path / "m.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "p.jsonl"
    file.write_text("".join(
        json.dumps({"id": row["id"], "answer": "x", "passages": ["A", "B"]}) + "\n" for row in rows
    ))  # fmt: skip
    config = make_config({"data_file": str(data), "split": "all", "setting": setting})
    import_run(config, file, "other", "m", tmp_path / "run", {})
    records = read_records(tmp_path / "run")
    assert [get_metric("all_recall").score(record) for record in records.values()] == [1.0] * 3


def test_failed_import_leaves_nothing_and_the_same_command_works_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragbench.experiments import importing

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_json", full)
        with pytest.raises(RunError, match="No space left on device"):
            imported(tmp_path, [OWN], "p.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.jsonl", "questions.jsonl"]
    assert imported(tmp_path, [OWN], "p.jsonl")["q0"].answer == "Ann 0"
    with pytest.raises(RunError, match="already holds a run"):
        imported(tmp_path, [OWN], "p.jsonl")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "..", "x:y"])
def test_folder_of_an_imported_system_is_below_runs(name: str) -> None:
    assert folder_of(name).parent == Path("runs")


def test_import_without_evidence_keeps_the_clusters_of_the_data(tmp_path: Path) -> None:
    records = imported(tmp_path, [{"id": f"q{n}", "answer": "x"} for n in range(2)], "p.jsonl")
    assert [(r.gold_pids, r.extra["cluster"]) for r in records.values()] == [([], "q0")] * 2
