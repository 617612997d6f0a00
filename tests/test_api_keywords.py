"""Every keyword of the Python API is called once."""

import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

import dspy

import ragbench as rb
from ragbench.passages import Passage
from tests.fake_server import FakeServer

ROWS = [dspy.Example(question=f"Which river {n}?", answer="Po") for n in range(6)]
CORPUS = ["Turin lies on the Po.", "Lyon lies on the Rhone."]
#: Classes and values, which are no functions to call here.
NOT_CALLED = {"Run", "Limits", "Passage"}


def length(example: dspy.Example, prediction: Any, trace: Any = None) -> float:
    """The share of ten characters that an answer takes."""
    return min(len(str(prediction.answer)), 10) / 10


class Asks(dspy.Module):
    """A module in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.answer(question=question)


def test_every_keyword_of_every_function_works_once(server: FakeServer, tmp_path: Path) -> None:
    used: dict[str, set[str]] = defaultdict(set)

    def call(name: str, /, *args: Any, **keywords: Any) -> Any:
        function = getattr(rb, name)
        used[name] |= inspect.signature(function).bind(*args, **keywords).arguments.keys()
        return function(*args, **keywords)

    lm = call("make_lm", spec=f"openai/m@{server.url}", temperature=0.5)
    dataset = call("load_dataset", name="synthetic", size=100)
    passages = [Passage("p1", "Po", CORPUS[0])]
    retriever = call("make_retriever", name="bm25", passages=passages, k1=1.0)
    call("make_retriever", "bm25", data=dataset)
    with dspy.context(lm=lm):
        program = call("make_program", name="vanilla", retriever=retriever, k=1)
        answer = program(question="Which river?")
    assert call("metric", name=length)(ROWS[0], answer) == 1.0

    common: dict[str, Any] = {"lm": lm, "corpus": CORPUS}
    plain = call(
        "evaluate", program="vanilla", data=ROWS, retriever="bm25", metric=[length], fresh=True,
        name="one", **common, workers=2,
    )  # fmt: skip
    assert plain.scores["length"] == 1.0
    direct = call("evaluate", "direct", devset=ROWS, **common)

    split = {"trainset": ROWS[:3], "valset": ROWS[3:]}
    settings = {"max_cost": None, "max_calls": 1_000}
    for metric in (length, "em", "f1"):
        given = {"optimizer": "labeled", "settings": {"train_limit": 2}, "fresh": True}
        folder = call(
            "compile", program=Asks(), metric=metric, retriever="bm25", name="two",
            **given, **split, **common, **settings,
        )  # fmt: skip
    compiled = call("compile", "vanilla", data="synthetic", lm=lm, optimizer="labeled", size=100)

    taken = call(
        "load_program", folder=folder, retriever=retriever, program=Asks, set={}, compiled=None,
        form=True, votes=1,
    )  # fmt: skip
    with dspy.context(lm=lm):
        assert taken(question="Which river?").answer
    assert call("open_run", folder=plain.folder).mean(length) == 1.0
    call("compare", a=plain, b=direct, metrics=["f1", length], margin=0.1, common=True)
    call("recommend", plain, direct, metric="f1", common=True, min_gain=0.1)
    call("table", plain, direct)
    values = {
        "program": "vanilla", "data": "synthetic", "optimizer": "labeled", "seeds": 1, "lm": lm,
        "retriever": "bm25", "corpus": None, "equal_cost": False, "metrics": ["f1", length],
        "settings": {"train_limit": 2, "val_limit": 2}, "margin": 0.1, "max_questions": None,
        "repeats": 1, "limits": rb.Limits(calls=500), "on_message": lambda line: None,
    }  # fmt: skip
    names = inspect.signature(rb.verdict).parameters.keys() - {"options"}
    assert names <= values.keys()
    call("verdict", **{name: values[name] for name in names}, size=100, limit=2)

    assert compiled.is_dir()
    for name in set(rb.__all__) - NOT_CALLED:
        parameters = inspect.signature(getattr(rb, name)).parameters.values()
        missing = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} - used[name]
        assert not missing, (name, missing)
