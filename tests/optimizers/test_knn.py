"""Each question is shown its neighbours' demonstrations, also after saving and loading."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import RunError
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import measure
from ragbench.optimizers.knn import BANK, KNN, use_bank
from tests.fakes import Asked
from tests.optimizers.world import TRAIN, VAL, even_towns, program, scripted, task, town

BANK_OF_THREE: dict[str, Any] = {
    "k": 2,
    "entries": [
        {"question": q, "demos": {"answer": [{"question": q, "answer": a}]}}
        for q, a in [
            ("Who is the mayor of Paris?", "Anne"),
            ("Who is the mayor of Rome?", "Roberto"),
            ("Which river crosses Berlin?", "Spree"),
        ]
    ],
}


def prompt_of(loaded: dspy.Module, question: str) -> str:
    lm = scripted(lambda asked: {"answer": "x"})
    with dspy.context(lm=lm):
        loaded(question=question)
    [asked] = lm.asked
    return asked.prompt


def test_the_nearest_are_shown_and_stand_next_to_the_question() -> None:
    made = program()
    use_bank(made, BANK_OF_THREE)
    shown = prompt_of(made, "Who was the mayor of Rome?")
    assert "Spree" not in shown
    assert shown.index("Anne") < shown.index("Roberto") < shown.index("Who was the mayor")
    assert "Spree" in prompt_of(made, "Which river crosses Prague?")
    assert [predictor.demos for predictor in made.predictors()] == [[]]
    copied = made.deepcopy()
    copied.answer.signature = copied.answer.signature.with_instructions("Be brief.")
    prompt = prompt_of(copied, "Xyzzy?")  # a copy asks itself
    assert "Anne" in prompt
    assert "Be brief." in prompt


def test_the_bank_holds_right_answers_alone_and_survives_json(tmp_path: Path) -> None:
    lm = scripted()
    found = OPTIMIZERS.get("knn")().compile(program("self_rag"), task(tmp_path, lm))
    bank = found.files[BANK]
    even = {e.question for i, e in enumerate(TRAIN) if i % 2 == 0}
    assert {entry["question"] for entry in bank["entries"]} == even
    (tmp_path / BANK).write_text(json.dumps(bank))
    loaded = program("self_rag")
    KNN.attach(loaded, tmp_path)
    before = len(lm.asked)
    first = measure(found.program, VAL, task(tmp_path, lm))
    middle = len(lm.asked)
    again = measure(loaded, VAL, task(tmp_path, lm))
    assert first == again
    assert sorted(a.prompt for a in lm.asked[before:middle]) == sorted(
        a.prompt for a in lm.asked[middle:]
    )


@pytest.mark.parametrize("text", [None, "{", '{"k": 2, "entries": [3]}'])
def test_a_broken_bank_is_one_line(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / BANK).write_text(text)
    with pytest.raises(RunError, match="compile again") as caught:
        KNN.attach(program(), tmp_path)
    assert "\n" not in str(caught.value)


def test_the_question_asked_is_never_its_own_demonstration_in_the_bank(tmp_path: Path) -> None:
    def script(asked: Asked) -> dict[str, Any]:
        assert asked.prompt.count(f"Town {town(asked)}?") == 1
        return even_towns(asked)

    lm = scripted(script)
    found = OPTIMIZERS.get("knn")().compile(program(), task(tmp_path, lm))
    before = len(lm.asked)
    assert measure(found.program, VAL, task(tmp_path, lm)).failed == 0
    assert len(lm.asked) - before == len(VAL)  # DSPy's bootstraps at every question
