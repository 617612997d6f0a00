"""A verdict: every arm an ordinary run, held out, continued where it was cut off, and in words."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.cli.printing import show
from ragbench.data import load_dataset
from ragbench.errors import DataError, RagbenchError, RunError
from ragbench.experiments.cells.sweep import arms_of, run_sweep
from ragbench.experiments.cells.sweep_file import load_sweep
from ragbench.experiments.cells.verdict import reread, run_verdict
from ragbench.experiments.compare.verdicts import Verdict, VerdictRequest
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.report.verdict import caveats, verdict_report
from ragbench.experiments.store import EXPERIMENT, write_json
from ragbench.lms.calls import Limits, spending
from tests.experiments.scored_runs import make_verdict
from tests.experiments.towns import Killed, World, helped_by_demos, killed_at, town
from tests.fakes import Asked, Reply
from tests.runs import compile_calls, record_rows


def verdict(
    world: World, run: dict[str, Any] | None = None, how: CompileConfig | None = None, **over: Any
) -> Verdict:
    config = world.config(**{"out": world.folder / "verdict", **(run or {})})
    request = VerdictRequest(**{"equal_cost": False, **over})
    return run_verdict(config, how or CompileConfig(), request, on_message=lambda line: None)


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
    assert made.spending.ratio > 1.2
    assert made.spending.usd.questions is None
    tokens = made.spending.tokens
    assert (tokens.saved < 0, tokens.questions) == (True, None)
    assert made.design.votes == 3
    assert made.matched() == pytest.approx(3 / made.spending.ratio, rel=0.1)
    zero, form = (made.arms[name][0] for name in ("zero-shot", "form"))
    for qid, record in zero.records.items():
        assert form.records[qid].answer in record.answer
    show(verdict_report(made))
    shown = capsys.readouterr().out
    for words in (
        "in tokens: ", "compiled - votes",
        "for this set of 2 compiled programs only", "Against votes",
    ):  # fmt: skip
        assert words in shown, words
    path, again = made.folder / EXPERIMENT, world.use(cache=False)
    text = path.read_text()
    lines = list(caveats(verdict(world, seeds=2, equal_cost=True)))
    assert (lines, again.asked, path.read_text()) == (list(caveats(made)), [], text)

    whole = json.loads(text)  # it is rebuilt from the records
    design = {"design": whole["results"]["design"]}
    path.write_text(json.dumps({**whole, "results": design}))
    assert json.loads(json.dumps(reread(made.folder).to_dict())) == whole["results"]
    path.write_text(json.dumps({**whole, "version": 9}))
    with pytest.raises(RunError, match="has version 9, not 1; run the experiment again"):
        reread(made.folder)
    path.write_text(json.dumps({**whole, "kind": "sweep"}))
    with pytest.raises(RunError, match="holds a sweep, not a verdict"):
        reread(made.folder)
    for outside in ("../other", "/tmp/other"):
        cell = {**whole["cells"][0], "folder": outside}
        path.write_text(json.dumps({**whole, "cells": [cell]}))
        with pytest.raises(RunError, match=r"cells\.0\.folder is missing"):
            reread(made.folder)
    path.unlink()
    with pytest.raises(RunError, match="no finished verdict"):
        reread(made.folder)


SWEEP = """
matrix: {optimizer: [none, bootstrap], optimizer_seed: [0, 1, 2], form: [false, true]}
baseline: [{optimizer: none}, {optimizer: none, form: false}]
"""


def test_sweep_of_the_arms_reproduces_the_contrasts_of_a_verdict(world: World) -> None:
    made = verdict(world, {"limit": 8}, seeds=3)
    fields = world.config(limit=8).model_dump(mode="json", exclude_unset=True)
    path = world.folder / "verdict.yaml"
    path.write_text(yaml.safe_dump(fields) + SWEEP)
    swept = run_sweep(load_sweep(path, out=world.folder / "sweep"))
    assert [len(arm) for arm in arms_of(swept.outcomes).values()] == [1, 1, 3, 3]
    found = {(c.baseline, c.cell): c.scores for c in swept.contrasts}
    names = {
        "zero-shot": "vanilla, form=False",
        "form": "vanilla, form=True",
        "compiled": "vanilla, bootstrap, form=False",
        "compiled-form": "vanilla, bootstrap, form=True",
    }
    assert found == {(names[a], names[b]): row for (a, b), row in made.contrasts.items()}
    assert all(c.outcome for row in found.values() for c in row.values())


def test_repeats_of_every_arm(world: World) -> None:
    made = verdict(world, {"temperature": 0.7}, repeats=2)
    assert [len(runs) for runs in made.arms.values()] == [2, 2, 2, 2]
    asked = [run.card.identity.get("repeat") for run in made.arms["compiled"]]
    assert asked == [None, 2]
    assert made.arms["compiled"][1].folder == made.folder / "cells" / "compiled-0" / "r2"
    assert reread(made.folder).to_dict() == made.to_dict()
    with pytest.raises(RunError, match="holds repeats; give --repeats"):
        verdict(world, {"temperature": 0.7})


STRANGER = """
from dspy.teleprompt import BootstrapFewShot

class Own(BootstrapFewShot):
    def compile(self, student, *, trainset, **kwargs):
        return super().compile(student, trainset=trainset)
"""


def test_an_optimizer_of_ones_own_gets_the_arms_seeds_and_journal_of_those_that_ship(
    world: World,
) -> None:
    file = world.folder / "own.py"
    file.write_text(STRANGER)
    settings = CompileConfig(optimizer=f"{file}:Own")
    with spending(Limits(calls=40)), pytest.raises(RagbenchError, match="--max-calls 40"):
        verdict(world, how=settings, seeds=2, equal_cost=True)
    asked = len(world.lm.asked)
    assert asked <= 40
    rest = world.use()
    with spending(Limits(calls=4_000)):  # an optimizer without a formula needs a limit
        found = verdict(world, how=settings, seeds=2, equal_cost=True)
    arms = {arm: len(runs) for arm, runs in found.arms.items()}
    assert arms.pop("zero-shot") == arms.pop("form") == 1
    assert arms.pop("compiled") == arms.pop("compiled-form") == 2, "a compile for each seed"
    assert list(arms.values()) == [1], "the arm of equal cost"
    assert found.distinct_programs == 2
    assert found.contrasts["zero-shot", "compiled"]["em"].difference > 0
    again = world.use(cache=False)
    assert verdict(world, how=settings, seeds=2, equal_cost=True).to_dict() == found.to_dict()
    assert again.asked == []
    calls = compile_calls(found.folder / "programs" / "program-0")
    assert {row.split(" ", 2)[1] for row in calls} >= {"zero_shot", "student"}
    assert rest.asked


def test_killed_anywhere_it_is_continued(world: World) -> None:
    for _ in range(2):
        world.use(killed_at(22))
        with pytest.raises(Killed):
            verdict(world, {"workers": 1})
        with pytest.raises(RunError, match="no finished verdict; the same command continues it"):
            reread(world.folder / "verdict")
    rest = world.use()
    made = verdict(world, {"workers": 1})
    assert len(rest.asked) <= 4 * 16 + made.spending.calls - 2 * 21 + 2
    for runs in made.arms.values():
        assert len(record_rows(runs[0].folder)) == 16, "a question was asked twice"


def test_questions_that_are_not_held_out_are_refused(world: World) -> None:
    for split in ("train", "validation"):
        with pytest.raises(DataError, match="held-out"):
            verdict(world, {"split": split})
    assert world.lm.asked == []
    made = verdict(world)
    sidecar = made.folder / "programs" / "program-0" / "sidecar.json"
    changed = json.loads(sidecar.read_text())
    changed["data"]["train"]["ids"].append(next(iter(made.arms["form"][0].records)))
    write_json(sidecar, changed)
    for again in (lambda: reread(made.folder), lambda: verdict(world)):
        with pytest.raises(DataError, match="used to compile"):
            again()


@pytest.mark.parametrize(
    ("seeds", "different", "subject", "caveat"),
    [
        (3, True, "compiling on these 20 questions", "all seeds compiled on the same questions"),
        (3, False, "this set of 3 compiled programs", "3 seeds gave only 1 different programs"),
        (2, True, "this set of 2 compiled programs", "a verdict on this set of 2 compiled"),
        (1, True, "this compiled program", "a verdict on this compiled program"),
    ],
)
def test_only_different_programs_make_a_verdict_on_the_optimizer(
    seeds: int, different: bool, subject: str, caveat: str, tmp_path: Path
) -> None:
    right = [[n < 8 + seed for n in range(12)] for seed in range(seeds)]
    folder = make_verdict(tmp_path, [n < 4 for n in range(12)], right, different=different)
    made = reread(folder)
    assert (made.subject, caveat in "\n".join(caveats(made))) == (subject, True)
    if seeds == 2:
        shutil.rmtree(folder / "cells" / "compiled-0")
        (folder / "cells" / "compiled-1").rename(folder / "cells" / "compiled-0")
        shutil.copytree(folder / "cells" / "compiled-0", folder / "cells" / "compiled-1")
        with pytest.raises(RunError, match="run of another compiled program"):
            reread(folder)


# -- as commands -----------------------------------------------------------------------------------

DATA = "--dataset jsonl --data-file questions.jsonl --adapter chat"


@pytest.fixture
def typed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(world.folder)
    return world


def ragbench(words: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_a_verdict_and_its_programs(typed: World) -> None:
    common = f"--program vanilla --k 1 {DATA} --limit 0 --out verdict"
    said = ragbench(f"verdict {common} --equal-cost --margin 0.05")
    assert "for this compiled program only" in said
    assert "one on the optimizer needs 3 different programs" in said
    assert "votes (" in said
    read = ragbench("verdict --read verdict")
    assert read.splitlines()[-1] == said.splitlines()[-1] == "verdict: verdict"
    assert "bootstrap light" in ragbench("list compiled verdict")


def test_a_compiled_program_of_another_architecture_is_refused_by_that_fact(typed: World) -> None:
    ragbench(f"compile --program vanilla --optimizer labeled {DATA} --out compiled")
    with pytest.raises(RunError, match="is a compiled vanilla, not ircot; leave --program out"):
        ragbench("eval --compiled compiled --program ircot")


def test_a_table_shows_the_questions_asked_for(typed: World) -> None:
    given = f"--program vanilla {DATA} --out run"
    ragbench(f"eval {given} --limit 12")
    asked = len(typed.lm.asked)
    shown = ragbench(f"eval {given} --limit 6")
    (row,) = (line for line in shown.splitlines() if line.startswith("| vanilla"))
    assert row.split("|")[2].strip() == "6"
    assert len(typed.lm.asked) == asked
    assert "| 12 |" in ragbench("show run")


@pytest.mark.parametrize(("unreadable", "warns", "code"), [(1, False, 0), (6, True, 3)])
def test_replies_that_cannot_be_read_are_no_success(
    unreadable: int, warns: bool, code: int, typed: World
) -> None:
    asked = load_dataset(typed.config().data_settings()).questions[:6]
    numbers = {int(e.question.rpartition(" ")[2].rstrip("?")) for e in asked[:unreadable]}

    def script(asked: Asked) -> Reply:
        return "no field here" if town(asked) in numbers else helped_by_demos(asked)

    typed.use(script)
    said = ragbench(f"eval --program direct {DATA} --adapter json --limit 6 --out run", code)
    assert ("no reply of the model could be read" in said) == warns
    assert f"parse_fallback {unreadable}" in said
