"""LinearRAG by scripted conversations; see tests/retrievers/test_graph.py for its parts."""

from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.programs.linear_rag import LinearRAG
from ragbench.retrievers import make_retriever
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.lm_index import by_pattern
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, shelf

QUESTION = "In which county was the author of Salt Road born?"


def script(asked: Asked) -> Reply:
    if asked.signature == "ExtractEntities":
        return {"entities": by_pattern(asked.inputs["text"].partition("\n\n")[0])}
    return {"answer": "Dunmoor"}


def test_entities_of_the_passages_once_and_of_each_question() -> None:
    prediction, lm, _ = ask(LinearRAG(shelf(), threshold=0.1), script, QUESTION)
    assert lm.signatures == ["ExtractEntities"] * 6 + ["AnswerFromContext"]
    assert [step.action for step in prediction.steps] == ["index", "extract", "bridge", "answer"]
    _, extract, bridge, answer = prediction.steps
    assert extract.observation == "Salt Road"
    assert bridge.notes["seeds"] == {"Salt Road": 1.0}
    assert bridge.notes["tiers"]["Orla Venn"] == 2
    assert answer.thought == "because"
    assert prediction.passages[0].pid == "Salt Road"
    assert len(prediction.passages) == 5
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")


def test_two_hops_reach_what_the_question_does_not_name() -> None:
    # Salt Road leads to Orla Venn, and she to Harwick, which shares no word with the question.
    retriever = make_retriever(
        "bm25", Corpus([p for p in shelf(padding=30).corpus if p.pid != "Eastmere"])
    )
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
