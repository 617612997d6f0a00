"""A compile from the config to the artefact, against a real server on loopback."""

import json
import re
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench import api
from ragbench.cli.printing import show
from ragbench.errors import ConfigError, DataError, RunError
from ragbench.experiments.artifacts import load_artefact, read_sidecar
from ragbench.experiments.cells.estimate import estimate_cells
from ragbench.experiments.cells.sweep import run_sweep
from ragbench.experiments.cells.sweep_file import load_sweep
from ragbench.experiments.cells.verdict import verdict_cells
from ragbench.experiments.compare.verdicts import VerdictRequest
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig, RunConfig, make_config
from ragbench.experiments.estimates import EstimatedUsage, estimate_compile, question_cost
from ragbench.experiments.plans import make_plan
from ragbench.experiments.report.sweep import programs_report
from ragbench.experiments.runs import context as setup
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.store import CALLS, CallJournal
from ragbench.lms.adapters import ADAPTERS, make_adapter
from ragbench.lms.calls import Limits, spending
from ragbench.optimizers import OPTIMIZERS
from tests.experiments.towns import World, town
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.fakes import Asked, plausible as plausible_call
from tests.kills import script, write_questions
from tests.runs import compile_calls, holds

N = 40  # 16 for training, 8 for validation


def learner(hit: Hit) -> str | Fault:
    """Right wherever a demonstration is shown; else as the questions of kills are answered."""
    numbers = re.findall(r"Which town number (\d+) lies", hit.prompt)
    if len(numbers) > 1:
        return plausible(hit).replace("some answer", f"Town {numbers[-1]}")
    return script(hit)


@pytest.fixture
def config(server: FakeServer, tmp_path: Path) -> RunConfig:
    server.script = learner
    return RunConfig(
        program="vanilla", dataset="jsonl", data_file=write_questions(tmp_path, N),
        lm="openai/fake", api_base=server.url, adapter="chat", k=1, workers=2,
    )  # fmt: skip


def how(folder: Path, **fields: Any) -> CompileConfig:
    return CompileConfig(**{"out": folder / "out", **fields})


def make(config: RunConfig, folder: Path, **fields: Any) -> tuple[Path, list[str]]:
    """The folder of what was compiled, and what was said meanwhile."""
    said: list[str] = []
    return compile_program(config, how(folder, **fields), on_message=said.append), said


def test_leaves_an_artefact_that_loads_is_listed_and_is_not_made_again(
    config: RunConfig, server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, said = make(config.but(split="test"), tmp_path)
    plan = make_plan(config, how(tmp_path)).run_context
    sidecar = load_artefact(folder, plan.program)
    assert len(plan.program.predictors()[0].demos) == 4
    assert sidecar.scores["n"] == len(sidecar.data.validation.ids) == 8
    assert len(sidecar.data.train.ids) == 16
    as_if = sidecar.cost["as_if"]
    assert as_if["compiled"]["prompt_tokens"] > 1.3 * as_if["zero_shot"]["prompt_tokens"]
    assert any("zero-shot on validation" in line for line in said)
    assert sum("(95 % interval [" in line for line in said) == 2
    assert "corrected" not in sidecar.scores  # one candidate is no choice
    held_out = plan.dataset.splits["test"]  # never asked, whatever split is given
    prompts = "\n".join(hit.prompt for hit in server.hits)
    assert [e.qid for e in held_out if e.question in prompts] == []
    assert not {e.qid for e in held_out} & {*sidecar.data.train.ids, *sidecar.data.validation.ids}
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "compile.json").write_text("{}")
    show(programs_report(tmp_path))
    shown = capsys.readouterr().out
    for words in ("bootstrap light", "vanilla", "| 1.000 [", "unfinished compile", "| better"):
        assert words in shown, words

    before = len(server.hits)
    assert make(config, tmp_path) == (folder, [f"{folder} is compiled already"])
    for change, words in (
        ({"optimizer_seed": 1}, "seed=0, not 1"),
        ({"optimizer": "labeled"}, "name='bootstrap', not 'labeled'"),
        ({"train_limit": 5}, "data.train="),
        ({"optimizer_metric": "em"}, "metric='f1', not 'em'"),
    ):
        with pytest.raises(RunError, match=f"{words}.*give another --out"):
            make(config, tmp_path, **change)
    assert len(server.hits) == before


def test_the_estimate_holds_what_is_spent(
    config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    made = make_plan(config, how(tmp_path, optimizer="random_search"))
    found = estimate_compile(made)
    assert not server.hits, "an estimate asked the LM"
    folder, said = make(config, tmp_path, optimizer="random_search")
    low, high = re.findall(r"program runs: (\d+) to (\d+)", "".join(found.notes))[0]
    place = said.index("measured on 3 validation questions:")
    assert place < next(i for i, line in enumerate(said) if line.startswith("zero-shot on"))
    # Vanilla makes one call for each run.
    assert f"  calls   {int(low):,} to {int(high):,}" in said[place + 2]
    cost = read_sidecar(folder).cost
    took = cost["as_if"]["all"]
    tokens = took["prompt_tokens"] + took["completion_tokens"]
    assert holds(found, calls=took["calls"], tokens=tokens, cost=None)
    assert int(low) <= took["calls"] <= int(high)  # a run is a call
    assert cost["billed"]["all"]["calls"] == len(server.hits)
    assert cost["billed"]["all"]["cost_usd"] is None, "an unknown price was shown as a number"


@pytest.mark.parametrize("optimizer", ["bootstrap", "mipro", "gepa", "copro"])
def test_estimate_after_three_validation_questions_scales_program_runs(
    optimizer: str, config: RunConfig, tmp_path: Path
) -> None:
    plan = make_plan(config.but(program="ircot", k=2), how(tmp_path, optimizer=optimizer))
    budget = plan.optimizer.estimate(plan.size)
    runs = [n + 2 * len(plan.val) for n in (budget.runs.low, budget.runs.high)]
    before = estimate_compile(plan)
    assert before.low.calls == runs[0]  # a call for each run
    cost = replace(question_cost(plan.run_context), measured=[EstimatedUsage(3, 900, 0.1, 2.0)] * 3)
    found = estimate_compile(plan, cost)
    assert (found.low.calls, found.high.calls) == (3 * runs[0], 3 * runs[1])
    assert (found.low.tokens, found.high.tokens) == (900 * runs[0], 900 * runs[1])
    assert found.high.calls < before.high.calls


def test_a_teacher_and_a_prompt_model_are_counted_apart(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = setup.make_lm
    monkeypatch.setattr(
        setup,
        "make_lm",
        lambda spec, settings, **seeds: real(spec, settings.but(api_base=config.api_base), **seeds),
    )
    fields = {"teacher": "openai/teacher", "prompt_lm": "openai/writer", "optimizer": "mipro"}
    folder, _ = make(config, tmp_path, **fields, opt_set={"candidates": 4, "trials": 2})
    rows = [line.split(" ", 2)[1:] for line in compile_calls(folder)]
    sides = {(side, json.loads(call)["model"].split("/")[1].split("@")[0]) for side, call in rows}
    student = {("zero_shot", "fake"), ("student", "fake"), ("compiled", "fake")}
    assert sides == {*student, ("teacher", "teacher"), ("prompt", "writer")}
    as_if = read_sidecar(folder).cost["as_if"]
    assert as_if.keys() - {"all"} == {side for side, _ in sides}
    assert sum(as_if[side]["calls"] for side, _ in sides) == as_if["all"]["calls"]
    assert as_if["zero_shot"]["calls"] == as_if["compiled"]["calls"] == 8


def test_after_an_outage_the_same_command_finishes(
    config: RunConfig, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"optimizer": "random_search", "opt_set": {"candidates": 2}}
    quiet, _ = make(config, tmp_path / "quiet", **fields)
    dspy.cache.reset_memory_cache()
    dspy.configure_cache(enable_disk_cache=False)
    before = len(server.hits)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "fresh"))
    server.script = lambda hit: Fault("401") if hit.number > before + 20 else learner(hit)
    with pytest.raises(RunError, match="repeat the same command"):
        make(config, tmp_path, **fields)
    assert len(server.hits) <= before + 22
    journal = CallJournal(tmp_path / "out" / "work" / CALLS)
    end = time.monotonic() + 20  # The other worker's call may still be under way.
    while journal.billed().calls < len(server.hits) - before and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(RunError, match="unfinished compile"):  # the sidecar comes last
        read_sidecar(tmp_path / "out")
    server.script = learner
    again, _ = make(config, tmp_path, **fields)
    assert (again / "program.json").read_text() == (quiet / "program.json").read_text()
    sidecar = read_sidecar(again)
    best = sidecar.scores["corrected"]
    assert best["candidates"] >= 2
    assert best["corrected"] <= best["seen"]
    assert sidecar.cost["attempts"] == 2
    assert sidecar.cost["billed"]["all"]["calls"] == len(server.hits) - before


def test_what_was_tried_is_kept_and_can_be_evaluated(
    config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    folder, said = make(config, tmp_path, optimizer="random_search", opt_set={"candidates": 2})
    rows = [json.loads(line) for line in (folder / "candidates.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert sum(row["shipped"] for row in rows) == 1
    assert all(len(row["scores"]) == 8 and row["n"] == 8 for row in rows)
    assert [row["calls"] for row in rows] == [None] + [8] * (len(rows) - 1)
    assert sorted(row["order"] for row in rows[1:]) == sorted({row["order"] for row in rows[1:]})
    assert rows[1]["mean"] == max(row["mean"] for row in rows) > rows[0]["mean"]
    card = read_sidecar(folder)
    assert (card.outcome, card.leak, card.left_out) == ("better", 0, [])
    assert any(line.startswith("outcome: better on validation") for line in said)
    for number, sees_demos in ((0, False), (1, True)):
        fields = {"compiled": f"{folder}@{number}", "split": "test", "limit": 2}
        again = make_config({**config.model_dump(), **fields, "out": tmp_path / f"run{number}"})
        before = len(server.hits)
        evaluate(again)
        shown = [hit.prompt.count("Which town number") > 1 for hit in server.hits[before:]]
        assert shown == [sees_demos] * 2
    for split in ("train", "validation"):
        with pytest.raises(DataError, match="used to compile"):
            evaluate(config.but(compiled=folder, split=split, out=tmp_path / split))
    with pytest.raises(RunError, match="has no candidate 99"):
        evaluate(make_config({**config.model_dump(), "compiled": f"{folder}@99", "limit": 2}))


@pytest.mark.parametrize(("right", "word"), [(True, "no room"), (False, "kept")])
def test_at_a_tie_the_plain_program_is_kept(
    right: bool, word: str, config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    def same(hit: Hit) -> str | Fault:
        towns = re.findall(r"Which town number (\d+) lies", hit.prompt)
        known = right or (towns and int(towns[-1]) % 2)
        return plausible(hit).replace("some answer", f"Town {towns[-1]}" if known else "elsewhere")

    server.script = same
    folder, said = make(config, tmp_path, opt_set={"bootstrapped": 1})
    card = read_sidecar(folder)
    assert card.outcome == word
    assert json.loads((folder / "program.json").read_text())["answer"]["demos"] == []
    assert card.scores["difference"] == 0
    assert any(line.startswith("outcome: ") for line in said)


def test_a_compile_of_unknown_cost_states_that_and_asks_for_a_limit(
    config: RunConfig, tmp_path: Path
) -> None:
    code = """
        from dspy.teleprompt import Teleprompter
        class Endless(Teleprompter):
            def compile(self, student, *, trainset, **kwargs):
                if student(**trainset[0].inputs()).answer != "nobody":
                    raise ValueError("not so")
                return student
    """
    file = tmp_path / "endless.py"
    file.write_text(textwrap.dedent(code))
    unknown = "Endless: what it will spend is unknown, give --max-calls N"
    compile_settings = how(tmp_path, optimizer=f"{file}:Endless")
    lines = list(estimate_cells(verdict_cells(config, compile_settings, VerdictRequest())))
    assert sum(line.endswith(unknown) for line in lines) == 1
    assert lines.count("  calls   at least 16; the most is unknown") == 1  # 8 before, 8 after
    in_all = lines[lines.index("in all, 4 cells, and 1 compiles") :]
    assert any(re.match(r"  calls   at least [0-9]+; the most is unknown", line) for line in in_all)
    with pytest.raises(ConfigError, match="ValueError: not so"):
        make(config, tmp_path, optimizer=f"{file}:Endless")


def test_an_optimizer_is_handed_over_as_an_object_or_registered_as_a_class(
    config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    given = {
        "data_file": str(config.data_file), "lm": "openai/fake", "api_base": server.url, "k": 1,
        "adapter": "chat", "max_calls": 500,
    }  # fmt: skip
    handed = dspy.BootstrapFewShot(max_bootstrapped_demos=2, max_labeled_demos=0)
    folder = api.compile(
        "vanilla", "jsonl", optimizer=handed, settings={"out": tmp_path / "handed"}, **given
    )
    card = read_sidecar(folder)
    state = json.loads((folder / "program.json").read_text())
    assert len(state["answer"]["demos"]) == 2
    assert all(demo["answer"].startswith("Town") for demo in state["answer"]["demos"]), "no metric"
    assert card.optimizer["name"].startswith("dspy.teleprompt.bootstrap:BootstrapFewShot#")
    assert handed.metric is None, "the object that was handed over changed"
    OPTIMIZERS.register("mine", listed=False)(dspy.LabeledFewShot)  # as an entry point would
    with spending(Limits(calls=500)):
        folder, _ = make(config, tmp_path, optimizer="mine", opt_set={"k": 3})
    assert read_sidecar(folder).optimizer["knobs"]["k"] == 3
    with pytest.raises(ConfigError, match="neither a name nor a"):
        api.compile("vanilla", "jsonl", optimizer=3, **given)


#: What an adapter's prompt says -> how the answer is written in its format.
FORMATS = {
    "SHOUT": "{}",
    "<answer>": "<answer>\n{}\n</answer>",
    "[[ ## completed": "[[ ## answer ## ]]\n{}\n\n[[ ## completed ## ]]",
    "JSON": '{{"answer": "{}"}}',
}
SHOUTING = """
import dspy

class Shouting(dspy.ChatAdapter):
    def format(self, signature, demos, inputs):
        messages = super().format(signature, demos, inputs)
        messages[-1]["content"] = messages[-1]["content"].partition("Respond with")[0] + "SHOUT"
        return messages
    def parse(self, signature, completion):
        return {"answer": completion}
"""


def in_its_format(asked: Asked) -> str:
    """Right for a quarter, and for all where a demonstration is shown."""
    numbers = re.findall(r"Which town number (\d+) lies", asked.prompt)
    answer = "elsewhere"
    if not numbers:  # the second of two steps
        answer = re.findall(r"Town \d+|elsewhere", asked.prompt)[-1]
    elif int(numbers[-1]) % 4 == 0 or len(numbers) > 1:
        answer = f"Town {numbers[-1]}"
    for mark, written in FORMATS.items():
        if mark in asked.prompt:
            return written.format(answer)
    return answer  # the first of two steps


def test_every_adapter_is_an_axis_of_a_sweep_of_compiles(world: World) -> None:
    world.use(in_its_format, schema=False)
    file = world.folder / "mine.py"
    file.write_text(SHOUTING)
    names = [*ADAPTERS, f"{file}:Shouting"]
    fields = {
        "program": "vanilla", "dataset": "jsonl", "data_file": str(world.data), "k": 1,
        "lm": "scripted", "optimizer": "bootstrap", "limit": 4, "matrix": {"adapter": names},
    }  # fmt: skip
    path = world.folder / "sweep.yaml"
    path.write_text(json.dumps(fields))
    swept = run_sweep(load_sweep(str(path), out=world.folder / "swept"))
    assert swept.exit_code == 0
    cards = [read_sidecar(path.parent) for path in sorted(world.folder.rglob("*/sidecar.json"))]
    shipped = [card for card in cards if card.candidate is None]
    kinds = {card.lms["adapter"] for card in shipped}
    assert kinds == {type(make_adapter(name, world.lm)).__name__ for name in names}
    for card in shipped:
        scores = card.scores
        assert (card.outcome, scores["compiled"]["failed"]) == ("better", 0)
        assert (scores["zero_shot"]["mean"], scores["compiled"]["mean"]) == (0.125, 1.0)


@pytest.mark.parametrize(("of", "leak"), [("train", 1), ("val", 0)])
def test_an_instruction_that_holds_a_training_answer_is_counted(
    of: str, leak: int, world: World
) -> None:
    config = world.config()
    settings = CompileConfig(optimizer="gepa", opt_set={"runs": 60}, out=world.folder / "out")
    plan = make_plan(config, settings)
    [known] = {"train": plan.train, "val": plan.val}[of][0].answers

    def script(asked: Asked) -> Any:
        reply = plausible_call(asked)
        if "answer" not in reply:
            return {name: f"Think first. It may be {known}." for name in reply}
        number = town(asked)
        right = "Think first" in asked.prompt or number % 4 == 0
        return {"answer": f"Town {number}" if right else "elsewhere"}

    world.use(script)
    said: list[str] = []
    card = read_sidecar(compile_program(config, settings, on_message=said.append))
    assert (card.outcome, card.leak) == ("better", leak)
    assert any(line.startswith("leak: 1 instructions hold") for line in said) is bool(leak)
