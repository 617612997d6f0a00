"""Lines whose checksum fits and whose shape does not: asked again, told, and never counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import RunError
from ragbench.experiments.doctor import examine, repair
from ragbench.experiments.records.compile_log import CallJournal, read_calls
from ragbench.experiments.records.jsonl import RECORDS, decode, encode, read_lines
from ragbench.experiments.runs.spend import billed_under
from ragbench.experiments.score.annotate import JOURNAL, Asking, read_journal
from ragbench.experiments.score.annotate.grounding import Group, label_claims
from ragbench.experiments.score.lines import wrong_with_reply, wrong_with_scores
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.ledger import file_call
from ragbench.record import Call
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.test_judge import fair
from tests.fakes import ScriptedLM
from tests.metrics.records import passage

REPLY: dict[str, Any] = {
    "qid": "q1", "pass": "judge", "key": "k", "model": "m", "value": "correct", "why": "",
    "provider_failed": False, "calls": [{"model": "m", "cost_usd": None}],
}  # fmt: skip
STATEMENTS = {"answer_statements": 2, "gold_statements": 1, "supported": 2, "covered": 1,
              "faithful": None, "cosine": 0.5}  # fmt: skip
GOOD: dict[str, Any] = {
    "judge": "correct",
    "judge_arag": "it is correct",
    "attribution": {"facts": [["Oslo", 0]], "out_of_range": 1},
    "evidence": [["Oslo", "country", "Norway"]],
    "grounding": [True, False],
    "statements": STATEMENTS,
    "mistake": "part_of_it",
    "another": {"of": ["a pass", "that nothing here reads"]},
}
WRONG: list[tuple[str, Any]] = [
    ("judge", 1), ("judge", ["correct"]), ("judge_arag", {"correct": True}), ("attribution", []),
    ("attribution", {"facts": [["Oslo", "0"]], "out_of_range": 0}),
    ("attribution", {"facts": [["Oslo"]], "out_of_range": 0}),
    ("attribution", {"facts": [], "out_of_range": None}), ("attribution", {"facts": []}),
    ("evidence", [["Oslo", "country"]]), ("evidence", "none"), ("evidence", [None]),
    ("grounding", [1, 0]), ("grounding", ["supported"]), ("grounding", True), ("mistake", "other"),
    ("mistake", []), ("statements", {**STATEMENTS, "covered": 2}),
    ("statements", {**STATEMENTS, "gold_statements": 0, "covered": 0}),
    ("statements", {**STATEMENTS, "supported": -1}), ("statements", {**STATEMENTS, "faithful": 3}),
    ("statements", {**STATEMENTS, "cosine": float("nan")}),
]  # fmt: skip
Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("name", GOOD)
def test_what_a_pass_writes_is_right(name: str) -> None:
    assert wrong_with_reply({**REPLY, "pass": name, "value": GOOD[name]}) == ""
    assert wrong_with_reply({**REPLY, "pass": name, "value": None, "why": "unreadable"}) == ""


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_value_of_another_shape_is_wrong(name: str, value: Any) -> None:
    assert wrong_with_reply({**REPLY, "pass": name, "value": value}) == "value"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"calls": None}, "calls"), ({"calls": [{"cost_usd": 1.0}]}, "calls.0.model"),
        ({"calls": [{"model": "m", "prompt_tokens": "9"}]}, "calls.0.prompt_tokens"),
        ({"provider_failed": "no"}, "provider_failed"), ({"provider_failed": 0}, "provider_failed"),
        ({"why": None}, "why"), ({"key": 7}, "key"), ({"qid": []}, "qid"), ({"pass": None}, "pass"),
        ({"batch": "planned", "name": "x"}, "planned.keys"), ({"batch": "other"}, "batch"),
        ({"batch": "submitted", "name": "x", "id": 7}, "submitted.id"),
        ({"batch": "ended", "name": "x", "replies": {"k": {"status": "200"}}},
         "ended.replies.k.status"),
    ],
)  # fmt: skip
def test_line_of_another_shape_is_wrong_where_it_is(change: dict[str, Any], where: str) -> None:
    assert wrong_with_reply({**REPLY, **change}) == where


def judging(lm: ScriptedLM) -> ScoreRequest:
    return ScoreRequest(judge=JudgeRequest(Asking(lm, 2)))


def damaged(path: Path, number: int, change: Change) -> None:
    """Change what line `number` (from 1) of `path` holds; its checksum fits again."""
    lines = path.read_bytes().splitlines(keepends=True)
    row = decode(lines[number - 1])
    change(row)
    lines[number - 1] = encode(row)
    path.write_bytes(b"".join(lines))


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A judged run of three questions."""
    folder = make_run(tmp_path / "run", [answered(f"q{n}", f"Norway {n}") for n in range(3)])
    score_run(folder, judging(ScriptedLM(fair, name="judge")))
    return folder


CHANGES: list[Change] = [
    lambda row: row.update(value=7),
    lambda row: row.update(calls=[{"model": 1}]),
    lambda row: row.pop("provider_failed"),
    lambda row: row.update(why=[]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_reply_is_left_out_told_and_asked_again(
    judged: Path, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    damaged(judged / JOURNAL, 2, change)
    lm = ScriptedLM(fair, name="judge")
    found = score_run(judged, judging(lm)).summary["judges"]["judge"]
    assert (found["correct"], found["as_if"]["calls"], len(lm.asked)) == (3, 3, 1)
    assert "lines of a journal cannot be used" in caplog.text
    assert [f.line() for f in examine(judged, data=False) if JOURNAL in f.line()] == [
        f"{judged / JOURNAL}: line 2 cannot be read; --repair moves it out; ragbench score makes "
        "it again"
    ]
    repair(judged, examine(judged, data=False))
    assert not [f for f in examine(judged, data=False) if f.path.name == JOURNAL]
    assert len(read_journal(judged)) == 3


def test_wrong_line_of_a_batch_is_told_in_one_line_and_nothing_is_asked(judged: Path) -> None:
    path = judged / JOURNAL
    path.write_bytes(encode({"qid": "", "batch": "planned", "name": "x"}) + path.read_bytes())
    lm = ScriptedLM(fair, name="another")
    with pytest.raises(RunError) as told:
        score_run(judged, judging(lm))
    assert str(told.value).startswith(f"{path} line 1 tells of a batch, and its planned.keys is ")
    assert "doctor" in str(told.value)
    assert "\n" not in str(told.value)
    assert lm.asked == []
    repair(judged, examine(judged, data=False))
    assert score_run(judged, judging(lm)).summary["judges"]["judge"]["correct"] == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.update(scores=7), lambda row: row.update(scores={"judge": "1"}),
        lambda row: row.pop("of"), lambda row: row.update(attribution=[["Oslo"]]),
        lambda row: row.update(attributed_triples=[["Oslo", "in"]]), lambda row: row.update(qid=1),
    ],
)  # fmt: skip
def test_wrong_line_of_scores_is_made_again_once_it_is_repaired(
    judged: Path, change: Change
) -> None:
    before = (judged / "scores.jsonl").read_bytes()
    damaged(judged / "scores.jsonl", 1, change)
    assert any("line 1 cannot be read" in f.line() for f in examine(judged, data=False))
    lm = ScriptedLM(fair, name="judge")
    with pytest.raises(RunError, match="line 1 cannot be read"):
        score_run(judged, judging(lm))
    repair(judged, examine(judged, data=False))
    score_run(judged, judging(lm))
    assert (judged / "scores.jsonl").read_bytes() == before
    assert lm.asked == []
    assert read_lines(judged / "scores.jsonl", wrong_with_scores)[1] == []


def test_labels_for_another_number_of_claims_are_no_labels(tmp_path: Path) -> None:
    group = Group("q1", ["One.", "Two."], ["One.", "Two."], [passage("p1")])
    asking = Asking(ScriptedLM(lambda asked: {"verdicts": ["supported"] * 2}, name="judge"), 1)
    folder = make_run(tmp_path / "run", [answered("q1", "Norway")])
    assert label_claims(folder, [group], asking)[0] == [[True, True]]
    damaged(folder / JOURNAL, 1, lambda row: row.update(value=[True]))
    assert label_claims(folder, [group], asking)[0] == [[None, None]]


@pytest.mark.parametrize(
    "line", ["7", "[]", '{"attempt": 0}', '{"attempt": "1"}', '{"attempt": 1, "model": "m"}',
             '{"attempt": 1, "side": "student", "model": "m", "cost_usd": "free"}',
             '{"attempt": 1, "side": "student", "prompt_tokens": 5}'],
)  # fmt: skip
def test_wrong_line_of_a_compiles_calls_is_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "calls.jsonl"
    with CallJournal(path).open():
        file_call(Call(model="m", prompt_tokens=5))
    assert [call.prompt_tokens for call in read_calls(path)] == [5]
    with path.open("a") as file:
        file.write(line + "\n")
    for read in (CallJournal, read_calls):
        with pytest.raises(RunError, match=r"calls.jsonl line 3: .* is missing or wrong") as told:
            read(path)
        assert "\n" not in str(told.value)


def test_wrong_record_is_no_spending(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway"), answered("q2", "Norway")])
    assert len(list(billed_under(tmp_path))) == 2
    damaged(folder / RECORDS, 2, lambda row: row.update(ledger=7))
    assert len(list(billed_under(tmp_path))) == 1
