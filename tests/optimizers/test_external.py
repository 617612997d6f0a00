"""Optimizers of strangers, with odd manners: each ends right, or in one line."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs.runner import evaluate
from ragbench.lms.calls import CallRefusedError, Limits, spending
from ragbench.optimizers.task import SearchResult
from ragbench.signatures import AnswerFromContext
from ragbench.user_code import allow
from tests.experiments.towns import World
from tests.fakes import Asked
from tests.optimizers.world import compiled, even_towns, scripted

CODE = """
import copy
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
import dspy

CAREFUL = "Answer the question. Be careful."

def told(program):
    for predictor in program.predictors():
        predictor.signature = predictor.signature.with_instructions(CAREFUL)
    return program

class Metered:
    def __init__(self, metric):
        self.metric = metric

class DeepCopies(Metered):
    def compile(self, student, *, trainset, **kwargs):
        return copy.copy(told(copy.deepcopy(student)))

class InPlace(Metered):
    def compile(self, student, *, trainset, valset):
        told(student)

class Named:
    def compile(self, *, student, trainset):
        return told(student.deepcopy())

class Otherwise:
    def compile(self, module, trainset, devset, eval_kwargs):
        assert len(devset) == 6 and eval_kwargs["num_threads"]
        return told(module.deepcopy())

class ThreadsForever:
    def compile(self, student, *, trainset):
        def ask(example):
            for number in range(1000):
                told(student)
                student(**example.inputs())
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(copy_context().run, ask, each) for each in trainset]
            [future.result() for future in futures]

class Wraps:
    def compile(self, student, *, trainset):
        outer = dspy.Module()
        outer.inner = student
        return outer

class Reasons:
    def compile(self, student, *, trainset):
        best = student.deepcopy()
        for predictor in best.predictors():
            predictor.signature = predictor.signature.prepend("reasoning", dspy.OutputField(), str)
        return best

class Exits:
    def compile(self, student, *, trainset):
        raise SystemExit(3)

class Nothing:
    pass

class Raises:
    def compile(self, student, *, trainset):
        student(**trainset[0].inputs())
        raise KeyError("in the middle" + chr(10) + "of it")

class Needs:
    def __init__(self, metric, vectorizer):
        self.vectorizer = vectorizer
    def compile(self, student, *, trainset):
        return student

class Forever:
    def compile(self, student, *, trainset):
        while True:
            for example in trainset:
                try:
                    student(**example.inputs())
                except Exception:
                    pass
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "odd.py"
    file.write_text(CODE)
    names = [line.split()[1].split("(")[0].strip(":") for line in CODE.splitlines() if
             line.startswith("class ")]  # fmt: skip
    allow(*(f"{file}:{name}" for name in names))
    return f"{file}:"


def when_told(asked: Asked) -> dict[str, Any]:
    """Right for even towns, and for all where it is told to be careful."""
    reply = even_towns(asked)
    if "Be careful" in asked.prompt:
        number = asked.inputs["question"].split("?")[0].rpartition(" ")[2]
        reply["answer"] = f"Ann {number}"
    return reply


def by(spec: str, folder: Path, script: Any = when_told) -> SearchResult:
    return compiled(spec, folder, scripted(script), knobs={})


@pytest.mark.parametrize(
    "name", ["DeepCopies", "InPlace", "Named", "Otherwise"]
)
def test_optimizer_of_a_user_if_unusual_returns_a_clean_program(
    name: str, spec: str, tmp_path: Path
) -> None:
    found = by(f"{spec}{name}", tmp_path)
    assert found.program.predictors()[0].signature.instructions.endswith("Be careful.")
    assert type(found.program).__name__ == "VanillaRAG"
    assert found.program.predictors()[0].lm is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Nothing", r"no method compile\(student"),
        ("Exits", "SystemExit"),
        ("Wraps", "returned Module, not a program of the class"),
        ("Reasons", "the fields of answer to context, question, reasoning, answer; .*must stay"),
        ("Raises", "failed: KeyError: 'in the middle"),
        ("Needs", "needs --opt-set vectorizer=VALUE"),
    ],
)
def test_optimizer_of_a_user_if_its_program_cannot_be_saved_has_a_one_line_error(
    name: str, words: str, spec: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        by(f"{spec}{name}", tmp_path)
    assert "\n" not in str(caught.value)


def test_threads_of_its_own_are_under_the_limits(spec: str, tmp_path: Path) -> None:
    def script(asked: Asked) -> Any:
        if asked.number > 10:
            return CallRefusedError("the limit of calls")
        return when_told(asked)

    with pytest.raises(RunError, match="limit of calls"):
        by(f"{spec}ThreadsForever", tmp_path, script)


@pytest.mark.parametrize(("limited", "runs"), [(True, 520), (False, 200)])
def test_optimizer_if_it_never_ends_stops_after_a_number_of_runs(
    limited: bool, runs: int, spec: str, world: World
) -> None:
    few: dict[str, Any] = {} if limited else {"train_limit": 2, "val_limit": 2}
    settings = CompileConfig(optimizer=f"{spec}Forever", out=world.folder / "out", **few)
    stopped = pytest.raises(RunError, match=f"does not end: it ran the program {runs} times")
    with spending(Limits(calls=26)) if limited else nullcontext(), stopped:
        compile_program(world.config(), settings, on_message=lambda line: None)
    if limited:
        assert len(world.lm.asked) == 8 + 16  # each question once
    assert not (world.folder / "out" / "sidecar.json").exists()


@pytest.mark.parametrize("name", ["COPRO", "MIPROv2", "SIMBA", "InferRules", "LabeledFewShot"])
def test_dspy_optimizers_run_as_optimizers_of_a_user(name: str, tmp_path: Path) -> None:
    allow(f"dspy:{name}")
    settings: dict[str, dict[str, Any]] = {
        "COPRO": {"breadth": 2, "depth": 1}, "SIMBA": {"bsize": 4, "num_candidates": 2,
        "max_steps": 1}, "InferRules": {"num_candidates": 1},
        "MIPROv2": {"auto": "none", "num_candidates": 3, "num_trials": 2, "minibatch": False},
    }  # fmt: skip
    before = AnswerFromContext.instructions
    found = compiled(f"dspy:{name}", tmp_path, knobs=settings.get(name, {}))
    assert len(found.program.predictors()) == 1
    assert AnswerFromContext.instructions == before  # which InferRules writes into


DECIDES = """
import dspy

class Known(dspy.Signature):
    question: str = dspy.InputField()
    is_known: bool = dspy.OutputField(desc="whether it is known")

class Decides(dspy.Module):
    def __init__(self):
        super().__init__()
        self.judge = dspy.Predict(Known)

    def forward(self, question):
        number = question.split("number ")[1].split(" ")[0]
        is_known = self.judge(question=question).is_known
        return dspy.Prediction(answer=f"Town {number}" if is_known else "nowhere")
"""


def test_thresholds_that_dspys_reanchor_fits_are_kept_and_load(world: World) -> None:
    """The LM is never sure, and always right: what it calls likely at 0.4 is so."""

    def unsure(asked: Asked) -> dict[str, Any]:
        if "NoulEvidence" in asked.prompt:
            return {"is_known": {"noul": 0.4}}
        return {"is_known": False}

    world.use(unsure)
    file = world.folder / "decides.py"
    file.write_text(DECIDES)
    allow("dspy.experimental:ReAnchor", f"{file}:Decides")
    settings = CompileConfig(optimizer="dspy.experimental:ReAnchor", out=world.folder / "out")
    config = world.config(program=f"{file}:Decides", k=None)
    with spending(Limits(calls=200)):
        compile_program(config, settings, on_message=lambda line: None)
    card = read_sidecar(world.folder / "out")
    assert (card.outcome, card.scores["difference"]) == ("better", 1.0)
    run = evaluate(config.but(compiled=world.folder / "out", split="test", limit=3))
    assert run.summary.scores["em"] == 1.0
