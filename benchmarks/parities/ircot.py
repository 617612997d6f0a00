"""IRCoT's own rules: its sentence, its query, its paragraphs and its answer.

spaCy's rule-based splitter stands for the model that the code loads, which is not installed here.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import spacy

from benchmarks.parities.parts import need, reachable
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.sentences import split_sentences

REPOSITORY, FILES = "github.com/StonyBrookNLP/ircot", "commaqa/inference/ircot.py"
#: What base_configs/ircot_codex_2wikimultihopqa.jsonnet sets.
ANSWER, MOST = r".* answer is:? (.*)\.?", 15
_K = 4


class _State:
    """What a participant reads and leaves behind."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.next = _Data(data), "here"

    def copy(self) -> _State:
        return _State(dict(self.data))


class _Data(dict[str, Any]):
    def add_answer(self, step: Any) -> None:
        self["answered"] = step


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The rules over `world["passages"]`, title and text of each."""
    need("rapidfuzz", "rapidfuzz")
    reachable(
        checkout, "openai", "transformers", "diskcache", "_jsonnet", "tenacity", "ftfy", "torch"
    )
    for part in ("gpt3generator", "llm_client_generator"):
        sys.modules[f"commaqa.models.{part}"] = MagicMock()
    code: Any = importlib.import_module("commaqa.inference.ircot")
    splitter = spacy.blank("en")
    splitter.add_pipe("sentencizer")
    passages = world["passages"]

    def sentence(text: str) -> str:
        return next((found.text.strip() for found in splitter(text.strip()).sents), "")

    return {
        "first_sentence": sentence,
        "reasoning": code.is_reasoning_sentence,
        "query": lambda given: _query(code, given),
        "paragraphs": lambda batches: _kept(code, passages, batches),
        "shown": lambda title: code.para_to_text(title, passages[title], 350).partition("\n")[2],
        "answer": lambda text: _answer(code, text),
    }


def _retriever(code: Any, answers: Sequence[Any]) -> tuple[Any, list[str]]:
    """The paragraph collector over a search that gives `answers` in turn, and its queries."""
    left, asked = list(answers), []

    def post(url: str, json: Mapping[str, Any]) -> Any:
        asked.append(json["query_text"])
        rows = [
            {"corpus_name": "here", "title": title, "paragraph_text": text}
            for title, text in left.pop(0)
        ]
        return SimpleNamespace(ok=True, json=lambda: {"retrieval": rows})

    code.requests = SimpleNamespace(post=post)
    made = code.RetrieveAndResetParagraphsParticipant(
        retrieval_type="bm25",
        retriever_host="",
        retriever_port=0,
        retrieval_count=_K,
        query_source="question_or_last_generated_sentence",
        cumulate_titles=True,
        document_type="title_paragraph_text",
        source_corpus_name="here",
        global_max_num_paras=MOST,
        next_model="next",
    )
    return made, asked


def _query(code: Any, given: Mapping[str, Any]) -> str:
    """What is searched with; blank where nothing is."""
    made, asked = _retriever(code, [[]])
    data = {"question": given["question"], "titles": [], "paras": []}
    made.query(_State({**data, "generated_sentences": list(given["thoughts"])}))
    return " ".join(asked[0].split()) if asked else ""


def _kept(
    code: Any, passages: Mapping[str, str], batches: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The paragraphs after each search."""
    made, _ = _retriever(code, [[(_title(pid), passages[pid]) for pid in b] for b in batches])
    state = _State({"question": "q", "titles": [], "paras": [], "generated_sentences": []})
    names = {(_title(pid), text): pid for pid, text in passages.items()}
    rows = []
    for _ in batches:
        state = made.query(state)
        rows.append(
            [names[pair] for pair in zip(state.data["titles"], state.data["paras"], strict=True)]
        )
    return rows


def _title(pid: str) -> str:
    """The title of a paragraph; several of one title are told apart by what follows a #."""
    return pid.partition("#")[0]


def _answer(code: Any, text: str) -> str | None:
    """The answer that a sentence gives; None where the chain goes on."""
    made = code.StepByStepExitControllerParticipant(
        answer_extractor_regex=ANSWER,
        terminal_return_type="answer",
        terminal_state_next_model="reader",
        next_model="search",
    )
    state = made.query(_State({"titles": [], "paras": [], "generated_sentences": [text]}))
    return state.data["answered"].answer.strip() if state.next == "reader" else None


def world(path: Path) -> dict[str, Any]:
    """The paragraphs of a corpus in HippoRAG's layout."""
    passages: dict[str, str] = {}
    for row in json.loads(path.read_text("utf-8")):
        pid = row["title"]
        while pid in passages:
            pid += "#"
        passages[pid] = " ".join(row["text"].split())
    return {"passages": passages}


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """Inputs for each part: passages as what a model wrote, and what BM25 finds with them."""
    passages = world["passages"]
    corpus = Corpus([Passage(pid, _title(pid), text) for pid, text in passages.items()])
    search = make_retriever("bm25", corpus).search
    texts = list(passages.values())
    sentences = [s for text in texts for s in split_sentences(text)]
    chains = [sentences[3 * i : 3 * i + 3] for i in range(len(questions))]
    found = [
        [[p.pid for p in search(text, k=_K)] for text in [question, *chain]]
        for question, chain in zip(questions, chains, strict=True)
    ]
    return {
        "first_sentence": texts,
        "reasoning": sentences,
        "query": [
            {"question": question, "thoughts": chain[:n]}
            for question, chain in zip(questions, chains, strict=True)
            for n in (0, 1, 3)
        ],
        "paragraphs": found,
        "shown": list(passages),
        "answer": [f"So the answer is: {sentence}" for sentence in sentences[:1000]],
    }
