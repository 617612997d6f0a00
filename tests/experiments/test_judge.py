"""The judge: verdicts read strictly, each asked for once, every denominator right."""

from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.score.asking import Asking, read_journal
from ragbench.experiments.score.judging import Judging
from ragbench.experiments.score.scoring import JudgeRequest, Scored, ScoreRequest, score_run
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Limits, spending
from ragbench.metrics.errors import cause_of
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, four, make_run
from tests.fake_server import FakeServer, Fault
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited


def fair(asked: Asked) -> Reply:
    right = "Norway" in asked.inputs["answer"]
    return {"verdict": "correct" if right else "incorrect"}


def judge_of(script: Any = fair, **fields: Any) -> ScriptedLM:
    return ScriptedLM(script, name="judge", **fields)


def scored_by(folder: Path, lm: ScriptedLM, **fields: Any) -> Scored:
    return score_run(folder, ScoreRequest(judge=JudgeRequest(Asking(lm, 2), **fields)))


def judged(folder: Path, lm: ScriptedLM, **fields: Any) -> dict[str, Any]:
    """The summary of the judge."""
    (found,) = scored_by(folder, lm, **fields).summary["judges"].values()
    return dict(found)


def test_verdicts_fill_the_metric_and_every_denominator_and_are_asked_for_once(
    tmp_path: Path,
) -> None:
    folder, lm = make_run(tmp_path / "run", four()), judge_of()
    scored = scored_by(folder, lm)
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["failed"]) == (2, 1, 1)
    assert (found["model"], found["contain"]["same"]) == ("scripted/judge", 1.0)
    assert scored.summary["scores"]["judge"]["mean"] == 0.5
    assert scored.summary["breakdowns"]["hops"]["2"]["judge"] == 0.5
    assert judged(folder, lm) == found
    assert len(lm.asked) == 3
    calls = [call for row in read_journal(folder) for call in row["calls"]]
    assert [call["kind"] for call in calls] == ["judge"] * 3
    assert all(call["cost_usd"] > 0 for call in calls)
    assert score_run(folder, ScoreRequest()).summary["judges"] == {"judge": found}


def test_a_judge_that_rejects_exact_matches_is_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    found = judged(folder, judge_of(lambda asked: {"verdict": "incorrect"}))
    assert found["contain"]["exact_rejected"] == found["contain"]["exact"] == 1
    assert any("rejects 1 of 1" in line for line in Judging.describe("j", found))
    found = judged(folder, ScriptedLM(fair, name="fair"))
    assert found["contain"]["exact_rejected"] == 0
    assert not any("rejects" in line for line in Judging.describe("j", found))


@pytest.mark.parametrize("reply", ["I would say so", {"verdict": "mostly correct"}])
def test_unreadable_reply_is_asked_for_once_more_and_then_unscored(
    tmp_path: Path, reply: Reply
) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway"), answered("q2", "Chad")])
    lm = judge_of(lambda a: reply if "Chad" in a.inputs["answer"] else fair(a), schema=False)
    scored = scored_by(folder, lm)
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 0, 1)
    assert (len(lm.asked), scored.summary["scores"]["judge"]["n"]) == (3, 1)
    tries = [a.request.config.temperature for a in lm.asked if "Chad" in a.inputs["answer"]]
    assert tries == [0.0, 0.7]  # the same again could come from a cache


def test_what_the_provider_failed_is_asked_again_next_time(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway")])
    found = judged(folder, judge_of(lambda asked: rate_limited()))
    assert found["unscored"] == 1
    assert "LMRateLimitError" in next(iter(found["unscored_because"]))
    healed = judged(folder, judge_of())
    assert (healed["correct"], healed["unscored"]) == (1, 0)
    assert (healed["as_if"]["calls"], healed["billed"]["calls"]) == (1, 2)


def test_a_model_does_not_judge_itself_unless_told(tmp_path: Path) -> None:
    folder, lm = make_run(tmp_path / "run", four()), ScriptedLM(fair, name="answerer")
    with pytest.raises(ConfigError, match="--allow-self-judge"):
        judged(folder, lm)
    assert lm.asked == []
    judged(folder, lm, allow_self=True)
    assert len(lm.asked) == 3


def test_arag_rule_hides_the_question_and_takes_only_the_exact_word(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    replies = {"Norway": " Correct\n", "Sweden": "incorrect"}

    def script(asked: Asked) -> Reply:
        assert "author of Red Sky" not in asked.prompt
        answer = asked.prompt.partition("Generated answer: ")[2].partition("\n")[0]
        return replies.get(answer, "It is correct.")

    lm = judge_of(script)
    found = judged(folder, lm, rule="arag")
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 1, 1)
    assert len(lm.asked) == 3  # no retry
    for name in ("arag", "linearrag"):
        summary = score_run(folder, ScoreRequest(protocol=name)).summary
        assert summary["protocol"]["scores"]["LLM-Acc"]["mean"] == 0.25


def test_limit_of_spending_leaves_the_rest_for_later(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered(f"q{n}", f"Norway {n}") for n in range(9)])
    lm = judge_of()
    with spending(Limits(calls=2)) as spent:
        found = judged(folder, lm)
    assert (len(lm.asked), found["not_asked"], spent.stopped_by) == (2, 7, "--max-calls 2")
    whole = judged(folder, lm)
    assert (whole["correct"], len(lm.asked), whole["billed"]["calls"]) == (9, 9, 9)
    fresh = make_run(tmp_path / "fresh", four())
    with spending(Limits(cost=1.0)), pytest.raises(ConfigError, match="--price"):
        judged(fresh, judge_of(price=None))


def test_task_that_a_limit_cuts_off_keeps_what_it_took(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway")])
    lm = judge_of(lambda a: "hm" if a.number == 1 else fair(a), schema=False)
    with spending(Limits(calls=1)):
        found = judged(folder, lm)
    assert (found["unscored"], found["not_asked"], found["billed"]["calls"]) == (0, 1, 1)
    whole = judged(folder, lm)
    assert (whole["correct"], whole["as_if"]["calls"], whole["billed"]["calls"]) == (1, 1, 2)


def test_judge_that_accepts_turns_the_cause_into_a_disagreement(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Kongeriket Norge")])

    def cause() -> str:
        return str(getattr(cause_of(read_records(folder)["q1"]), "name", ""))

    assert cause() == "reading/same_type"
    judged(folder, judge_of(lambda asked: {"verdict": "correct"}))
    assert cause() == "data/metrics_disagree"


def test_command_asks_a_real_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    folder = make_run(tmp_path / "run", four())
    with FakeServer(lambda hit: "correct") as server:
        code, out, err = command(
            capsys, "score", str(folder), "--judge", "openai/judge", "--api-base", server.url,
            "--no-cache", "--protocol", "arag",
        )  # fmt: skip
        assert code == 0, err
        assert len(server.hits) == 3
    assert "3 correct, 0 incorrect, 1 failed, 0 unscored" in out
    assert "LLM-Acc: 0.750" in out
    assert "differs: data: hotpotqa, not arag" in out


def test_command_ends_with_1_where_no_reply_is_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    folder = make_run(tmp_path / "run", four())
    with FakeServer(lambda hit: Fault("405")) as server:
        asking = ["--judge", "openai/judge", "--api-base", server.url, "--no-cache"]
        code, out, err = command(capsys, "score", str(folder), *asking)
    assert (code, "3 unscored" in out, "judge: no reply could be used" in err) == (1, True, True)
    assert command(capsys, "score", str(folder))[0] == 0  # nothing is asked
