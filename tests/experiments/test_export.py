"""Exports of a real run, with a question that failed, read back by the tools they are for."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import ragbench as rb
from ragbench.cli.main import cli
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.export import COLUMNS, TARGETS, export_runs
from ragbench.experiments.runs.summary import reopen
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.kills import write_questions

N = 4
FAILING = 2


def script(hit: Hit) -> str | Fault:
    """Right, but for one question, which the server refuses."""
    asked = re.findall(r"Which town number (\d+) lies", hit.prompt)
    if int(asked[-1]) == FAILING:
        return Fault("filter_400")
    return plausible(hit).replace("some answer", f"Town {asked[-1]}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four questions, one of which failed; prompts are kept."""
    folder = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch, FakeServer(script) as server:
        patch.setenv("OPENAI_API_KEY", "none")
        patch.setenv("RAGBENCH_CACHE", str(folder / "cache"))
        rb.evaluate(
            "vanilla", "jsonl", data_file=write_questions(folder, N), lm="openai/fake",
            api_base=server.url, adapter="chat", cache=False, price="in=1,out=2",
            out=folder / "one",
        )  # fmt: skip
    return folder / "one"


def test_parquet_is_a_typed_table_for_pandas(run: Path, tmp_path: Path, command: Any) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "new" / "runs.parquet"
    said = command("export", run, "--to", "parquet", "-o", path, "--metric", "contain")[1]
    assert f"{path}: {N} questions" in said
    frame = pandas.read_parquet(path)
    names = list(COLUMNS)
    assert [name for name in frame.columns if name in names] == names
    frame = frame.set_index("qid")
    bad = next(r.qid for r in reopen(run).records.values() if r.failed)
    assert frame["failed"].to_dict() == {qid: qid == bad for qid in frame.index}
    row = frame.loc[bad]
    assert (row["em"], pandas.isna(row["answer"])) == (0.0, True)
    assert row["failure"] == f"provider/{row['error']}"
    assert "filtered" in row["message"]
    summary = reopen(run).summary
    assert frame["em"].mean() == pytest.approx(summary.scores["em"])
    assert frame["calls"].sum() == summary.as_if.calls
    assert frame["cost_usd"].sum() == pytest.approx(summary.as_if.cost_usd)
    assert frame["contain"].to_dict() == frame["em"].to_dict()
    assert list(frame["gold_answers"].iloc[0]) == [frame["gold"].iloc[0]]
    assert frame["billed_tokens"].dtype == "int64"
    frame = rb.open_run(run).to_pandas()
    assert {*names, "em", "f1"} == set(frame.columns)
    assert int(frame["failed"].sum()) == 1


def test_csv_and_jsonl_have_the_same_rows(run: Path, tmp_path: Path, command: Any) -> None:
    for kind in ("csv", "jsonl"):
        assert command("export", run, "--to", kind, "-o", tmp_path / f"one.{kind}")[0] == 0
    records = list(reopen(run).records.values())
    with (tmp_path / "one.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, record in zip(rows, records, strict=True):
        assert (row["qid"], row["question"]) == (record.qid, record.question)
        assert json.loads(row["gold_answers"]) == record.answers
        assert json.loads(row["pids"]) == [p.pid for p in record.passages]
        assert (row["failed"], row["answer"]) == (str(record.failed), record.answer or "")
    whole = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert {row.pop("run") for row in whole} == {"one"}
    assert whole == [json.loads(json.dumps(record.to_dict())) for record in records]


@pytest.mark.parametrize(
    ("target", "output", "metric", "error", "words"),
    [
        ("parquet", None, "em", ConfigError, "Add -o PATH"),
        ("csv", "one.csv/two.csv", "em", RunError, "cannot write"),
        ("csv", "run/run.db", "em", RunError, r"run\.db is a file of"),
        ("csv", "x.csv", "tokens", ConfigError, "tokens is already a column"),
    ],
)
def test_mistakes_are_one_line(
    target: str, output: str | None, metric: str, error: type[Exception], words: str,
    run: Path, tmp_path: Path,
) -> None:  # fmt: skip
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "one.csv").write_text("")
    with pytest.raises(error, match=words):
        export_runs([tmp_path / "run"], target, tmp_path / output if output else None, [metric])
    assert (tmp_path / "run" / "run.db").read_bytes() == (run / "run.db").read_bytes()
    with pytest.raises(RunError, match="not a run folder"):
        export_runs([tmp_path], "csv", tmp_path / "x.csv")


def test_the_command_offers_every_format_and_the_docs_every_column() -> None:
    command = cli.get_command(None, "export")
    choices = next(p.type.choices for p in command.params if p.name == "target")
    assert tuple(choices) == (*TARGETS, "bundle")
    page = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text("utf-8")
    kinds: dict[str, list[str]] = {}
    for name, kind in COLUMNS.items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        [row] = re.findall(rf"^\| {kind} \| (.*?) \| ", page, flags=re.MULTILINE)
        assert re.findall(r"`(\w+)`", row) == names
