"""A small corpus of made-up people and places, and a script that is given reply by reply."""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.record import Ledger
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from tests.fakes import Asked, Reply, Script, ScriptedLM

TEXTS = {
    "Orla Venn": "Orla Venn wrote the novel Salt Road. She was born in Harwick.",
    "Salt Road": "Salt Road is a novel by Orla Venn and Tam Quill about a caravan.",
    "Tam Quill": "Tam Quill is a writer. He was born in Eastmere.",
    "Harwick": "Harwick is a town in the county of Dunmoor. It has 900 inhabitants.",
    "Eastmere": "Eastmere is a town in the county of Tollen. It has 4,000 inhabitants.",
}


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
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
        prediction = program(question=question)
    assert script.left == {}, "replies that were not asked for"
    assert sum(call.kind == "lm" for call in ledger.calls) == len(lm.asked)
    return prediction, lm, ledger


def ask(
    program: dspy.Module, script: Script, question: str = "Where was Orla Venn born?"
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """What `program` answers when `script` gives every reply."""
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
        return program(question=question), lm, ledger
