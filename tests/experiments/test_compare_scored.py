"""Comparing runs by what they were scored by: verdicts and retrieval."""

from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import compare_all
from ragbench.experiments.runs import reopen
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.test_judge import fair
from tests.fakes import Asked, Reply, ScriptedLM

N = 12


def runs(tmp_path: Path) -> tuple[Path, Path]:
    """B is right where A is not, in other words, and finds one gold passage less in half."""
    a = [
        answered(f"q{n}", f"Chad {n}", qtype="bridge" if n % 2 else "comparison",
                 extra={"cluster": f"c{n}"})
        for n in range(N)
    ]  # fmt: skip
    b = [
        answered(f"q{n}", "the land of Norway", qtype=row.qtype, extra=row.extra,
                 pids=("p1", "p2") if n % 2 else ("p1", "p3"))
        for n, row in enumerate(a)
    ]  # fmt: skip
    return make_run(tmp_path / "a", a), make_run(tmp_path / "b", b)


def judge(folder: Path, name: str = "judge", script: Any = fair) -> None:
    lm = ScriptedLM(script, name=name, schema=False)
    score_run(folder, ScoreRequest(judge=JudgeRequest(Asking(lm))))


def compared(a: Path, b: Path, *metrics: str) -> Any:
    return compare_all([reopen(a), reopen(b)], metrics=metrics)[0]


def test_verdicts_and_retrieval_are_compared_with_the_same_tests(tmp_path: Path) -> None:
    a, b = runs(tmp_path)
    judge(a), judge(b)
    found = compared(a, b, "em", "judge", "recall@5").scores
    assert (found["em"].mean_b, found["judge"].mean_a, found["judge"].mean_b) == (0.0, 0.0, 1.0)
    assert found["judge"].verdict == "better"
    assert (found["recall@5"].mean_a, found["recall@5"].mean_b) == (1.0, 0.75)


def test_unscored_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    a, b = runs(tmp_path)

    def silent(asked: Asked) -> Reply:
        return "hm" if asked.number == 1 or asked.request.config.temperature else fair(asked)

    judge(a, script=silent), judge(b)
    assert compared(a, b, "judge").scores["judge"].n == N - 1


def test_only_what_one_judge_said_of_both_is_compared(tmp_path: Path) -> None:
    a, b = runs(tmp_path)
    judge(a)
    with pytest.raises(CompareError, match="ragbench score"):
        compared(a, b, "judge")
    judge(b, name="another")
    with pytest.raises(CompareError, match="by scripted/another and by scripted/judge"):
        compared(a, b, "judge")
