"""A-RAG's own tools and agent, over scripted turns."""

import importlib
import json
import pickle
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tiktoken

from benchmarks.parities.parts import WordTokens, need, reachable
from ragbench.retrievers.lm_index import by_pattern
from tests.conformance.parity.ours.a_rag import Words

REPOSITORY, FILES = "github.com/Ayanami0730/arag", "src/arag/tools, src/arag/agent/base.py"
_LONG = 5  # letters of a word that is a keyword beside the names


class _Model:
    """The embedder, by the name of the method that the tool calls."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.words = Words()

    def encode(self, texts: Sequence[str], **_: Any) -> Any:
        return self.words.embed(list(texts))


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The tools over `world["chunks"]`, and the agent."""
    need("requests", "requests")
    reachable(checkout / "src", "sentence_transformers", "torch")
    reachable(checkout / "scripts")
    tiktoken.encoding_for_model = lambda name: WordTokens()  # type: ignore[assignment,return-value]
    keyword: Any = importlib.import_module("arag.tools.keyword_search")
    semantic: Any = importlib.import_module("arag.tools.semantic_search")
    read: Any = importlib.import_module("arag.tools.read_chunk")
    base: Any = importlib.import_module("arag.agent.base")
    context: Any = importlib.import_module("arag.core.context")
    registry: Any = importlib.import_module("arag.tools.registry")
    split = importlib.import_module("build_index").split_sentences
    semantic.SentenceTransformer = _Model
    if world.get("ties_first"):
        semantic.np = SimpleNamespace(dot=np.dot, argsort=_ties_first)
    folder = Path(tempfile.mkdtemp())
    chunks = folder / "chunks.json"
    chunks.write_text(json.dumps([f"{i}:{text}" for i, text in enumerate(world["chunks"])]))
    _index(world["chunks"], split, folder)
    tools = registry.ToolRegistry()
    for tool in (
        keyword.KeywordSearchTool(str(chunks)),
        semantic.SemanticSearchTool(str(chunks), str(folder)),
        read.ReadChunkTool(str(chunks)),
    ):
        tools.register(tool)

    def use(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return _found(tools.execute(name, context.AgentContext(), **given)[0])

    def reads(calls: Sequence[Sequence[str]]) -> list[Any]:
        seen = context.AgentContext()
        return [_states(tools.execute("read_chunk", seen, chunk_ids=ids)[0]) for ids in calls]

    return {
        "keyword_search": lambda given: use("keyword_search", given),
        "semantic_search": lambda given: use("semantic_search", given),
        "chunk_read": reads,
        "loop": lambda given: _loop(base, tools, given),
    }


def _ties_first(scores: Any) -> Any:
    """An order by which, read from its end, the first of equals comes first."""
    return np.argsort(-scores, kind="stable")[::-1]


def _index(texts: Sequence[str], split: Any, folder: Path) -> None:
    """The index that the script for it makes."""
    owned = [(str(i), sentence) for i, text in enumerate(texts) for sentence in split(text)]
    index = {
        "sentences": [sentence for _, sentence in owned],
        "embeddings": np.array(Words().embed([sentence for _, sentence in owned])),
        "sentence_to_chunk": [owner for owner, _ in owned],
        "chunks": {str(i): {"id": str(i), "text": text} for i, text in enumerate(texts)},
    }
    (folder / "sentence_index.pkl").write_bytes(pickle.dumps(index))


def _found(text: str) -> dict[str, Any]:
    """What a search shows: chunks, snippets and similarities."""
    if not text.startswith("Chunk ID: "):
        return {"chunks": [], "snippets": []}
    blocks = text.split("\n\nChunk ID: ")
    heads = [re.match(r"(?:Chunk ID: )?(\d+)", block) for block in blocks]
    shown = [re.search(r"(?s)\.\.\. (.*) \.\.\.$", block) for block in blocks]
    found: dict[str, Any] = {
        "chunks": [head[1] for head in heads if head],
        "snippets": [s for hit in shown if hit for s in hit[1].split(" ... ")],
    }
    if similar := re.findall(r"\(Similarity: (-?\d\.\d{3})\)", text):
        found["similarity"] = similar
    return found


def _states(text: str) -> list[list[str]]:
    """What became of each chunk asked for."""
    states = []
    for piece in text.split("\n[Chunk ")[1:]:
        number, rest = piece.split("]", 1)
        before = rest.lstrip().startswith("(This chunk has been read before)")
        state = "not found" if rest.startswith(" - Not found") else "before" if before else "read"
        states.append([number, state])
    return states


def _loop(base: Any, tools: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    replies, calls = list(given["turns"]), []

    def chat(messages: Any, tools: Any = None, **_: Any) -> dict[str, Any]:
        calls.append(tools)
        turn = replies.pop(0)
        if isinstance(turn, str):
            return {"message": {"role": "assistant", "content": turn}, "cost": 0.0}
        asked = [
            {
                "id": str(at),
                "function": {"name": use["tool"], "arguments": json.dumps(use["arguments"])},
            }
            for at, use in enumerate(turn)
        ]
        return {"message": {"role": "assistant", "content": "", "tool_calls": asked}, "cost": 0.0}

    agent = base.BaseAgent(SimpleNamespace(chat=chat), tools, max_loops=given.get("max_loops", 15))
    done = agent.run("a question")
    return {
        "steps": [[step["tool_name"], _shown(step)] for step in done["trajectory"]],
        "words": done["total_retrieved_tokens"],
        "answer": done["answer"],
        "forced": "max_loops_exceeded" in done,
        "calls": len(calls),
    }


def _shown(step: Mapping[str, Any]) -> list[str]:
    if step["tool_name"] != "read_chunk":
        return list(_found(step["tool_result"])["chunks"])
    states = _states(step["tool_result"])
    return list(dict.fromkeys(number for number, state in states if state != "not found"))


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """Inputs for each part: names and long words, questions, and reads of what stands there."""
    words = [_keywords(question) for question in questions]
    size = len(world["chunks"])
    reads = [
        [[str(i % size), str((i + 1) % size)], [str(i % size), "x"]] for i in range(len(words))
    ]
    return {
        "keyword_search": [{"keywords": w, "top_k": k} for w in words for k in (5, 20)],
        "semantic_search": [{"query": q, "top_k": k} for q in questions for k in (5, 20)],
        "chunk_read": reads,
        "loop": [
            {"turns": _turns(question, keys, ids[0])}
            for question, keys, ids in zip(questions, words, reads, strict=True)
        ],
    }


def _keywords(question: str) -> list[str]:
    long = [word for word in re.findall(r"[a-z]+", question) if len(word) >= _LONG]
    return list(dict.fromkeys([*by_pattern(question), *long]))


def _turns(question: str, keywords: list[str], ids: list[str]) -> list[Any]:
    def one(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"tool": tool, "arguments": arguments}

    return [
        [one("keyword_search", keywords=keywords), one("semantic_search", query=question)],
        [one("read_chunk", chunk_ids=ids)],
        [one("read_chunk", chunk_ids=[*ids, "none"])],
        [one("semantic_search", query=question, top_k=8)],
        "an answer",
    ]
