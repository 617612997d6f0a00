"""LinearRAG by scripted conversations; see tests/retrievers/test_graph.py for its parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.linear_rag import LinearRAG
from ragbench.retrievers import PerQuestion, make_retriever
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.lm_index import by_pattern
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import ask, shelf

QUESTION = "In which county was the author of Salt Road born?"


def script(asked: Asked) -> Reply:
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(asked.inputs["text"].partition("\n\n")[0])}
    return {"answer": "Dunmoor"}


def test_entities_of_the_passages_once_and_of_each_question() -> None:
    program = LinearRAG(shelf(), threshold=0.1)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        with open_ledger() as preparation:
            program.prepare()
        with open_ledger() as ledger:
            prediction = program(question=QUESTION)
    assert lm.signatures == ["ExtractEntities"] * 6 + ["AnswerFromContext"]
    assert preparation.as_if.calls == 5
    assert ledger.as_if.calls == ledger.path.calls == 2
    assert [step.action for step in prediction.steps] == ["index", "extract", "bridge", "answer"]
    index, extract, bridge, answer = prediction.steps
    assert index.notes["index_calls"] == program.index_facts()["index_calls"] == 5
    assert extract.observation == "Salt Road"
    assert bridge.notes["seeds"] == {"Salt Road": 1.0}
    assert bridge.notes["tiers"]["Orla Venn"] == 2
    assert answer.thought == "because"
    assert next(p.pid for p in prediction.passages) == "Salt Road"
    assert len(prediction.passages) == 5
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")


def test_two_hops_reach_what_the_question_does_not_name() -> None:
    # Salt Road leads to Orla Venn, and she to Harwick, which shares no word with the question.
    corpus = Corpus([p for p in shelf(padding=30).corpus if p.pid != "Eastmere"])
    retriever = make_retriever("bm25", corpus)
    knobs: dict[str, Any] = {"entities": "regex", "threshold": 0.05, "k": 3}
    far, _, _ = ask(LinearRAG(retriever, top_k_sentence=3, **knobs), script, QUESTION)
    seeds, _, _ = ask(LinearRAG(retriever, ablation="bridging", **knobs), script, QUESTION)
    tiers = far.steps[2].notes["tiers"]
    assert tiers["Salt Road"] <= tiers["Orla Venn"]
    assert list(seeds.steps[2].notes["tiers"]) == ["Salt Road"]
    assert "Orla Venn" in [p.pid for p in far.passages]


def test_a_question_without_entities_is_searched_by_vectors() -> None:
    prediction, lm, _ = ask(LinearRAG(shelf()), script, "what lies on a beach?")
    assert prediction.counts["no_seed"] == 1
    assert lm.signatures[-2:] == ["ExtractEntities", "AnswerFromContext"]
    assert len(prediction.passages) == 5


@pytest.mark.parametrize("ablation", ["pagerank", "graph"])
def test_ablations(ablation: str) -> None:
    prediction, lm, _ = ask(LinearRAG(shelf(), ablation=ablation, reader="predict"), script)
    graph = ablation == "graph"
    assert lm.signatures.count("ExtractEntities") == (0 if graph else 6)
    assert ("bridge" in [step.action for step in prediction.steps]) is not graph
    assert "no_seed" not in prediction.counts
    scores = [score for _, score in prediction.searches[0].hits]
    assert scores == sorted(scores, reverse=True)


def test_a_pattern_asks_no_lm_and_renames_the_system() -> None:
    program = LinearRAG(shelf(), entities="regex")
    prediction, lm, _ = ask(program, script, QUESTION)
    assert lm.signatures == ["AnswerFromContext"]
    assert program.label == "linear_rag[regex entities]"
    assert LinearRAG(shelf()).label == "linear_rag"
    assert prediction.steps[0].notes["index_calls"] == 0
    assert program.other_calls() == []


def test_entities_of_a_spacy_pipeline(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="needs the extra [spacy]")
    pipeline = spacy.blank("en")
    names = ["Orla Venn", "Salt Road", "Harwick"]
    pipeline.add_pipe("entity_ruler").add_patterns(
        [{"label": "NAME", "pattern": name} for name in names]
    )
    pipeline.to_disk(tmp_path / "rules")
    program = LinearRAG(shelf(), entities="spacy", spacy_pipeline=str(tmp_path / "rules"))
    prediction, lm, _ = ask(program, script, QUESTION)
    assert lm.signatures == ["AnswerFromContext"]
    assert prediction.steps[1].observation == "Salt Road"
    assert prediction.steps[0].notes["entities"] == 3


def test_no_pipeline_is_said_before_a_run() -> None:
    with pytest.raises(ConfigError, match="spacy_pipeline"):
        LinearRAG(shelf(), entities="spacy").prepare()


def test_the_lm_of_the_role_makes_the_index() -> None:
    usual, own = ScriptedLM(script, name="usual"), ScriptedLM(script, name="own")
    program = LinearRAG(shelf())
    adapter = make_adapter("json", usual)
    with use(replace(current(), role_lms={"extract": own}), lm=usual, adapter=adapter):
        program.prepare()
        assert program.index_of(program.retriever).lm == own.model
    assert (len(own.asked), usual.asked) == (5, [])


def test_the_passages_of_the_questions_ahead_are_read_before_them() -> None:
    passages = shelf().corpus.passages
    contexts = {"Who is Orla Venn?": (0, 1), "Where is Harwick?": (1, 3), "Later?": (4,)}
    retriever = make_retriever("bm25", Corpus(passages, contexts=contexts), setting="distractor")
    assert isinstance(retriever, PerQuestion)
    program = LinearRAG(retriever)
    lm = ScriptedLM(script)
    ahead = tuple(contexts)[:2]
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        with use(replace(current(), ahead=ahead)), open_ledger() as preparation:
            program.prepare()
        assert lm.signatures == ["ExtractEntities"] * 3  # a shared passage is asked about once
        assert preparation.as_if.calls == 3
        prediction = program(question=ahead[1])
    assert lm.signatures[3:] == ["ExtractEntities", "AnswerFromContext"]
    assert {p.pid for p in prediction.passages} == {"Salt Road", "Harwick"}
    assert program.index_facts()["index_calls"] == 4  # of both indexes, as if each were alone
