"""What holds for every program with an index of its own."""

from dataclasses import replace
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.programs.core import IndexProgram
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever
from tests.fakes import ScriptedLM, plausible
from tests.programs.shelf import TEXTS, ask, shelf

OWN = [name for name, kind in PROGRAMS if issubclass(kind, IndexProgram)]
#: Those whose index of this shelf asks an LM.
READ = [name for name in OWN if name not in ("tree_rag", "raptor")]


def test_the_programs_with_an_index_of_their_own_are_known() -> None:
    assert {"linear_rag", "hippo_rag", "graph_rag", "light_rag", "raptor", "memo_rag"} < {*OWN}


@pytest.mark.parametrize("name", READ)
def test_the_lm_of_the_role_makes_the_index_which_is_no_part_of_a_questions_cost(name: str) -> None:
    usual, own = ScriptedLM(name="usual"), ScriptedLM(name="own")
    program: Any = PROGRAMS.get(name)(shelf())
    adapter = make_adapter("json", usual)
    roles = {program.other_calls()[0].role: own}
    with use(replace(current(), role_lms=roles), lm=usual, adapter=adapter):
        with open_ledger() as preparation:
            program.prepare()
        made = len(own.asked)
        assert usual.asked == []
        assert program.index_of(program.retriever).lm == own.model
        with open_ledger() as ledger:
            prediction = program(question="Where was Orla Venn born?")
    assert preparation.as_if.calls == program.index_facts()["index_calls"] == made > 0
    index_signatures = {call.signature for call in program.other_calls()}
    assert {*own.signatures[:made]} <= index_signatures
    assert ledger.as_if.calls == len(usual.asked) + len(own.asked) - made
    assert prediction.steps[0].notes["index_calls"] == made


@pytest.mark.parametrize("name", READ)
def test_each_question_of_its_own_passages_has_an_index_and_a_passage_is_read_once(
    name: str,
) -> None:
    contexts = {"Who is Orla Venn?": (0, 1), "Where is Harwick?": (1, 3), "Later?": (4,)}
    corpus = Corpus(shelf().corpus.passages, contexts=contexts)
    program: Any = PROGRAMS.get(name)(make_retriever("bm25", corpus, setting="distractor"))
    lm, ahead = ScriptedLM(), tuple(contexts)[:2]
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        with use(replace(current(), ahead=ahead)):
            program.prepare()
        prompts = [asked.prompt for asked in lm.asked]
        assert not any("Eastmere |" in prompt for prompt in prompts)
        read = [prompt for prompt in prompts if "Salt Road | " in prompt]
        assert len(read) == len(set(read))
        prediction = program(question=ahead[1])
    assert {p.pid for p in prediction.passages} & {*TEXTS} <= {"Salt Road", "Harwick"}


def misleading(rate: float = 1.0) -> Retriever:
    stones = {f"Stone {n}": f"Stone {n} lies on a beach. It is grey." for n in range(20)}
    passages = [Passage(t, t, text) for t, text in {**TEXTS, **stones}.items()]
    return make_retriever(f"distracting(rate={rate},kinds=subjective)", Corpus(passages))


@pytest.mark.parametrize("name", OWN)
def test_misleading_passages_reach_what_an_index_ranks(name: str) -> None:
    kind = PROGRAMS.get(name)
    prediction, lm, _ = ask(kind(misleading()), plausible)
    made = [p for p in prediction.passages if p.pid.startswith("distractor-")]
    assert made
    assert made[0].text in lm.asked[-1].prompt
    plain, _, _ = ask(kind(misleading(rate=0)), plausible)
    assert not [p for p in plain.passages if p.pid.startswith("distractor-")]


def test_a_rag_refuses_what_does_not_reach_its_tools() -> None:
    with pytest.raises(ConfigError, match="does not reach; use another retriever"):
        PROGRAMS.get("a_rag")(misleading()).prepare()
