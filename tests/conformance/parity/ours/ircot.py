"""IRCoT's rules as `ircot variant=paper` has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.programs.core import Trace, first_sentence
from ragbench.programs.core.trace import Budget
from ragbench.programs.ircot import Chain, IRCoT, ending, first_words, is_inference
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever
from tests.conformance.parity.ours import Parts, World


def parts(world: World) -> Parts:
    """The rules over `world["passages"]`, title and text of each."""
    passages = {
        pid: Passage(pid, pid.partition("#")[0], text) for pid, text in world["passages"].items()
    }
    retriever = make_retriever("bm25", Corpus(list(passages.values())))
    program = IRCoT(retriever, variant="paper")
    return {
        "first_sentence": first_sentence,
        "reasoning": is_inference,
        "query": lambda given: _query(program, given),
        "paragraphs": lambda batches: _kept(program, retriever, passages, batches),
        "shown": lambda pid: first_words(passages[pid], 350).text,
        "answer": _answer,
    }


def _query(program: IRCoT, given: Mapping[str, Any]) -> str:
    trace = Trace(given["question"], program.retriever, Budget(9, 9))
    chain = Chain(trace, program.knobs)
    chain.thoughts = list(given["thoughts"])
    chain.search(chain.query() if chain.thoughts else given["question"])
    return trace.searches[0].query


def _kept(
    program: IRCoT,
    retriever: Retriever,
    passages: Mapping[str, Passage],
    batches: Sequence[Sequence[str]],
) -> list[list[str]]:
    chain, rows = Chain(Trace("q", retriever, Budget(99, 99)), program.knobs), []
    for batch in batches:
        chain.add([passages[pid] for pid in batch])
        rows.append([p.pid for p in chain.kept()])
    return rows


def _answer(text: str) -> str | None:
    """The answer of a sentence beside which no typed step could be read."""
    done, answer = ending(dspy.Prediction(next_step="", answer=""), text)
    return answer if done else None
