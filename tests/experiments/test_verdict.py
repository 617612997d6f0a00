"""A verdict: every arm an ordinary run, held out, continued where it was cut off, and in words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import CompareError, DataError, RagbenchError, RunError
from ragbench.experiments.compile import CompileConfig
from ragbench.experiments.records import RECORDS, read_records
from ragbench.experiments.spending import PayBack
from ragbench.experiments.verdict import VERDICT, Verdict, reread, run_verdict
from ragbench.experiments.verdict_report import print_verdict, side_by_side, summary_lines
from tests.experiments.towns import Killed, World, killed_at


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def verdict(world: World, *, program: str = "vanilla", **over: Any) -> Verdict:
    config = world.config(program=program, out=world.folder / "verdict", **over.pop("run", {}))
    return run_verdict(config, CompileConfig(), say=lambda line: None, **over)


@pytest.mark.parametrize("program", ["vanilla", "self_rag"])
def test_all_arms_by_one_command(
    program: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    made = verdict(world, program=program, seeds=2, equal_cost=True)
    assert [len(runs) for runs in made.arms.values()] == [1, 1, 2, 1]
    for runs in made.arms.values():
        for run in runs:
            assert (run.folder / "config.json").is_file()
            assert len(run.records) == 16
    compiled = made.contrasts["zero-shot", "compiled"]["em"]
    assert compiled.difference > 0
    assert made.contrasts["zero-shot", "form"]["em"].difference > 0
    assert made.contrasts["form", "compiled"]["em"].difference < compiled.difference
    assert len(made.fixed) == round(compiled.difference * 16)
    assert made.broken == []
    assert {"comparison", "bridge"} == set(made.groups["em"]["qtype"])
    assert sum(c.n for c in made.groups["em"]["qtype"].values()) == 16
    assert any(change.demos for change in made.prompts[0])
    assert made.spending.ratio is not None
    assert made.spending.ratio > 1.2
    assert made.spending.usd.questions is None
    print_verdict(made, show=1)
    shown = capsys.readouterr().out
    for words in ("never pays back", "ZERO-SHOT", "demonstrations", "compiled - votes", "qtype"):
        assert words in shown, words


def test_the_family_is_corrected_as_one(world: World) -> None:
    made = verdict(world)
    found = [c for row in made.contrasts.values() for c in row.values()]
    assert len(found) == 6
    assert all(c.p_adjusted is not None and c.p_adjusted >= c.p for c in found)
    smallest = min(found, key=lambda c: c.p)
    assert smallest.p_adjusted == pytest.approx(min(1.0, 6 * smallest.p))


def test_equal_cost_gives_at_least_the_compiled_arms_tokens(world: World) -> None:
    made = verdict(world, equal_cost=True)
    tokens = {name: runs[0].summary["as_if"]["prompt_tokens"] for name, runs in made.arms.items()}
    assert tokens["votes"] >= tokens["compiled"] > tokens["zero-shot"]
    assert made.design.votes == max(3, math.ceil(made.spending.ratio or 0))


def test_a_second_call_asks_nothing_and_says_the_same(world: World) -> None:
    first = verdict(world, seeds=2, equal_cost=True)
    text = (first.folder / VERDICT).read_text()
    again = world.use(cache=False)
    second = verdict(world, seeds=2, equal_cost=True)
    assert again.asked == []
    assert (first.folder / VERDICT).read_text() == text
    assert summary_lines(second) == summary_lines(first)


@pytest.mark.parametrize("call", [5, 22, 38, 60, 66])
def test_killed_anywhere_it_is_continued(call: int, world: World) -> None:
    world.use(killed_at(call))
    with pytest.raises(Killed):
        verdict(world, run={"workers": 1})
    assert not (world.folder / "verdict" / VERDICT).exists()
    rest = world.use()
    made = verdict(world, run={"workers": 1})
    calls = 3 * 16 + made.spending.calls
    assert len(rest.asked) <= calls - (call - 1) + 1
    assert world.use().asked == []
    for runs in made.arms.values():
        lines = (runs[0].folder / RECORDS).read_bytes().splitlines()
        assert len(lines) == 16, "a question was asked twice"


def test_verdict_json_is_rebuilt_from_records(world: World) -> None:
    made = verdict(world, seeds=2, metrics=("f1",), margin=0.2)
    path = made.folder / VERDICT
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({"design": whole["design"]}))
    assert json.loads(json.dumps(reread(made.folder).to_dict())) == whole
    path.unlink()
    with pytest.raises(RunError, match="no finished verdict"):
        reread(made.folder)


def test_questions_that_are_not_held_out_are_refused(world: World) -> None:
    for split in ("train", "validation"):
        with pytest.raises(DataError, match="held-out"):
            verdict(world, run={"split": split})
    assert world.lm.asked == []
    made = verdict(world)
    sidecar = made.folder / "program-0" / "sidecar.json"
    changed = json.loads(sidecar.read_text())
    changed["data"]["train"]["ids"].append(next(iter(made.arms["form"][0].records)))
    sidecar.write_text(json.dumps(changed))
    with pytest.raises(DataError, match="used to compile"):
        reread(made.folder)
    with pytest.raises(DataError, match="used to compile"):
        verdict(world)


def test_what_compiling_would_refuse_is_refused_before_anything_is_spent(world: World) -> None:
    config = world.config(out=world.folder / "verdict")
    for run, how in (
        (config, CompileConfig(optimizer="bootstrp")),
        (config, CompileConfig(opt_set={"bootstrapped": -1})),
        (config.model_copy(update={"form": True}), CompileConfig()),
        (config.model_copy(update={"compiled": world.folder}), CompileConfig()),
    ):
        with pytest.raises(RagbenchError):
            run_verdict(run, how, say=lambda line: None)
    assert world.lm.asked == []


def test_arms_over_different_questions_are_refused(world: World) -> None:
    made = verdict(world)
    path = made.folder / "form" / RECORDS
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(CompareError, match="different questions"):
        reread(made.folder)
    assert len(verdict(world).arms["form"][0].records) == 16


def test_the_form_arm_differs_from_zero_shot_in_form_alone(world: World) -> None:
    made = verdict(world)
    zero, form = (read_records(made.folder / name).records for name in ("zero-shot", "form"))
    for qid, record in zero.items():
        assert form[qid]["answer"] in record["answer"]
        assert form[qid]["passages"] == record["passages"]
    ours = json.loads((made.folder / "form" / "config.json").read_text())["identity"]
    theirs = json.loads((made.folder / "zero-shot" / "config.json").read_text())["identity"]
    assert ours.pop("form") is True
    assert ours == theirs


def test_seeds_of_one_program_are_no_replication(world: World) -> None:
    config = world.config(out=world.folder / "verdict", k=1)
    how = CompileConfig(optimizer="labeled", train_limit=1)
    made = run_verdict(config, how, seeds=3, say=lambda line: None)
    assert made.distinct_programs == 1
    assert any("3 seeds came to 1 different programs" in line for line in summary_lines(made))


@pytest.mark.parametrize(
    ("pay", "questions", "words"),
    [
        (PayBack(10.0, 3.0, 1.0), 5, "pays back after 5 questions"),
        (PayBack(10.0, 4.0, 1.0), 4, "pays back after 4 questions"),
        (PayBack(10.0, 1.0, 3.0), None, "never pays back"),
        (PayBack(10.0, 1.0, 1.0), None, "never pays back"),
        (PayBack(None, None, None), None, "unknown"),
        (PayBack(0.0, 0.0, 0.0), None, "nothing is spent"),
    ],
)
def test_break_even(pay: PayBack, questions: int | None, words: str) -> None:
    assert pay.questions == questions
    assert words in pay.words()


def test_side_by_side_keeps_every_character() -> None:
    rows = side_by_side(["x" * 70, "b"], ["y"], width=58)
    assert rows == [f"{'x' * 58} | y", f"{'x' * 12}{' ' * 46} |", f"b{' ' * 57} |"]
