"""Misleading passages reach programs with an index of their own, or these refuse the retriever."""

from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.programs import PROGRAMS
from ragbench.programs.core import IndexProgram, RAGProgram
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever
from tests.fakes import plausible
from tests.programs.shelf import TEXTS, ask

OWN = [name for name, kind in PROGRAMS if issubclass(kind, IndexProgram)]


def misleading(rate: float = 1.0) -> Retriever:
    stones = {f"Stone {n}": f"Stone {n} lies on a beach. It is grey." for n in range(20)}
    passages = [Passage(t, t, text) for t, text in {**TEXTS, **stones}.items()]
    return make_retriever(f"distracting(rate={rate},kinds=subjective)", Corpus(passages))


def answered(program: RAGProgram) -> tuple[Any, str]:
    """The prediction, and what the last call was shown."""
    prediction, lm, _ = ask(program, plausible)
    return prediction, lm.asked[-1].prompt


def test_the_programs_with_an_index_of_their_own_are_known() -> None:
    assert {"linear_rag", "hippo_rag", "graph_rag", "light_rag", "raptor", "memo_rag"} < {*OWN}


@pytest.mark.parametrize("name", OWN)
def test_what_an_index_ranks_is_tampered_with(name: str) -> None:
    kind = PROGRAMS.get(name)
    prediction, shown = answered(kind(misleading()))
    made = [p for p in prediction.passages if p.pid.startswith("distractor-")]
    assert made
    assert made[0].text in shown
    plain, _ = answered(kind(misleading(rate=0)))
    assert not [p for p in plain.passages if p.pid.startswith("distractor-")]


def test_a_rag_refuses_what_does_not_reach_its_tools() -> None:
    with pytest.raises(ConfigError, match="does not reach; use another retriever"):
        PROGRAMS.get("a_rag")(misleading()).prepare()
