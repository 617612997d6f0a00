"""The indexes of graph programs as retrievers of any other program."""

from dataclasses import replace
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.programs.core.indexed import index_facts, prepare_all
from ragbench.programs.core.program import calls_of
from ragbench.programs.ircot import IRCoT
from ragbench.programs.vanilla import VanillaRAG
from ragbench.programs.wrappers import FormRepaired
from ragbench.retrievers import Corpus, make_retriever
from tests.fakes import ScriptedLM, plausible
from tests.programs.shelf import TOWN, ask, queries, shelf

#: Each with the program whose index it is, and what a search asks the LM.
KINDS = {
    "hippo": ("hippo_rag", ["SelectFacts"]),
    "linear": ("linear_rag", ["ExtractEntities"]),
    "light": ("light_rag", ["ExtractKeywords"]),
    "tree": ("tree_rag", []),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_search_finds_what_the_program_of_the_index_finds(name: str) -> None:
    of, asked = KINDS[name]
    program = PROGRAMS.get(of)(shelf(), k=3)
    own, _, _ = ask(program, plausible, TOWN)
    other = VanillaRAG(make_retriever(name, shelf().corpus), k=3)
    found, _, ledger = ask(other, plausible, TOWN)
    assert found.searches[0].hits == own.searches[0].hits
    assert queries(found) == [TOWN]
    # What the search asked is the question's; what the index took is not.
    answering = [call.signature for call in ledger.calls if call.kind == "lm"]
    assert answering == [*asked, "AnswerFromContext"]
    assert {*asked} <= {row.signature for row in calls_of(other)}
    assert not any(row.predictor == "retriever.answer" for row in calls_of(other))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("setting", ["pooled", "distractor"])
def test_the_index_is_made_ahead_by_the_lm_of_its_role(name: str, setting: Any) -> None:
    contexts = {TOWN: (0, 1, 3), "Who is Tam Quill?": (1, 2)}
    corpus = Corpus(shelf().corpus.passages, contexts=contexts)
    program = IRCoT(make_retriever(name, corpus, setting=setting), k=2)
    usual, own = ScriptedLM(name="usual"), ScriptedLM(name="own")
    roles: dict[str, Any] = {"extract": own}
    with use(replace(current(), role_lms=roles), lm=usual, adapter=make_adapter("json", usual)):
        with open_ledger() as preparation:
            prepare_all(FormRepaired(program), [*contexts])
        made = len(own.asked)
        assert usual.asked == []
        assert preparation.as_if.calls == made
        facts = index_facts(FormRepaired(program))
        assert facts["index_calls"] >= made
        if name != "tree":  # which has nothing to sum up here
            assert made > 0
        prediction = program(question=TOWN)
    later = [asked.signature for asked in own.asked[made:]]
    assert {*later} <= {"ExtractEntities"}, "it is made once"
    if setting == "distractor":
        found = {passage.pid for passage in prediction.passages}
        assert found <= {"Orla Venn", "Salt Road", "Harwick"}


def test_a_search_keeps_to_the_calls_of_the_question_and_its_steps_are_kept() -> None:
    hippo = make_retriever("hippo(linking_top_k=2)", shelf().corpus)
    prediction, lm, _ = ask(IRCoT(hippo, max_calls=4, k=2), plausible, TOWN)
    answering = [signature for signature in lm.signatures if not signature.startswith("Extract")]
    assert len(answering) <= 4
    [linked] = [step for step in prediction.steps if step.action == "link"][:1]
    assert linked.input == TOWN
    assert len(linked.notes["facts"]) <= 2


def test_inside_other_retrievers_and_without_an_lm() -> None:
    corpus = shelf().corpus
    mixed = VanillaRAG(make_retriever("hybrid(sparse=bm25,dense=hippo)", corpus), k=2)
    assert {"SelectFacts", "ExtractTriples"} <= {row.signature for row in calls_of(mixed)}
    misled = make_retriever("distracting(inner=light,rate=1,kinds=subjective)", corpus)
    prediction, _, _ = ask(VanillaRAG(misled, k=3), plausible, TOWN)
    made = [p for p in prediction.passages if p.pid.startswith("distractor-")]
    assert len(made) <= 2
    with pytest.raises(ConfigError, match="needs an LM, but none is active") as error:
        make_retriever("hippo", corpus).search(TOWN, k=1)
    assert "\n" not in str(error.value)
    with dspy.context(lm=ScriptedLM()):
        assert make_retriever("hippo", Corpus(())).search(TOWN, k=3) == []
        assert make_retriever("hippo", corpus).search("  ", k=3) == []
