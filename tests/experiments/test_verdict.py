"""A verdict: every arm an ordinary run, held out, continued where it was cut off, and in words."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError, DataError, RagbenchError, RunError
from ragbench.experiments.compare.running import run_verdict
from ragbench.experiments.compare.verdicts import VERDICT, Verdict, VerdictRequest, reread
from ragbench.experiments.compile import make_plan
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.report.verdict import looks_in_words, print_verdict, summary_lines
from ragbench.experiments.runs.context import limited
from ragbench.experiments.store import write_json
from ragbench.lms.calls import Limits
from tests.experiments.towns import Killed, World, helped_by_demos, killed_at, town
from tests.fakes import Asked, Reply
from tests.runs import record_rows


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def verdict(world: World, *, program: str = "vanilla", **over: Any) -> Verdict:
    config = world.config(program=program, out=world.folder / "verdict", **over.pop("run", {}))
    request = VerdictRequest(**{"equal_cost": False, **over})
    return run_verdict(config, CompileConfig(), request, on_message=lambda line: None)


def test_all_arms_by_one_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    made = verdict(world, seeds=2, equal_cost=True)
    assert [len(runs) for runs in made.arms.values()] == [1, 1, 2, 2, 1]
    for runs in made.arms.values():
        for run in runs:
            assert (run.folder / "card.json").is_file()
            assert len(run.records) == 16
    compiled = made.contrasts["zero-shot", "compiled"]["em"]
    assert compiled.difference > 0
    assert made.contrasts["zero-shot", "form"]["em"].difference > 0
    assert made.contrasts["form", "compiled-form"]["em"].difference < compiled.difference
    family = [c for row in made.contrasts.values() for c in row.values()]
    assert len(family) == 8
    assert all(c.p_adjusted is not None and c.p_adjusted >= c.p for c in family)
    assert len(made.fixed) == round(compiled.difference * 16)
    assert made.broken == []
    assert made.spending.ratio is not None
    assert made.spending.ratio > 1.2
    assert made.spending.usd.questions is None
    assert made.matched() == pytest.approx(1.0, abs=0.1)
    assert made.design.votes == pytest.approx(made.spending.ratio, abs=0.01)
    zero, form = (made.arms[name][0] for name in ("zero-shot", "form"))
    for qid, record in zero.records.items():
        assert form.records[qid].answer in record.answer
    print_verdict(made)
    shown = capsys.readouterr().out
    for words in (
        "never pays back",
        "em of compiled by seed: 0: ",
        "compiled - votes",
        "em: this set of 2 compiled programs",
        "votes took",
    ):
        assert words in shown, words
    text = (made.folder / VERDICT).read_text()
    again = world.use(cache=False)
    assert summary_lines(verdict(world, seeds=2, equal_cost=True)) == summary_lines(made)
    assert again.asked == []
    assert (made.folder / VERDICT).read_text() == text


@pytest.mark.parametrize("call", [22, 60])
def test_killed_anywhere_it_is_continued(call: int, world: World) -> None:
    world.use(killed_at(call))
    with pytest.raises(Killed):
        verdict(world, run={"workers": 1})
    assert not (world.folder / "verdict" / VERDICT).exists()
    rest = world.use()
    made = verdict(world, run={"workers": 1})
    calls = 4 * 16 + made.spending.calls
    assert len(rest.asked) <= calls - (call - 1) + 1
    assert world.use().asked == []
    for runs in made.arms.values():
        assert len(record_rows(runs[0].folder)) == 16, "a question was asked twice"


def test_verdict_json_is_rebuilt_from_records(world: World) -> None:
    made = verdict(world, seeds=2, metrics=("f1",), margin=0.2)
    path = made.folder / VERDICT
    whole = json.loads(path.read_text())
    whole.pop("sum")
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
    del changed["sum"]
    write_json(sidecar, changed, sealed=True)
    with pytest.raises(DataError, match="used to compile"):
        reread(made.folder)
    with pytest.raises(DataError, match="used to compile"):
        verdict(world)


def test_what_compiling_would_refuse_is_refused_before_anything_is_spent(world: World) -> None:
    config = world.config(out=world.folder / "verdict")
    for run, how in (
        (config, CompileConfig(optimizer="bootstrp")),
        (config, CompileConfig(opt_set={"bootstrapped": -1})),
        (config.but(form=True), CompileConfig()),
        (config.but(compiled=world.folder), CompileConfig()),
    ):
        with pytest.raises(RagbenchError):
            run_verdict(run, how, VerdictRequest(), on_message=lambda line: None)
    assert world.lm.asked == []


def test_seeds_of_one_program_are_no_replication(world: World) -> None:
    config = world.config(out=world.folder / "verdict", k=1)
    how = CompileConfig(optimizer="labeled", train_limit=1)
    made = run_verdict(config, how, VerdictRequest(seeds=3), on_message=lambda line: None)
    assert made.distinct_programs == 1
    assert any("3 seeds came to 1 different programs" in line for line in summary_lines(made))


def quick(world: World, **over: Any) -> Verdict:
    """A verdict of three bootstraps over few questions, which come to different programs."""
    config = world.config(out=world.folder / "verdict", k=1)
    settings = CompileConfig(train_limit=6)
    request = VerdictRequest(**{"seeds": 3, "equal_cost": False, "form_too": False, **over})
    return run_verdict(config, settings, request, on_message=lambda line: None)


def test_three_different_programs_make_a_verdict_on_the_optimizer(world: World) -> None:
    made = quick(world)
    assert made.distinct_programs == 3
    assert made.conclusion("em").startswith("compiling on these 6 questions ")
    assert not any("this is a verdict on" in line for line in summary_lines(made))
    two = quick(world, seeds=2)
    assert two.conclusion("em").startswith("this set of 2 compiled programs ")
    assert any("verdict on this set of 2 compiled programs" in line for line in summary_lines(two))
    one = quick(world, seeds=1)
    assert one.conclusion("em").startswith("this compiled program ")
    shutil.rmtree(one.folder / "compiled-0")
    (one.folder / "compiled-1").rename(one.folder / "compiled-0")
    with pytest.raises(RunError, match="run of another compiled program"):
        reread(one.folder)


def test_until_decided_looks_are_kept_and_asked_once(world: World) -> None:
    config = world.config(out=world.folder / "verdict", limit=6)
    request = VerdictRequest(form_too=False, metrics=("em",), max_questions=900)
    made = run_verdict(config, CompileConfig(), request, on_message=lambda line: None)
    assert [look.questions for look in made.looks] == [6, 9, 14, 16]
    assert {look.votes for look in made.looks} == {made.design.votes}
    assert made.contrasts["zero-shot", "compiled"]["em"].bets
    assert not made.looks[-1].decided
    assert made.looks[0].p > 0.05
    assert "not decided after 16 of at most 16 questions" in looks_in_words(made.looks, 10.0, 0.5)
    asked = len(world.lm.asked)
    again = run_verdict(config, CompileConfig(), request, on_message=lambda line: None)
    assert len(world.lm.asked) == asked
    assert again.looks == made.looks
    assert again.conclusion("em") == made.conclusion("em")


def test_a_clear_difference_is_decided_early_and_says_what_that_saved(world: World) -> None:
    config = world.config(out=world.folder / "verdict", limit=12)
    dataset = make_plan(config, CompileConfig()).run_context.dataset
    compiling = {e.question for name in ("train", "validation") for e in dataset.splits[name]}

    def right_with_demos(asked: Asked) -> Reply:
        reply = helped_by_demos(asked)
        if "answer" in reply:
            demos = asked.prompt.count("Which town number") > 1
            right = demos or asked.inputs.get("question", "") in compiling
            reply["answer"] = f"Town {town(asked)}" if right else "elsewhere"
        return reply

    world.use(right_with_demos)
    request = VerdictRequest(form_too=False, equal_cost=False, metrics=("em",), max_questions=16)
    made = run_verdict(config, CompileConfig(), request, on_message=lambda line: None)
    assert [(look.questions, look.decided) for look in made.looks] == [(12, True)]
    assert made.conclusion("em").startswith("this compiled program helps")
    said = looks_in_words(made.looks, 10.0, 0.5)[1]
    assert said.startswith("decided after 12 of at most 16 questions, which saved about 40 tokens")


def test_what_does_not_go_together_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="has no bounds"):
        verdict(world, metrics=("answer_length",), max_questions=8)
    assert world.lm.asked == []


def test_a_limit_within_the_votes_leaves_their_arm_out(world: World) -> None:
    config = world.config(out=world.folder / "verdict")
    whole = verdict(world, form_too=False)
    calls = len(world.lm.asked)
    world.use(cache=False)
    shutil.rmtree(whole.folder)
    said: list[str] = []
    with limited(Limits(calls=calls + 4), config.out or Path()):
        made = run_verdict(
            config, CompileConfig(), VerdictRequest(form_too=False), on_message=said.append
        )
    assert "votes" not in made.arms
    assert any("without the arm at equal cost" in line for line in said)
