"""Modules as people write them in DSPy, one class an idiom; none knows of ragbench.

Each is made without arguments, so that it can be named on a command line as well. Those that bring
an LM of their own ask the server at the address in the variable IDIOM_SERVER.
"""

import asyncio
import os
import tempfile
import threading
import warnings
from contextvars import copy_context
from typing import Any

import dspy
import numpy as np
from dspy.primitives.code_interpreter import FinalOutput

QA = "question -> answer"


def strong() -> dspy.LM:
    """An LM of a module's own."""
    return dspy.LM("openai/strong", api_base=os.environ["IDIOM_SERVER"], api_key="k", cache=False)


def reward(arguments: Any, prediction: Any) -> float:
    """Nothing is good enough."""
    return 0.5


def lookup(name: str) -> str:
    """Look a name up."""
    return f"{name} is long"


class Asking(dspy.Module):
    """Ask once."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict(QA)

    def forward(self, question: str) -> Any:
        return self.ask(question=question)


class Inner(dspy.Module):
    """Ask what `make` gives."""

    def make(self) -> dspy.Module:
        return dspy.Predict(QA)

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.make()

    def forward(self, question: str) -> Any:
        return self.inner(question=question)


class ChainOfThought(Inner):
    def make(self) -> dspy.Module:
        return dspy.ChainOfThought(QA)


class BestOfN(Inner):
    def make(self) -> dspy.Module:
        return dspy.BestOfN(dspy.Predict(QA), N=2, reward_fn=reward, threshold=1.0)


class ReAct(Inner):
    def make(self) -> dspy.Module:
        return dspy.ReAct(QA, tools=[lookup], max_iters=3)


class ReActV2(Inner):
    def make(self) -> dspy.Module:
        return dspy.ReActV2(QA, tools=[lookup], max_iters=3)


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


class RLM(Inner):
    def make(self) -> dspy.Module:
        return dspy.RLM(QA, max_iters=2, interpreter_factory=Sums)


class Ensemble(Inner):
    def make(self) -> dspy.Module:
        programs = [dspy.Predict(QA), dspy.ChainOfThought(QA)]
        return dspy.Ensemble(reduce_fn=dspy.majority).compile(programs)


class Loaded(Inner):
    """A module that was saved whole and loaded again."""

    def make(self) -> dspy.Module:
        with tempfile.TemporaryDirectory() as folder:
            dspy.ChainOfThought(QA).save(folder, save_program=True)
            return dspy.load(folder, allow_pickle=True)


class MultiChainComparison(dspy.Module):
    """Compare two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.sample = dspy.ChainOfThought(QA)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            self.compare = dspy.MultiChainComparison(QA, M=2)

    def forward(self, question: str) -> Any:
        samples = self.sample(question=question, config={"n": 2, "temperature": 0.7})
        return self.compare(samples.completions, question=question)


class Parallel(Asking):
    """Ask twice at once."""

    def forward(self, question: str) -> Any:
        example = dspy.Example(question=question).with_inputs("question")
        parallel = dspy.Parallel(num_threads=2, disable_progress_bar=True)
        return parallel([(self.ask, example), (dspy.ChainOfThought(QA), example)])[0]


class Thread(Asking):
    """Ask in a thread of its own, which takes the context with it."""

    def forward(self, question: str) -> Any:
        answers: list[Any] = []

        def ask() -> None:
            answers.append(self.ask(question=question))

        thread = threading.Thread(target=copy_context().run, args=(ask,))
        thread.start()
        thread.join()
        return answers[0]


class Loop(Asking):
    """Ask by asyncio, two at once."""

    async def both(self, question: str) -> Any:
        asked = [self.ask.acall(question=text) for text in (question, f"Again: {question}")]
        return (await asyncio.gather(*asked))[0]

    def forward(self, question: str) -> Any:
        return asyncio.run(self.both(question))


class Asynchronous(Asking):
    """Ask in `aforward`, which `dspy.syncify` calls."""

    async def aforward(self, question: str) -> Any:
        return await self.ask.acall(question=question)


class Synced(Inner):
    def make(self) -> dspy.Module:
        return dspy.syncify(Asynchronous())


class Stream(Asking):
    """Listen to the answer as it is written."""

    def forward(self, question: str) -> Any:
        listener = dspy.streaming.StreamListener(signature_field_name="answer")
        stream = dspy.streamify(self.ask, stream_listeners=[listener], async_streaming=False)
        heard = ""
        for value in stream(question=question):
            if isinstance(value, dspy.streaming.StreamResponse):
                heard += value.chunk
            elif isinstance(value, dspy.Prediction):
                answer = value.answer
        return dspy.Prediction(answer=answer, heard=heard)


class WithContext(Asking):
    """Ask another LM, by dspy.context."""

    def forward(self, question: str) -> Any:
        with dspy.context(lm=strong()):
            return self.ask(question=question)


class SetLM(Asking):
    """A predictor with an LM of its own, and one without."""

    def __init__(self) -> None:
        super().__init__()
        self.ask.set_lm(strong())
        self.check = dspy.Predict("question, answer -> verdict")

    def forward(self, question: str) -> Any:
        answer = self.ask(question=question).answer
        self.check(question=question, answer=answer)
        return dspy.Prediction(answer=answer)


class Direct(dspy.Module):
    """Call the LM itself, and a warmer copy of it."""

    def forward(self, question: str) -> Any:
        first = dspy.settings.lm(f"Say `some answer`. {question}")[0]
        if isinstance(first, dict):  # with more than its text
            first = first["text"]
        dspy.settings.lm.copy(temperature=0.9)(f"Once more. {question}")
        return dspy.Prediction(answer=first, model=dspy.settings.lm.model)


class History(Asking):
    """Read what the last call took."""

    def forward(self, question: str) -> Any:
        answer = self.ask(question=question).answer
        entry = dspy.settings.lm.history[-1]
        return dspy.Prediction(answer=answer, model=entry["model"], usage=entry["usage"])


class Conversation(dspy.Module):
    """Ask with what was said before."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question, history: dspy.History -> answer")

    def forward(self, question: str) -> Any:
        said = {"question": "Which sea is salty?", "answer": "the Dead Sea"}
        return self.ask(question=question, history=dspy.History(messages=[said]))


class Trace(Asking):
    """Read the trace."""

    def forward(self, question: str) -> Any:
        before = len(dspy.settings.trace)
        answer = self.ask(question=question).answer
        return dspy.Prediction(answer=answer, grew=len(dspy.settings.trace) > before)


class Usage(Asking):
    """Read what the call took, by dspy.track_usage."""

    def forward(self, question: str) -> Any:
        with dspy.track_usage() as usage:
            answer = self.ask(question=question).answer
        return dspy.Prediction(answer=answer, spent=usage.get_total_tokens())


def vectors(texts: list[str]) -> Any:
    """A vector of each text: how often it has each of three letters."""
    return np.array([[text.count(letter) + 1.0 for letter in "rlk"] for text in texts])


class KNN(Asking):
    """Show the nearest example."""

    def __init__(self) -> None:
        super().__init__()
        known = [dspy.Example(question=f"Which {n} is it?", answer=n) for n in ("river", "lake")]
        trainset = [example.with_inputs("question") for example in known]
        self.nearest = dspy.KNN(1, trainset, dspy.Embedder(vectors, caching=False))

    def forward(self, question: str) -> Any:
        return self.ask(question=question, demos=self.nearest(question=question))


class Reading(dspy.Module):
    """Search, and answer from what is found."""

    def __init__(self) -> None:
        super().__init__()
        self.search = self.made()
        self.read = dspy.Predict("context, question -> answer")

    def made(self) -> Any:
        return dspy.Retrieve(k=2)

    def forward(self, question: str) -> Any:
        found = self.search(question).passages
        answer = self.read(context=found, question=question).answer
        return dspy.Prediction(answer=answer, seen=found)


class Found(dict):  # type: ignore[type-arg]
    """A passage as ColBERT's client gives it."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Shelf:
    """A retriever as `dspy.configure(rm=)` takes it."""

    def __call__(self, query: str, k: int = 3, **options: Any) -> list[Found]:
        texts = [f"{word} {query}" for word in ("First:", "Second:", "Third:")]
        return [Found(long_text=text, score=1.0) for text in texts[:k]]


class Several(dspy.Module):
    """Several inputs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question, place, year: int -> answer")

    def forward(self, question: str, place: str, year: int = 1900) -> Any:
        return self.ask(question=question, place=place, year=year)


class XML(Asking):
    """Ask by an adapter of one's choice."""

    def adapter(self) -> dspy.Adapter:
        return dspy.XMLAdapter()

    def forward(self, question: str) -> Any:
        with dspy.context(adapter=self.adapter()):
            return self.ask(question=question)


class TwoStep(XML):
    def adapter(self) -> dspy.Adapter:
        return dspy.TwoStepAdapter(strong())


class Loud(dspy.ChatAdapter):
    """An adapter of one's own."""

    def format_task_description(self, signature: Any) -> str:
        return super().format_task_description(signature).upper()


class OwnAdapter(XML):
    def adapter(self) -> dspy.Adapter:
        return Loud()


class Garbled(Asking):
    """A reply that no adapter can read fails the question."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> unreadable: int, answer")


class Raising(Asking):
    """The module itself fails."""

    def forward(self, question: str) -> Any:
        self.ask(question=question)
        raise LookupError(question)


class Fields(Asking):
    """A dict with more than the answer."""

    def forward(self, question: str) -> Any:
        return {"answer": self.ask(question=question).answer, "why": ["so", {"n": 1}]}
