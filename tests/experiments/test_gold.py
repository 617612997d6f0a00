"""`errors RUN --gold RUN` compares all questions with a run of the program `gold`."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.experiments.scored_runs import CARD, answered, make_run

Command = Callable[..., tuple[int, str, str]]
GOLD = {"identity": {**CARD["identity"], "program": "gold"}}


def run_of(folder: Path, answers: dict[str, str], **card: object) -> Path:
    """A run with one cluster for each question."""
    records = [answered(qid, text, extra={"cluster": qid}) for qid, text in answers.items()]
    return make_run(folder, records, **card)


def test_errors_gold_counts_each_outcome_and_the_gain(tmp_path: Path, command: Command) -> None:
    answers = {f"both-{n}": "Norway" for n in range(8)}
    answers |= {f"retrieval-{n}": "Sweden" for n in range(6)}
    answers |= {"reading-1": "Sweden", "memory-1": "Norway"}
    run = run_of(tmp_path / "run", answers)
    with_gold = {qid: "Norway" for qid in answers} | {"reading-1": "Chad", "memory-1": "Chad"}
    gold = run_of(tmp_path / "gold", with_gold, **GOLD)
    code, out, err = command("errors", run, "--gold", gold, "--show", 0, "--format", "json")
    assert code == 0, err
    [table] = [part for part in json.loads(out) if part["table"] == "gold"]
    assert [row["n"] for row in table["rows"]] == [8, 6, 1, 1]
    assert [row["share"] for row in table["rows"]] == [8 / 16, 6 / 16, 1 / 16, 1 / 16]
    out = command("errors", run, "--gold", gold)[1]
    assert "perfect retrieval changes em by +0.312 [" in out
    assert "over 16 questions" in out


def test_errors_gold_of_another_program_or_other_questions_is_refused(
    tmp_path: Path, command: Command
) -> None:
    run = run_of(tmp_path / "run", {"q1": "Sweden", "q2": "Norway"})
    gold = run_of(tmp_path / "gold", {"q1": "Norway"}, **GOLD)
    for given, cause in ((run, "is a run of vanilla"), (gold, "")):
        code, _, err = command("errors", run, "--gold", given)
        assert code == 2
        assert cause in err
        assert err.count("\n") == 1
