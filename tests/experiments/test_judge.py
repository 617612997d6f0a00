"""The judge: verdicts read strictly, each asked for once, every denominator right."""

from pathlib import Path

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.score.annotate.asking import Asking, read_journal
from ragbench.experiments.score.annotate.judging import Judging
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Limits, spending
from ragbench.metrics.errors import cause_of
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, four, make_run
from tests.fake_server import FakeServer
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited
from tests.runs import query


def fair(asked: Asked) -> Reply:
    right = "Norway" in asked.inputs["answer"]
    return {"verdict": "correct" if right else "incorrect"}


def judging(lm: ScriptedLM, **fields: object) -> ScoreRequest:
    return ScoreRequest(judge=JudgeRequest(Asking(lm, 2), **fields))  # type: ignore[arg-type]


def test_verdicts_fill_the_metric_and_every_denominator(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    scored = score_run(folder, judging(ScriptedLM(fair, name="judge")))
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["failed"]) == (2, 1, 1)
    assert found["accuracy_all"] == 0.5
    assert found["accuracy_not_blank"] == 0.5  # the failed one counts as predicted, by its message
    assert found["model"] == "scripted/judge"
    assert found["contain"]["same"] == 1.0
    assert scored.summary["scores"]["judge"]["mean"] == 0.5
    assert scored.summary["breakdowns"]["hops"]["2"]["judge"] == 0.5


def test_a_judge_that_rejects_exact_matches_is_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    harsh = ScriptedLM(lambda asked: {"verdict": "incorrect"}, name="judge")
    found = score_run(folder, judging(harsh)).summary["judges"]["judge"]
    exact = [r for r in four() if r.answer in r.answers]
    assert found["contain"]["exact_rejected"] == found["contain"]["exact"] == len(exact) > 0
    assert any(
        f"rejects {len(exact)} of {len(exact)}" in line for line in Judging.describe("j", found)
    )
    fair_one = score_run(folder, judging(ScriptedLM(fair, name="fair"))).summary["judges"]["judge"]
    assert fair_one["contain"]["exact_rejected"] == 0
    assert not any("rejects" in line for line in Judging.describe("j", fair_one))


def test_nothing_is_asked_twice_and_all_calls_are_filed_as_the_judges(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    lm = ScriptedLM(fair, name="judge")
    first = score_run(folder, judging(lm))
    second = score_run(folder, judging(lm))
    assert len(lm.asked) == 3
    assert first.summary["judges"] == second.summary["judges"]
    calls = [call for row in read_journal(folder) for call in row["calls"]]
    assert [call["kind"] for call in calls] == ["judge"] * 3
    assert all(call["cost_usd"] > 0 for call in calls)
    assert score_run(folder, ScoreRequest()).summary["judges"] == first.summary["judges"]


def test_a_damaged_verdict_is_asked_for_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    score_run(folder, judging(ScriptedLM(fair, name="judge")))
    query(folder, "UPDATE replies SET value = replace(value, 'correct', 'in') WHERE id = 1")
    lm = ScriptedLM(fair, name="judge")
    found = score_run(folder, judging(lm)).summary["judges"]["judge"]
    assert len(lm.asked) == 1
    assert found["correct"] + found["incorrect"] == 3


@pytest.mark.parametrize("reply", ["I would say so", {"verdict": "mostly correct"}, {}])
def test_unreadable_reply_is_asked_for_once_more_and_then_unscored(
    tmp_path: Path, reply: Reply
) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway"), answered("q2", "Chad")])
    lm = ScriptedLM(
        lambda asked: reply if "Chad" in asked.inputs["answer"] else fair(asked),
        name="judge", schema=False,
    )  # fmt: skip
    scored = score_run(folder, judging(lm))
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 0, 1)
    assert found["accuracy_all"] == 0.5
    assert found["accuracy_scored"] == 1.0
    assert len(lm.asked) == 3
    assert scored.summary["scores"]["judge"]["n"] == 1


def test_what_the_provider_failed_is_asked_again_next_time(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway")])
    broken = ScriptedLM(lambda asked: rate_limited(), name="judge")
    found = score_run(folder, judging(broken)).summary["judges"]["judge"]
    assert found["unscored"] == 1
    assert "LMRateLimitError" in next(iter(found["unscored_because"]))
    healed = score_run(folder, judging(ScriptedLM(fair, name="judge"))).summary["judges"]["judge"]
    assert (healed["correct"], healed["unscored"]) == (1, 0)
    assert (healed["as_if"]["calls"], healed["billed"]["calls"]) == (1, 2)


def test_a_model_does_not_judge_itself_unless_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    lm = ScriptedLM(fair, name="answerer")
    with pytest.raises(ConfigError, match="--allow-self-judge"):
        score_run(folder, judging(lm))
    assert lm.asked == []
    score_run(folder, judging(lm, allow_self=True))
    assert len(lm.asked) == 3


def test_arag_rule_hides_the_question_and_takes_only_the_exact_word(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    replies = {"Norway": " Correct\n", "Sweden": "incorrect"}

    def script(asked: Asked) -> Reply:
        assert "author of Red Sky" not in asked.prompt
        answer = asked.prompt.partition("Generated answer: ")[2].partition("\n")[0]
        return replies.get(answer, "It is correct.")

    lm = ScriptedLM(script, name="judge")
    found = score_run(folder, judging(lm, rule="arag")).summary["judges"]["judge_arag"]
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 1, 1)
    assert found["accuracy_not_blank"] == 0.25
    assert found["accuracy_all"] == 0.25
    assert len(lm.asked) == 3  # no retry
    score_run(folder, judging(lm, rule="linearrag"))
    assert len(lm.asked) == 3  # the same verdicts, another denominator


def test_repeats_are_asked_apart_and_their_agreement_is_told(tmp_path: Path) -> None:
    records = [answered(f"q{n}", "Norway" if n % 2 else "Chad") for n in range(8)]
    folder = make_run(tmp_path / "run", records)

    def moody(asked: Asked) -> Reply:
        hot = bool(asked.request.config.temperature)
        if hot and "Chad" in asked.inputs["answer"]:
            return {"verdict": "correct"}
        return fair(asked)

    lm = ScriptedLM(moody, name="judge", cache=True)
    found = score_run(folder, judging(lm, repeats=2)).summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"]) == (4, 4)  # the first verdict is the score
    assert found["repeats"]["all_agree"] == 0.5
    assert found["repeats"]["cohen_kappa"] == 0.0
    assert found["repeats"]["krippendorff_alpha"] == pytest.approx(-0.25, abs=0.01)


def test_limit_of_spending_leaves_the_rest_for_later(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered(f"q{n}", f"Norway {n}") for n in range(9)])
    lm = ScriptedLM(fair, name="judge")
    with spending(Limits(calls=2)) as spent:
        found = score_run(folder, judging(lm)).summary["judges"]["judge"]
    assert (len(lm.asked), found["not_asked"], spent.stopped_by) == (2, 7, "--max-calls 2")
    assert (found["accuracy_all"], found["accuracy_scored"]) == (None, 1.0)
    whole = score_run(folder, judging(lm)).summary["judges"]["judge"]
    assert (whole["correct"], len(lm.asked), whole["billed"]["calls"]) == (9, 9, 9)
    free = ScriptedLM(fair, name="judge", price=None)
    fresh = make_run(tmp_path / "fresh", four())
    with spending(Limits(cost=1.0)), pytest.raises(ConfigError, match="--price"):
        score_run(fresh, judging(free))


def test_task_that_a_limit_cuts_off_keeps_what_it_took(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Norway")])
    lm = ScriptedLM(lambda a: "hm" if a.number == 1 else fair(a), name="judge", schema=False)
    with spending(Limits(calls=1)):
        found = score_run(folder, judging(lm)).summary["judges"]["judge"]
    assert (found["unscored"], found["not_asked"], found["billed"]["calls"]) == (0, 1, 1)
    whole = score_run(folder, judging(lm)).summary["judges"]["judge"]
    assert (whole["correct"], whole["as_if"]["calls"], whole["billed"]["calls"]) == (1, 1, 2)


def test_judge_that_accepts_turns_the_cause_into_a_disagreement(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [answered("q1", "Kongeriket Norge")])
    assert cause_of(next(iter(read_records(folder).values()))).level == "reading"  # type: ignore[union-attr]
    score_run(folder, judging(ScriptedLM(lambda a: {"verdict": "correct"}, name="judge")))
    assert cause_of(next(iter(read_records(folder).values()))).name == "data/metrics_disagree"  # type: ignore[union-attr]


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
        assert (code, err) == (0, "")
        assert len(server.hits) == 3
    assert "3 correct, 0 incorrect, 1 failed, 0 unscored" in out
    assert "0.750 of all (LinearRAG's denominator), 0.750 of those not blank (A-RAG's)" in out
    assert "differs: data: hotpotqa, not arag" in out
