"""Predictions of another system are a run like ours: scored, compared, in the same table."""

import csv
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragbench as rb
from ragbench.data import DataSettings, load_dataset
from ragbench.experiments.config import make_config
from ragbench.experiments.importing import import_run
from ragbench.metrics import get_metric
from ragbench.record import Record

Command = Callable[..., tuple[int, str, str]]
QUESTIONS = [
    {"id": f"q{i}", "question": f"Where is town {i}?", "answer": f"Land {i}", "gold": [f"Town {i}"],
     "context": [{"title": f"Town {i}", "text": f"Town {i} is in Land {i}."},
                 {"title": f"Lake {i}", "text": f"Lake {i} is wet."}],
     "support": [[f"Town {i}", 0]]}
    for i in range(5)
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("questions.json").write_text(json.dumps(QUESTIONS))
    return tmp_path


def imported(predictions: Any, name: str = "other", file: str = "predictions.json") -> list[Record]:
    Path(file).write_text(predictions if isinstance(predictions, str) else json.dumps(predictions))
    config = make_config({"data_file": "questions.json", "split": "all"})
    run = import_run(config, Path(file), name, "gpt-x", Path("runs") / name)
    return list(run.records.values())


def test_answers_passages_and_spending_are_those_of_the_file(command: Command) -> None:
    rows = [
        {"question": q["question"], "answer": q["answer"], "passages": [f"Town {i}", "else"],
         "tokens": 100, "calls": 3, "cost_usd": 0.5}
        for i, q in enumerate(QUESTIONS)
    ]  # fmt: skip
    records = imported("\n".join(map(json.dumps, rows)), file="predictions.jsonl")
    assert [record.scores["em"] for record in records] == [1.0] * 5
    spent = records[0].ledger.as_if
    assert (spent.calls, spent.tokens, spent.cost_usd) == (3, 100, 0.5)
    assert [passage.title for passage in records[0].passages] == ["Town 0", ""]
    assert records[0].passages[0].pid == records[0].gold_pids[0]
    _, out, err = command("show", "runs/other", "--format", "json")
    assert json.loads(out)[0]["rows"][0]["all_recall"] == 1.0
    assert "right without gold in context" not in err


def test_the_official_prediction_file_gives_the_official_scores(command: Command) -> None:
    official = {
        "answer": {"q0": "Land 0", "q1": "the land 1", "q2": "Land 3"},
        "sp": {"q0": [["Town 0", 0]], "q1": [["Town 1", 0], ["Lake 1", 0]]},
    }
    records = imported(official)
    assert [record.scores["em"] for record in records] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [record.failed for record in records] == [False, False, False, True, True]
    assert command("score", "runs/other", "--metric", "support_f1")[0] == 0


def test_what_is_not_known_is_not_zero(command: Command) -> None:
    imported([{"id": q["id"], "answer": q["answer"]} for q in QUESTIONS])
    code, out, err = command("show", "runs/other", "--format", "json")
    row = json.loads(out)[0]["rows"][0]
    assert (code, row["em"]) == (0, 1.0)
    unknown = ("calls", "sequential_calls", "searches", "tokens", "cost_usd", "p50_s")
    assert {row[name] for name in unknown} == {None}
    assert "all_recall" not in row, "nobody said what was found"
    assert "in all:" not in err
    other = [{"id": q["id"], "answer": "no"} for q in QUESTIONS]
    imported(other, name="worse", file="worse.json")
    compared = rb.compare(rb.open_run("runs/other"), rb.open_run("runs/worse"))
    assert compared.scores["em"].difference == -1.0
    assert set(compared.costs.values()) == {None}


@pytest.mark.parametrize("own_first", [True, False])
def test_an_import_of_answers_alone_is_compared_with_a_run_of_ones_own(
    command: Command, own_first: bool
) -> None:
    imported([{"id": q["id"], "answer": q["answer"]} for q in QUESTIONS])
    rows = [{"id": q["id"], "answer": "no", "passages": q["gold"], "cost_usd": 0.5, "calls": 2}
            for q in QUESTIONS]  # fmt: skip
    imported(rows, name="own", file="own.json")
    runs = ["runs/own", "runs/other"] if own_first else ["runs/other", "runs/own"]
    code, out, err = command("compare", *runs, "--format", "json")
    assert code == 0, err
    scores, costs = json.loads(out)
    assert [row["metric"] for row in scores["rows"]] == ["em", "f1"], "no evidence of the import"
    assert {row["difference"] for row in costs["rows"]} == {None}
    code, out, err = command("recommend", *runs)
    assert "| unknown |" in " ".join(out.split())
    assert "none is cheaper" not in out
    assert "0.0000" not in out
    command("export", "runs/other", "--to", "jsonl", "-o", "x.jsonl")
    command("export", "runs/other", "--to", "csv", "-o", "x.csv")
    first = next(csv.DictReader(Path("x.csv").read_text().splitlines()))
    names = ("calls", "tokens", "cost_usd", "latency_s", "searches", "critical_path_calls")
    assert {first[name] for name in (*names, "billed_cost_usd")} == {""}
    _, out, _ = command("show", "run", "runs/other", "q0")
    cost = next(line for line in out.splitlines() if line.startswith("cost"))
    assert "0" not in cost
    database = sqlite3.connect("runs/other/run.db")
    columns = "calls, tokens, cost_usd, latency_s"
    assert set(database.execute(f"SELECT {columns} FROM answers")) == {(None,) * 4}
    database.close()


def test_amount_that_one_prediction_lacks_is_the_mean_of_the_others(
    command: Command,
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": q["id"], "answer": q["answer"], "calls": 10**8, "cost_usd": 0.25} for q in QUESTIONS
    ]
    del rows[2]["cost_usd"]
    records = imported(rows)
    cost = rb.open_run("runs/other").evaluation
    assert [get_metric("cost_usd").score(record) for record in records] == [
        0.25, 0.25, None, 0.25, 0.25
    ]  # fmt: skip
    assert cost.summary.as_if.calls == 5 * 10**8
    assert cost.summary.as_if.cost_usd is None
    _, out, _ = command("show", "runs/other", "--format", "json")
    row = json.loads(out)[0]["rows"][0]
    assert (row["calls"], row["cost_usd"]) == (1e8, 0.25)
    assert "means of cost_usd of 4 of 5 questions" in command("show", "runs/other")[1]


def test_no_supporting_fact_is_the_worst_score_where_the_file_names_facts(command: Command) -> None:
    answers = {q["id"]: q["answer"] for q in QUESTIONS}
    facts: dict[str, Any] = {q["id"]: q["support"] for q in QUESTIONS}
    imported({"answer": answers, "sp": facts}, name="whole", file="whole.json")
    records = imported({"answer": answers, "sp": {**facts, "q1": [], "q2": []}}, name="some")
    for name, scores in (("sp_f1", [1, 0, 0, 1, 1]), ("joint_f1", [1, 0, 0, 1, 1])):
        assert [get_metric(name).score(record) for record in records] == scores
    out = command("compare", "runs/whole", "runs/some", "--metric", "sp_f1", "--format", "json")[1]
    row = json.loads(out)[0]["rows"][0]
    assert (row["n"], row["difference"]) == (5, pytest.approx(-0.4))
    none = imported({"answer": answers}, name="none", file="none.json")
    assert {get_metric("sp_f1").score(record) for record in none} == {None}


OFFICIAL = {"answer": {q["id"]: q["answer"] for q in QUESTIONS}}


def test_the_command_names_the_system_and_refuses_a_second_run(command: Command) -> None:
    Path("p.json").write_text(json.dumps(OFFICIAL))
    words = ("import", "p.json", "--name", "langgraph", "--data-file", "questions.json")
    code, out, _ = command(*words)
    assert (code, "langgraph" in out) == (0, True)
    assert json.loads(Path("runs/imported-langgraph/summary.json").read_text())["n"] == 5
    row = json.loads(command("list", "runs", "--format", "json")[1])[0]["rows"][0]
    assert (row["cost_usd"], row["f1"] is None) == (None, False)
    code, _, err = command(*words)
    assert (code, "already holds a run" in err) == (2, True)
    assert (
        load_dataset(DataSettings(dataset="jsonl", data_file=Path("questions.json"))).name
        == "questions"
    )
