"""A module runs as its author runs it: in plain `dspy.Evaluate` and through `rb.evaluate`.

Both ask a server of their own that answers by one script. What was sent, how often, what came out
and the scores are equal, or the row says what is not, and why.
"""

import asyncio
import pickle
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import dspy
import numpy as np
import pytest
from dspy.adapters.baml_adapter import BAMLAdapter
from dspy.primitives.code_interpreter import FinalOutput

import ragbench as rb
from tests.fake_server import FakeServer

QUESTIONS = ("Which river is long?", "Which lake is deep?")


class Wrapped(dspy.Module):
    """A module whose forward is given."""

    def __init__(self, answer: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.answer = answer
        self.parts = parts
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        return self.answer(self, question)


def in_threads(module: Wrapped, question: str) -> Any:
    """Ask in a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(module.ask(question=question)))
    thread.start()
    thread.join()
    return found[0]


def in_parallel(module: Wrapped, question: str) -> Any:
    """Ask twice at once."""
    example = dspy.Example(question=question).with_inputs("question")
    parallel = dspy.Parallel(num_threads=2, disable_progress_bar=True)
    return parallel([(module.ask, example), (dspy.ChainOfThought("question -> answer"), example)])[
        0
    ]


def in_a_loop(module: Wrapped, question: str) -> Any:
    """Ask by asyncio."""
    return asyncio.run(module.ask.acall(question=question))


def with_context(module: Wrapped, question: str) -> Any:
    """Ask another LM, by dspy.context."""
    url = module.parts["url"]
    with dspy.context(lm=dspy.LM("openai/strong", api_base=url, api_key="none", cache=False)):
        return module.ask(question=question)


def with_history(module: Wrapped, question: str) -> Any:
    """Read what the last call took."""
    answer = module.ask(question=question).answer
    used = dspy.settings.lm.history[-1]["usage"]["completion_tokens"]
    return dspy.Prediction(answer=answer, used=bool(used))


def with_trace(module: Wrapped, question: str) -> Any:
    """Read the trace."""
    before = len(dspy.settings.trace)
    answer = module.ask(question=question).answer
    return dspy.Prediction(answer=answer, grew=len(dspy.settings.trace) > before)


def voted(module: Wrapped, question: str) -> Any:
    """Sample three answers and take the most common."""
    return dspy.majority(module.ask(question=question, config={"n": 3, "temperature": 0.5}))


def set_lm(url: str) -> dspy.Module:
    """A predictor with its own LM."""
    made = dspy.Predict("question -> answer")
    made.set_lm(dspy.LM("openai/strong", api_base=url, api_key="none", cache=False))
    return made


def reward(arguments: Any, prediction: Any) -> float:
    return 1.0


def predict() -> dspy.Module:
    return dspy.Predict("question -> answer")


def vectors(texts: list[str]) -> Any:
    """A vector of each text: how often it has each of three letters."""
    return np.array([[text.count(letter) + 1.0 for letter in "rlk"] for text in texts])


def nearest(url: str) -> dspy.Module:
    """Demonstrations chosen for each question by dspy.KNN."""
    known = [dspy.Example(question=f"Which {n} is it?", answer=n) for n in ("river", "lake")]
    trainset = [example.with_inputs("question") for example in known]
    return Wrapped(by_neighbours, knn=dspy.KNN(1, trainset, dspy.Embedder(vectors)))


def by_neighbours(module: Wrapped, question: str) -> Any:
    """Show the nearest example."""
    return module.ask(question=question, demos=module.parts["knn"](question=question))


def ensemble(url: str) -> dspy.Module:
    """Two programs of which the majority counts."""
    programs = [predict(), dspy.ChainOfThought("question -> answer")]
    return dspy.Ensemble(reduce_fn=dspy.majority).compile(programs)


class Sums:
    """An interpreter of one's own, which knows one result."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}
        self.output_fields: list[Any] | None = None

    def start(self) -> None:
        """Start nothing."""

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """The one result."""
        return FinalOutput({"answer": "some answer"})

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        return self.execute(code, variables)

    def shutdown(self) -> None:
        """End nothing."""


def reloaded(url: str) -> dspy.Module:
    """A module that was saved whole and loaded again."""
    with tempfile.TemporaryDirectory() as folder:
        dspy.ChainOfThought("question -> answer").save(folder, save_program=True)
        return dspy.load(folder, allow_pickle=True)


def pickled(url: str) -> dspy.Module:
    """A module that went through pickle."""
    made: dspy.Module = pickle.loads(cloudpickle.dumps(dspy.ChainOfThought("question -> answer")))
    return made


def usage_of(module: Wrapped, question: str) -> Any:
    """Read what the call took, by dspy.track_usage."""
    with dspy.track_usage() as usage:
        answer = module.ask(question=question).answer
    spent = [entry["completion_tokens"] for entry in usage.get_total_tokens().values()]
    return dspy.Prediction(answer=answer, spent=spent)


@dataclass(frozen=True)
class Idiom:
    """How a module is made for a server at an address, and what it asks for each question."""

    make: Callable[[str], dspy.Module]
    #: Calls for a question; None: as many as in plain DSPy.
    calls: int | None = 1
    #: The module names its LM, so that the one of the run is not asked.
    own_lm: bool = False
    outputs: tuple[str, ...] = ()
    #: Why plain DSPy does otherwise here.
    alone: str = ""
    #: Made for a server at an address, and of DSPy's settings.
    adapter: Callable[[str], dspy.Adapter] | None = None


IDIOMS = {
    "Predict": Idiom(lambda url: predict()),
    "ChainOfThought": Idiom(lambda url: dspy.ChainOfThought("question -> answer")),
    "BestOfN": Idiom(lambda url: dspy.BestOfN(predict(), N=2, reward_fn=reward, threshold=1.0)),
    "Refine": Idiom(lambda url: dspy.Refine(predict(), N=2, reward_fn=reward, threshold=1.0)),
    "threads": Idiom(
        lambda url: Wrapped(in_threads),
        alone="a new thread has the LM of dspy.configure alone, and here that of the run",
    ),
    "Parallel": Idiom(lambda url: Wrapped(in_parallel), calls=2),
    "asyncio": Idiom(lambda url: Wrapped(in_a_loop)),
    "dspy.context(lm=)": Idiom(lambda url: Wrapped(with_context, url=url), own_lm=True),
    "set_lm": Idiom(set_lm, own_lm=True),
    "history": Idiom(lambda url: Wrapped(with_history), outputs=("used",)),
    "trace": Idiom(lambda url: Wrapped(with_trace), outputs=("grew",)),
    "n=3": Idiom(lambda url: Wrapped(voted), calls=3),
    "RLM": Idiom(
        lambda url: dspy.RLM("question -> answer", max_iters=2, interpreter_factory=Sums),
        calls=None,
    ),
    "KNN": Idiom(nearest),
    "Ensemble": Idiom(ensemble, calls=2),
    "XMLAdapter": Idiom(lambda url: predict(), calls=None, adapter=lambda url: dspy.XMLAdapter()),
    "BAMLAdapter": Idiom(lambda url: predict(), adapter=lambda url: BAMLAdapter()),
    "TwoStepAdapter": Idiom(
        lambda url: predict(),
        calls=2,
        adapter=lambda url: dspy.TwoStepAdapter(
            dspy.LM("openai/m", api_base=url, api_key="none", cache=False)
        ),
    ),
    "dspy.load": Idiom(reloaded),
    "pickle": Idiom(pickled),
    "track_usage": Idiom(lambda url: Wrapped(usage_of), outputs=("spent",)),
}


def sent(server: FakeServer) -> list[tuple[str, Any]]:
    """Messages and model of every request, in an order that threads do not change."""
    return sorted((str(hit.body["messages"]), hit.body["model"]) for hit in server.hits)


def exact(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
    return float(prediction.answer == "some answer")


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def model(server: FakeServer) -> dspy.LM:
    return dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)


@pytest.mark.parametrize("name", IDIOMS)
def test_it_asks_and_answers_as_in_plain_dspy(name: str) -> None:
    idiom = IDIOMS[name]
    devset = [dspy.Example(question=q, answer="A").with_inputs("question") for q in QUESTIONS]
    with FakeServer() as plain:
        adapter = idiom.adapter and idiom.adapter(plain.url)
        with dspy.context(lm=model(plain), adapter=adapter):
            if not idiom.alone:
                evaluate = dspy.Evaluate(devset=devset, metric=exact, num_threads=1)
                result = evaluate(idiom.make(plain.url))
    with FakeServer() as own:
        adapter = idiom.adapter and idiom.adapter(own.url)
        with dspy.context(adapter=adapter):
            module = idiom.make(own.url)
            run = rb.evaluate(module, devset, lm=model(own), adapter="chat", cache=False)
    assert not run.failed
    if idiom.calls is not None:
        assert len(own.hits) == idiom.calls * len(QUESTIONS)
    if idiom.alone:
        assert [record.answer for record in run.records] == ["some answer"] * 2
        return
    assert sent(own) == sent(plain)
    told = dict(zip(QUESTIONS, result.results, strict=True))
    for record in run.records:
        _, prediction, score = told[record.question]
        assert record.answer == prediction.answer
        assert score == run.mean(exact)
        spent = record.ledger.as_if
        assert idiom.calls in (None, spent.calls)
        assert spent.calls > 0
        assert spent.tokens > 0
        for output in idiom.outputs:
            assert record.extra["outputs"][output] == prediction[output]
        models = {call.model for call in record.ledger.calls}
        assert (models == {"openai/strong"}) == idiom.own_lm


@pytest.mark.parametrize(
    ("output", "answer"),
    [("Po", "Po"), ({"answer": "Po", "why": "so"}, "Po"), (["Po", "Rhone"], "Po, Rhone"), (3, "3")],
)
def test_an_answer_may_be_returned_by_itself(output: Any, answer: str) -> None:
    class Returns(dspy.Module):
        """Return what is given."""

        def forward(self, question: str, place: str) -> Any:
            assert place == "Turin"
            return output

    devset = [dspy.Example(question="Which river?", answer="Po", place="Turin")]
    with FakeServer() as server:
        run = rb.evaluate(Returns(), devset, lm=model(server))
    assert [record.answer for record in run.records] == [answer]
    kept = {"why": "so"} if isinstance(output, dict) else None
    assert run.records[0].extra.get("outputs") == kept


def test_limits_hold_for_an_lm_that_a_module_brings() -> None:
    with FakeServer() as server:
        devset = [dspy.Example(question=f"Which {n}?", answer="A") for n in range(5)]
        lm = dspy.LM("openai/m", api_base=server.url, api_key="none")
        run = rb.evaluate(set_lm(server.url), devset, lm=lm, max_calls=2, workers=1)
        assert (len(server.hits), len(run.records)) == (2, 2)


def test_the_lm_of_dspys_settings_is_asked_and_usage_is_counted_once() -> None:
    with FakeServer() as server:
        lm = model(server)
        devset = [dspy.Example(question="Which?", answer="A")]
        with dspy.context(lm=lm), dspy.track_usage() as usage:
            run = rb.evaluate(predict(), devset, workers=1)
        assert len(server.hits) == 1
        assert len(lm.history) == 1
        counted = [row["completion_tokens"] for row in usage.get_total_tokens().values()]
        assert counted in ([], [run.records[0].ledger.as_if.completion_tokens])
