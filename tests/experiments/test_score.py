"""Scoring an old run: from its records alone, without changing them, and added one by one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.errors import RunError, UnknownNameError
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.attribution import sentences_of
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.record import CUT_OFF, Failure
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, four, make_run
from tests.fakes import ScriptedLM
from tests.metrics.records import failure, passage
from tests.runs import record_rows, scores


def test_scores_are_written_beside_records_that_stay_as_they_are(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    before = record_rows(folder)
    scored = score_run(folder, ScoreRequest())
    assert record_rows(folder) == before
    assert scored.summary["scores"]["em"]["mean"] == 0.25
    kept = scores(folder)
    assert list(kept) == ["q1", "q2", "q3", "q4"]
    assert [row["scores"]["em"] for row in kept.values()] == [1.0, 0.0, 0.0, 0.0]
    assert [row["scores"]["contain"] for row in kept.values()] == [1.0, 1.0, 0.0, 0.0]
    assert json.loads((folder / "scores.json").read_text())["n"] == 4


def test_scores_add_up_over_calls_and_breakdowns_are_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    score_run(folder, ScoreRequest(metrics=("em",)))
    scored = score_run(folder, ScoreRequest(metrics=("recall@1",)))
    assert list(scored.summary["scores"]) == ["recall@1"]
    row = scores(folder)["q1"]
    assert set(row["scores"]) == {"em", "recall@1"}
    assert scored.summary["breakdowns"]["answer_kind"]["entity"]["n"] == 4
    assert scored.summary["breakdowns"]["hops"]["2"]["n_failed"] == 1


def test_question_asked_again_loses_what_was_said_of_its_old_answer(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    score_run(folder, ScoreRequest(metrics=("em", "f1")))
    make_run(folder, [answered("q1", "Norway"), answered("q4", "Norway")])
    score_run(folder, ScoreRequest(metrics=("em",)))
    kept = {qid: set(row["scores"]) for qid, row in scores(folder).items()}
    assert kept == {"q1": {"em"}, "q2": {"em", "f1"}, "q3": {"em", "f1"}, "q4": {"em"}}


def test_unknown_metric_and_empty_folder_are_mistakes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    with pytest.raises(UnknownNameError, match="did you mean"):
        score_run(folder, ScoreRequest(metrics=("recal",)))
    with pytest.raises(RunError, match="not a run folder"):
        score_run(tmp_path, ScoreRequest())
    cut = replace(failure(), failure=Failure("limit", CUT_OFF, "stopped"))
    with pytest.raises(RunError, match="no records"):
        score_run(make_run(tmp_path / "empty", [cut]), ScoreRequest())


def attributing(used: list[int]) -> ScriptedLM:
    return ScriptedLM(lambda asked: {"used": used}, name="reader")


@pytest.mark.parametrize("used", [[0], [1, 99]])
def test_a_number_that_no_sentence_has_is_asked_for_once_more_and_then_unscored(
    tmp_path: Path, used: list[int]
) -> None:
    folder, lm = make_run(tmp_path / "run", [answered("q1", "Norway")]), attributing(used)
    found = score_run(folder, ScoreRequest(attributor=Asking(lm))).summary
    assert "sp_f1" not in found["scores"]
    assert found["judges"]["attribution"]["unscored_because"] == {
        "a number that no sentence has": 1
    }
    assert len(lm.asked) == 2


def test_attribution_gives_support_and_joint_marked_and_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    lm = attributing([2, 3])  # Ann Lee 1 and Oslo 0, the gold facts
    scored = score_run(folder, ScoreRequest(attributor=Asking(lm)))
    assert scored.summary["support_kinds"] == {"attributed": 3}
    assert scored.summary["scores"]["sp_f1"]["mean"] == 0.75  # the failed one has 0
    assert scored.summary["scores"]["joint_f1"]["mean"] == pytest.approx(0.25, abs=0.2)
    found = scored.summary["judges"]["attribution"]
    assert found["attributed"] == 3
    assert len(lm.asked) == 3
    again = score_run(folder, ScoreRequest())
    assert again.summary["scores"]["sp_f1"]["mean"] == 0.75
    assert again.summary["judges"]["attribution"] == found
    score_run(folder, ScoreRequest(attributor=Asking(lm)))
    assert len(lm.asked) == 3
    cited = make_run(tmp_path / "cited", [answered("q1", "Norway", citations=[["Oslo", 0]])])
    found = score_run(cited, ScoreRequest(attributor=Asking(lm))).summary
    assert (len(lm.asked), found["support_kinds"]) == (3, {"cited": 1})


def test_sentences_of_a_chunk_are_the_facts_that_it_holds() -> None:
    chunk = replace(passage("p1"), title="", holds=(("Ann Lee", 0), ("Ann Lee", 1)))
    rows, cut = sentences_of(answered("q1", "Norway", passages=[chunk]))
    assert [fact for fact, _ in rows] == [("Ann Lee", 0), ("Ann Lee", 1)]
    assert not cut
    unknown = replace(chunk, holds=(("Ann Lee", 0),))
    assert sentences_of(answered("q1", "Norway", passages=[unknown]))[0] == []


def test_commands_print_tables_and_examples_safely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = answered("q5", "[red]\x1b[31mSweden[/red]")
    folder = make_run(tmp_path / "run", [*four(), evil])
    code, out, _ = command(capsys, "score", str(folder), "--protocol", "hotpotqa")
    assert code == 0
    assert "| em " in out
    assert "question type" in out
    assert "protocol hotpotqa" in out
    code, out, _ = command(capsys, "errors", str(folder), "--show", "2")
    assert code == 0
    assert "reading" in out
    assert "\x1b" not in out
    assert "[red]" in out
    code, _, err = command(capsys, "errors", str(folder), "--cause", "readin")
    assert code == 2
    assert "did you mean reading" in err
