"""A small corpus of made-up people and places, and a script that is given reply by reply."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from ragbench.passages import Corpus, Passage
from ragbench.programs.core import RAGProgram
from ragbench.record import Ledger
from ragbench.retrievers.base import Retriever
from ragbench.retrievers.factory import make_retriever
from tests.fake_server import Calls, FakeServer
from tests.fakes import Asked, Reply, Script, ScriptedLM

TEXTS = {
    "Orla Venn": "Orla Venn wrote the novel Salt Road. She was born in Harwick.",
    "Salt Road": "Salt Road is a novel by Orla Venn and Tam Quill about a caravan.",
    "Tam Quill": "Tam Quill is a writer. He was born in Eastmere.",
    "Harwick": "Harwick is a town in the county of Dunmoor. It has 900 inhabitants.",
    "Eastmere": "Eastmere is a town in the county of Tollen. It has 4,000 inhabitants.",
}


#: Questions of two and of three hops over the shelf.
TOWN = "Where was the author of Salt Road born?"
COUNTY = "In which county was the author of Salt Road born?"


def shelf(*, padding: int = 0, words: int = 0) -> Retriever:
    """BM25 over `TEXTS`, each `words` longer, and `padding` more; pids are titles."""
    texts = {**TEXTS, **{f"Stone {n}": f"Stone {n} lies on a beach." for n in range(padding)}}
    more = " and so on" * (words // 3)
    return make_retriever("bm25", Corpus([Passage(t, t, text + more) for t, text in texts.items()]))


class Conversation:
    """A script that plays the given replies of each signature in order; any further call fails."""

    def __init__(self, **replies: Sequence[Mapping[str, Any] | str]) -> None:
        self._lock = threading.Lock()
        self._left = defaultdict(deque, {name: deque(given) for name, given in replies.items()})

    def __call__(self, asked: Asked) -> Reply:
        with self._lock:
            if not self._left[asked.signature]:
                raise AssertionError(f"call {asked.number}: no reply left for {asked.signature}")
            return self._left[asked.signature].popleft()

    @property
    def left(self) -> dict[str, int]:
        """Replies not asked for."""
        return {name: len(given) for name, given in self._left.items() if given}


def converse(
    program: dspy.Module, question: str, **replies: Sequence[Mapping[str, Any] | str]
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """What `program` answers in a conversation of exactly these replies."""
    script = Conversation(**replies)
    prediction, lm, ledger = ask(program, script, question)
    assert script.left == {}, "replies that were not asked for"
    assert sum(call.kind == "lm" for call in ledger.calls) == len(lm.asked)
    return prediction, lm, ledger


def rules(**given: Any) -> Script:
    """A script of a reply per signature, or of a function that makes one of a call."""

    def script(asked: Asked) -> Reply:
        rule = given[asked.signature]
        reply: Reply = rule(asked) if callable(rule) else rule
        return reply

    return script


def ask(
    program: dspy.Module, script: Script, question: str = "Where was Orla Venn born?"
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """What `program` answers when `script` gives every reply."""
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
        return program(question=question), lm, ledger


def native(
    program: RAGProgram, replies: Sequence[str | Calls], spec: str = "openai/gpt-4o-mini", *,
    question: str = TOWN,
) -> tuple[dspy.Prediction, list[dict[str, Any]]]:  # fmt: skip
    """The prediction over these replies of a server, and the requests that it saw."""
    left = list(replies)
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    with FakeServer(lambda hit: left.pop(0)) as server, patch.dict(os.environ, keys):
        lm = make_lm(spec, api_base=server.url, cache=False)
        with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
            prediction = program(question=question)
        lm.close()
        assert left == []
        return prediction, [hit.body for hit in server.hits]


def ended(prediction: dspy.Prediction) -> tuple[str, str]:
    return prediction.answer, prediction.stop_reason


def queries(prediction: dspy.Prediction) -> list[str]:
    return [search.query for search in prediction.searches]


def step(prediction: dspy.Prediction, action: str) -> Any:
    """The first step of this kind."""
    return next(one for one in prediction.steps if one.action == action)


def shown(lm: ScriptedLM, signature: str, number: int = -1) -> dict[str, str]:
    """The inputs of a call of `signature`, by default the last."""
    return [asked.inputs for asked in lm.asked if asked.signature == signature][number]


def check(
    made: Callable[..., RAGProgram],
    replies: Mapping[str, Sequence[Mapping[str, Any] | str]],
    *,
    question: str = TOWN,
    answer: str = "Harwick",
    stop: str = "answered",
    searched: Sequence[str] | None = None,
    counts: Mapping[str, int] | None = None,
    calls: int | None = None,
    path: int | None = None,
    sees: Sequence[str] = (),
    hides: Sequence[str] = (),
    **knobs: Any,
) -> tuple[dspy.Prediction, ScriptedLM]:
    """A conversation of exactly these replies, and what came of it.

    `searched` are the queries, `counts` events among those counted, `path` the calls one after
    another; the last call `sees` these texts among its inputs, and not those that it `hides`.
    """
    prediction, lm, ledger = converse(made(shelf(), **knobs), question, **replies)
    assert ended(prediction) == (answer, stop)
    assert searched is None or queries(prediction) == list(searched)
    assert counts is None or {name: prediction.counts[name] for name in counts} == counts
    assert calls in (None, len(lm.asked))
    assert path in (None, ledger.path.calls)
    inputs = "\n".join(lm.asked[-1].inputs.values())
    assert [text for text in sees if text not in inputs] == []
    assert [text for text in hides if text in inputs] == []
    return prediction, lm
