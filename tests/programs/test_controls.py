"""The controls of a verdict: the form arm changes form alone, votes are counted and their own."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.plans import make_plan
from ragbench.experiments.runs.loading import LoadedProgram
from ragbench.ledger import open_ledger
from ragbench.metrics.text import normalise_answer
from ragbench.programs import PROGRAMS, wrappers
from ragbench.programs.external import keep_module
from ragbench.programs.wrappers import (
    FormRepaired,
    Voting,
    WrapperProgram,
    bare_answer,
    repair_form,
)
from tests.fakes import Asked, Reply, ScriptedLM
from tests.optimizers.world import EXAMPLES, program
from tests.programs.shelf import shelf
from tests.programs.test_contract import ALL

QUESTION = EXAMPLES[2].question


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        ("Yes, both are American.", "Yes, both are American"),
        ('"Paris."', "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("The answer is Paris.", "Paris"),
        ("Answer:\nParis", "Paris"),
        ("Harry S.", "Harry S."),
        ("", ""),
    ],
)
def test_bare_answer(given: str, bare: str) -> None:
    assert bare_answer(given, "What is the capital?") == bare
    assert bare_answer("Yes, both are American.", "Are both American?") == "Yes"


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_the_form_arm_changes_nothing_but_instructions_of_answering_predictors(
    name: str, variant: str
) -> None:
    plain, form = (PROGRAMS.get(name)(shelf(), variant=variant) for _ in range(2))
    repair_form(form)
    changed = 0
    for (at, a), (_, b) in zip(plain.named_predictors(), form.named_predictors(), strict=True):
        assert str(b.signature.fields) == str(a.signature.fields), at
        assert b.demos == a.demos == []
        added = "\n\n" + wrappers.FORM_INSTRUCTION if "answer" in a.signature.output_fields else ""
        assert b.signature.instructions == a.signature.instructions + added
        changed += bool(added)
    assert changed


def test_the_form_arm_bares_its_answers() -> None:
    lm = ScriptedLM(lambda asked: {"answer": "The answer is Ann 2."})
    with dspy.context(lm=lm):
        assert repair_form(program("vanilla"))(question=QUESTION).answer == "Ann 2"


def _voters(*answers: str) -> ScriptedLM:
    """Says the first at the run's temperature, and the others, in turn, when sampling."""
    rest, lock = iter(answers[1:]), threading.Lock()

    def script(asked: Asked) -> Reply:
        if asked.request.config.temperature != wrappers.TEMPERATURE:
            return {"answer": answers[0]}
        with lock:
            return {"answer": next(rest)}

    return ScriptedLM(script, seed=7)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (("Ann", "Bea", "bea."), "bea"),
        (("Ann", "Bea", "Cleo"), "ann"),
        (("noanswer", "noanswer", "Bea"), "bea"),
    ],
)
def test_the_most_common_answer_wins_and_the_plain_one_a_tie(
    answers: tuple[str, ...], winner: str
) -> None:
    lm = _voters(*answers)
    with dspy.context(lm=lm), open_ledger() as ledger:
        prediction = Voting(program("vanilla"), 3)(question=QUESTION)
    assert normalise_answer(prediction.answer) == winner
    assert ledger.as_if.calls == 3
    assert ledger.path.calls == 1
    assert prediction.steps[-1].action == "vote"
    assert len(prediction.searches) == 3
    assert len({p.pid for p in prediction.passages}) == len(prediction.passages) == 5


def test_votes_have_seeds_and_cache_entries_of_their_own() -> None:
    said = {"answer": "Ann"}
    lm = ScriptedLM(lambda asked: said, cache=True, name="votes", seed=7)
    for _ in range(2):
        with dspy.context(lm=lm):
            Voting(program("vanilla"), 4)(question=QUESTION)
    assert len(lm.asked) == 4
    sampled = [asked.request.config for asked in lm.asked if asked.request.config.temperature]
    assert len({str(config.seed if hasattr(config, "seed") else config) for config in sampled}) == 3


def test_a_control_cannot_be_compiled(tmp_path: Path) -> None:
    for over in ({"form": True}, {"votes": 3}):
        with pytest.raises(ConfigError, match="unchanged program"):
            make_plan(RunConfig(program="vanilla", **over), CompileConfig(out=tmp_path))


class Opaque(dspy.Module):
    """A user's module: what it shows the LM is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.answer(question=question).answer, passages=["A text."])


WRAPPERS: dict[type[WrapperProgram], Callable[[Any], dspy.Module]] = {
    FormRepaired: repair_form,
    Voting: lambda inner: Voting(inner, 3),
    LoadedProgram: LoadedProgram,
}


@pytest.mark.parametrize("kind", WrapperProgram.__subclasses__(), ids=lambda kind: kind.__name__)
def test_a_wrapper_if_the_shown_passages_are_unknown_leaves_them_unknown(
    kind: type[WrapperProgram],
) -> None:
    inner = PROGRAMS.get(keep_module(Opaque()))(shelf())
    with dspy.context(lm=ScriptedLM(lambda asked: {"answer": "Ann 2"})):
        prediction = WRAPPERS[kind](inner)(question=QUESTION)
    assert prediction.answer == "Ann 2"
    assert prediction.in_context is None
    assert [passage.text for passage in prediction.passages] == ["A text."]
