"""A compile from the config to the artefact, against a real server on loopback."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError, DataError, RunError, UnknownNameError
from ragbench.experiments.artifacts import load_artefact, read_sidecar
from ragbench.experiments.compile import (
    compile_program,
    compiler as compiling,
    estimate_compile,
    make_plan,
)
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.runs import context as setup, evaluate
from ragbench.experiments.store import CallJournal
from ragbench.ledger import file_call
from ragbench.optimizers.students import LIMIT
from ragbench.record import Call
from tests.fake_server import FakeServer, Fault
from tests.kills import script, write_questions
from tests.optimizers.world import counted_runs
from tests.runs import compile_calls, holds

N = 40  # 16 for training, 8 for validation


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(script) as running:
        yield running


@pytest.fixture
def config(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    return RunConfig(
        program="vanilla",
        dataset="jsonl",
        data_file=write_questions(tmp_path, N),
        lm="openai/fake",
        api_base=server.url,
        adapter="chat",
        k=1,
        workers=2,
    )


def how(folder: Path, **fields: Any) -> CompileConfig:
    return CompileConfig(**{"out": folder / "out", **fields})


def test_leaves_an_artefact_that_loads(config: RunConfig, tmp_path: Path) -> None:
    said: list[str] = []
    folder = compile_program(config, how(tmp_path), on_message=said.append)
    fresh = make_plan(config, how(tmp_path)).run_context.program
    sidecar = load_artefact(folder, fresh)
    assert len(fresh.predictors()[0].demos) == 4
    assert sidecar.scores["n"] == len(sidecar.data.validation.ids) == 8
    assert len(sidecar.data.train.ids) == 16
    assert sidecar.inflation["ratio"] > 1.3
    assert sidecar.optimizer["seed"] == 0
    assert any("zero-shot on validation" in line for line in said)
    for arm in ("zero_shot", "compiled"):
        found = sidecar.scores[arm]
        assert found["interval"]["low"] < found["interval"]["high"]
    assert sum("(95 % interval [" in line for line in said) == 2
    assert "corrected" not in sidecar.scores  # one candidate is no choice
    assert not any("nothing was learned" in line for line in said)


def test_a_compile_that_learns_nothing_says_so(
    server: FakeServer, config: RunConfig, tmp_path: Path
) -> None:
    server.script = lambda hit: "no right answer"
    said: list[str] = []
    settings = how(tmp_path, opt_set={"labeled": 0})
    compile_program(config, settings, on_message=said.append)
    assert any(line.startswith("note: nothing was learned") for line in said)


def test_the_estimate_holds_what_is_spent(
    config: RunConfig, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_plan(config, how(tmp_path, optimizer="random_search"))
    with counted_runs(type(made.run_context.program)) as runs:
        found = estimate_compile(made)
        assert not server.hits, "an estimate asked the LM"
        runs.clear()
        monkeypatch.setattr(compiling, "estimate_compile", lambda plan: found)  # it rehearses
        said: list[str] = []
        compile_program(config, how(tmp_path, optimizer="random_search"), on_message=said.append)
    told = [
        line for line in said if re.fullmatch(r"  \d+ of .* program runs, at most .* left", line)
    ]
    assert len(told) >= 3
    low, high = re.findall(r"program runs: (\d+) to (\d+)", "".join(found.notes))[0]
    assert int(low) <= runs["all"] <= int(high)
    cost = read_sidecar(tmp_path / "out").cost
    took = cost["as_if"]["all"]
    tokens = took["prompt_tokens"] + took["completion_tokens"]
    assert holds(found, calls=took["calls"], tokens=tokens, cost=None)
    assert cost["as_if"]["all"]["calls"] == runs["all"]
    assert cost["billed"]["all"]["calls"] == len(server.hits)
    assert cost["billed"]["all"]["cost_usd"] is None, "an unknown price was shown as a number"


def test_a_teacher_and_a_prompt_model_are_counted_apart(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = setup.make_lm
    monkeypatch.setattr(
        setup, "make_lm", lambda spec, **kw: real(spec, **{**kw, "api_base": config.lm.api_base})
    )
    fields = {"teacher": "openai/teacher", "prompt_lm": "openai/writer", "optimizer": "mipro"}
    small = {"candidates": 4, "trials": 2}
    compile_program(config, how(tmp_path, **fields, opt_set=small), on_message=lambda line: None)
    rows = [line.split(" ", 2)[1:] for line in compile_calls(tmp_path / "out")]
    sides = {(side, json.loads(call)["model"].split("/")[1].split("@")[0]) for side, call in rows}
    assert sides == {
        ("zero_shot", "fake"),
        ("student", "fake"),
        ("compiled", "fake"),
        ("teacher", "teacher"),
        ("prompt", "writer"),
    }
    as_if = read_sidecar(tmp_path / "out").cost["as_if"]
    assert as_if.keys() - {"all"} == {side for side, _ in sides}
    assert sum(as_if[side]["calls"] for side, _ in sides) == as_if["all"]["calls"]
    assert as_if["zero_shot"]["calls"] == as_if["compiled"]["calls"] == 8


def test_the_test_split_cannot_be_given(
    config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    assert "split" not in CompileConfig.model_fields
    folder = compile_program(config.but(split="test"), how(tmp_path), on_message=lambda line: None)
    made = make_plan(config, how(tmp_path))
    test_ids = {example.qid for example in made.run_context.dataset.splits["test"]}
    data = read_sidecar(folder).data
    assert test_ids
    assert not test_ids & {*data.train.ids, *data.validation.ids}
    prompts = "\n".join(hit.prompt for hit in server.hits)
    asked = [e.qid for e in made.run_context.dataset.splits["test"] if e.question in prompts]
    assert asked == []


def test_given_again_it_is_done_and_another_in_its_folder_is_refused(
    config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    compile_program(config, how(tmp_path), on_message=lambda line: None)
    before, said = len(server.hits), []
    assert compile_program(config, how(tmp_path), on_message=said.append) == tmp_path / "out"
    assert said == [f"{tmp_path / 'out'} is compiled already"]
    for change, words in (
        ({"optimizer_seed": 1}, "seed=0, not 1"),
        ({"optimizer": "labeled"}, "name='bootstrap', not 'labeled'"),
        ({"train_limit": 5}, "another data"),
        ({"metric": "em"}, "metric='f1', not 'em'"),
    ):
        with pytest.raises(RunError, match=f"{words}.*give another --out"):
            compile_program(config, how(tmp_path, **change), on_message=lambda line: None)
    assert len(server.hits) == before


def test_after_an_outage_the_same_command_finishes(
    config: RunConfig, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"optimizer": "random_search", "opt_set": {"candidates": 2}}
    quiet = compile_program(config, how(tmp_path / "quiet", **fields), on_message=lambda line: None)
    dspy.cache.reset_memory_cache()
    dspy.configure_cache(enable_disk_cache=False)
    before = len(server.hits)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "fresh"))
    server.script = lambda hit: Fault("401") if hit.number > before + 20 else script(hit)
    with pytest.raises(RunError, match="give the same command"):
        compile_program(config, how(tmp_path, **fields), on_message=lambda line: None)
    assert len(server.hits) <= before + 20 + LIMIT + 2
    server.script = script
    again = compile_program(config, how(tmp_path, **fields), on_message=lambda line: None)
    assert (again / "program.json").read_text() == (quiet / "program.json").read_text()
    best = read_sidecar(again).scores["corrected"]
    assert best["candidates"] == len(read_sidecar(again).notes["candidates"]) >= 2
    assert best["corrected"] <= best["seen"]
    cost = read_sidecar(again).cost
    assert cost["attempts"] == 2
    assert cost["billed"]["all"]["calls"] == len(server.hits) - before


def test_compiling_a_compiled_program_is_refused(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave --compiled out"):
        make_plan(config.but(compiled=tmp_path), how(tmp_path))
    with pytest.raises(UnknownNameError, match="bootstrap"):
        make_plan(config, how(tmp_path, optimizer="bootstrp"))


def test_nothing_half_written_is_called_finished(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar comes last and in one step, so it marks a whole artefact."""

    def broken(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "write_sidecar", broken)
    with pytest.raises(KeyboardInterrupt):
        compile_program(config, how(tmp_path), on_message=lambda line: None)
    with pytest.raises(RunError, match="unfinished compile"):
        read_sidecar(tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    folder = compile_program(config, how(tmp_path), on_message=lambda line: None)
    assert read_sidecar(folder).cost["attempts"] == 2


@pytest.mark.parametrize("optimizer", ["bootstrap", "knn"])
def test_eval_runs_it_on_held_out_questions_alone(
    optimizer: str, config: RunConfig, server: FakeServer, tmp_path: Path
) -> None:
    small = {"k": 2} if optimizer == "knn" else {}
    folder = compile_program(
        config, how(tmp_path, optimizer=optimizer, opt_set=small), on_message=lambda line: None
    )
    held_out = config.but(compiled=folder, split="test", limit=5, out=tmp_path / "run")
    before = len(server.hits)
    assert len(evaluate(held_out).records) == 5
    shown = [hit.prompt.count("Which town number") for hit in server.hits[before:]]
    assert len(shown) == 5
    assert min(shown) > 1, "no demonstration was shown"
    for split in ("train", "validation"):
        seen = held_out.but(split=split, out=tmp_path / split)
        with pytest.raises(DataError, match="used to compile"):
            evaluate(seen)


# -- journal ---------------------------------------------------------------------------------------


def test_the_journal_adds_up_over_attempts(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    with CallJournal(path).open():
        file_call(Call(model="m", prompt_tokens=5))
        file_call(Call(model="m", prompt_tokens=7))
    second = CallJournal(path)
    assert second.attempt == 2
    with second.open():
        file_call(Call(model="m", prompt_tokens=5, cached=True))
        file_call(Call(model="m", prompt_tokens=7, cached=True))
        file_call(Call(model="m", prompt_tokens=11))
    assert second.as_if().prompt_tokens == second.billed().prompt_tokens == 23
    assert second.billed("prompt").calls == 3
    third = CallJournal(path)
    assert third.attempt == 3
    assert third.billed().prompt_tokens == 23
    with third.open():
        pass
    assert CallJournal(path).attempt == 4  # one without a call counts


# -- rehearsal -------------------------------------------------------------------------------------
