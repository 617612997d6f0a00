"""A-RAG's tools and loop, as published: no chunk is short, and all tools of a turn are used."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from ragbench.programs.a_rag import ARAG, ARAGKnobs, ChunkTools
from ragbench.programs.core import Trace
from ragbench.programs.core.question_state import Budget
from ragbench.programs.core.tools import ToolResult, ToolUse
from ragbench.retrievers import Corpus, GranularIndex, Passage, dense, make_retriever
from tests.conformance.parity.ours import Parts, World
from tests.fake_server import Calls
from tests.programs.shelf import native
from tests.retrievers.conftest import WordEmbedder

_NAME = re.compile(r"^Chunk (\w+)", re.MULTILINE)


class Words(WordEmbedder):
    """Vectors of the words of a text, whatever stands between them."""

    @staticmethod
    def _vector(text: str) -> Any:
        return WordEmbedder._vector(re.sub(r"[^\w ]", " ", text) or "none")


def parts(world: World) -> Parts:
    """The tools over `world["chunks"]`, and the loop."""
    chunks = [Passage(str(i), "", text) for i, text in enumerate(world["chunks"])]
    corpus = Corpus(chunks, view="chunk")
    with _words():
        index = GranularIndex(corpus)

    def use(tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        with _words():
            return _box(index).use(ToolUse(tool, arguments))

    return {
        "keyword_search": lambda given: _found(use("keyword_search", given)),
        "semantic_search": lambda given: _found(use("semantic_search", given)),
        "chunk_read": lambda given: _read(index, given),
        "loop": lambda given: _loop(corpus, given),
    }


def _box(index: GranularIndex) -> ChunkTools:
    retriever = make_retriever("bm25", index.corpus)
    return ChunkTools(Trace("a question", retriever, Budget(99, 99)), index, ARAGKnobs())


def _found(seen: ToolResult) -> dict[str, Any]:
    found: dict[str, Any] = {"chunks": list(seen.pids), "snippets": list(seen.retrieved or ())}
    if similar := re.findall(r"\(similarity (-?\d\.\d{3})\)", seen.observation):
        found["similarity"] = similar
    return found


def _read(index: GranularIndex, calls: Sequence[Sequence[str]]) -> list[Any]:
    """What becomes of each chunk in each of the calls, which one question makes."""
    box, rows = _box(index), []
    for ids in calls:
        seen = box.use(ToolUse("chunk_read", {"chunk_ids": list(ids)}))
        heads = (line for line in seen.observation.split("\n") if _NAME.match(line))
        rows.append([_state(head) for head in heads])
    return rows


def _state(head: str) -> list[str]:
    number = _NAME.findall(head)[0]
    states = {"has been read before.": "before", "not found.": "not found"}
    return [number, next((s for end, s in states.items() if head.endswith(end)), "read")]


def _loop(corpus: Corpus, given: Mapping[str, Any]) -> dict[str, Any]:
    """The steps of a conversation whose turns are given; the last text is the answer."""
    replies: list[str | Calls] = [
        turn
        if isinstance(turn, str)
        else Calls(tuple((_renamed(use["tool"]), use["arguments"]) for use in turn))
        for turn in given["turns"]
    ]
    program = ARAG(
        make_retriever("bm25", corpus), backend="native", guards=False, parallel_tools=True,
        max_steps=given.get("max_loops", 15), answer_style="free",
    )  # fmt: skip
    with _words():
        prediction, bodies = native(program, replies, question="a question")
    steps = [step for step in prediction.steps if step.action != "answer"]
    return {
        "steps": [[_renamed(step.action), list(step.pids)] for step in steps],
        "words": sum(len("\n".join(step.notes.get("retrieved", ())).split()) for step in steps),
        "answer": prediction.answer,
        "forced": prediction.stop_reason != "answered",
        "calls": len(bodies),
    }


def _renamed(tool: str) -> str:
    """Our name of the tool of theirs, and theirs of ours."""
    return {"read_chunk": "chunk_read", "chunk_read": "read_chunk"}.get(tool, tool)


def _words() -> Any:
    return patch.object(dense, "make_embedder", lambda spec, api_base="": Words())
