"""Causes by a model: only where rules cannot tell, marked, and undecided where it says nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.report.errors import errors_of
from ragbench.experiments.score.asking import Asking
from ragbench.metrics.errors import UNDECIDED
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import failure


def records() -> list[dict[str, Any]]:
    return [
        answered("q1", "Norway"),
        answered("q2", "Kongeriket Norge"),  # the same, in another language
        answered("q3", "Sweden"),
        answered("q4", "Chad", pids=("p1",)),  # a gold passage is missing: a rule knows
        answered("q5", "A Norw\u00e4y"),  # right in another spelling: a rule knows
        replace(failure(), qid="q6"),
    ]


def test_gold_among_other_words_goes_to_the_judge(tmp_path: Path) -> None:
    rows = [answered("q1", "The kingdom of Norway"), answered("q2", "Norway Street in Bergen")]
    folder = make_run(tmp_path / "run", rows)
    assert set(causes(errors_of(folder)).values()) == {("reading/among_words", "rule")}

    def judge(asked: Asked) -> Reply:
        kingdom = "kingdom" in asked.inputs["answer"]
        return {"mistake": "same_meaning" if kingdom else "wrong_entity"}

    found = causes(errors_of(folder, asking=Asking(ScriptedLM(judge, name="judge"))))
    assert found["q1"] == ("reading/wrong_form", "model")
    assert found["q2"] == ("reading/same_type", "model")


def test_wrong_is_what_the_metric_says(tmp_path: Path) -> None:
    rows = [answered("q1", "The kingdom of Norway"), answered("q2", "Sweden")]
    folder = make_run(tmp_path / "run", rows)
    assert set(causes(errors_of(folder, metric="contain"))) == {"q2"}
    strict = make_run(tmp_path / "judged", [answered("q1", "Norway", scores={"judge": 0.0})])
    assert errors_of(strict).wrong == []
    assert causes(errors_of(strict, metric="judge"))["q1"][0] == "data/metrics_disagree"


def explaining(asked: Asked) -> Reply:
    assert asked.signature == "ExplainMistake"
    return {"mistake": "same_meaning" if "Norge" in asked.inputs["answer"] else "passages_lack_it"}


def causes(found: Any) -> dict[str, tuple[str, str]]:
    return {record.qid: (cause.name, cause.by) for record, cause in found.wrong}


def test_model_decides_only_what_rules_cannot(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", records())
    by_rule = causes(errors_of(folder))
    assert {by for _, by in by_rule.values()} == {"rule"}
    lm = ScriptedLM(explaining, name="judge")
    found = errors_of(folder, asking=Asking(lm))
    open_ones = {qid for qid, (name, _) in by_rule.items() if name in UNDECIDED}
    assert open_ones == {"q2", "q3"}
    assert {qid: one for qid, one in causes(found).items() if one[1] == "rule"} == {
        qid: one for qid, one in by_rule.items() if qid not in open_ones
    }
    assert causes(found)["q2"] == ("data/metrics_disagree", "model")
    assert causes(found)["q3"] == ("data/answer_not_in_gold", "model")  # all gold was there
    assert len(lm.asked) == 2
    assert errors_of(folder, asking=Asking(lm)) == found
    assert len(lm.asked) == 2
    assert causes(errors_of(folder)) == by_rule


@pytest.mark.parametrize("reply", ["hm", {"mistake": "bad luck"}, {}])
def test_unreadable_reply_leaves_the_cause_undecided(tmp_path: Path, reply: Reply) -> None:
    folder = make_run(tmp_path / "run", [answered("q3", "Sweden")])
    lm = ScriptedLM(lambda asked: reply, name="judge", schema=False)
    found = errors_of(folder, asking=Asking(lm))
    assert causes(found)["q3"] == ("reading/undecided", "model")
    assert len(lm.asked) == 2
    assert found.asked is not None
    assert found.asked["unscored"] == 1


def test_model_does_not_explain_its_own_answers_unless_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", records())
    lm = ScriptedLM(explaining, name="answerer")
    with pytest.raises(ConfigError, match="--allow-self-judge"):
        errors_of(folder, asking=Asking(lm))
    assert errors_of(folder, asking=Asking(lm), allow_self=True).asked


def test_command_marks_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", records())
    errors_of(folder, asking=Asking(ScriptedLM(explaining, name="judge")))
    code, out, _ = command(capsys, "errors", str(folder))
    assert code == 0
    assert "2 of them see only that strings differ" in out
    assert "  q2  In which country" in out  # examples are shown unless told not to
    code, _, err = command(capsys, "errors", str(folder), "--batch")
    assert (code, "--judge" in err) == (2, True)
