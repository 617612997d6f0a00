"""A-RAG: an agent that searches a corpus by keyword, by sentence and by chunk (Du et al. 2026).

`keyword_search` (counts of exact text) and `semantic_search` (nearest sentences) show the matching
sentences of at most `k` chunks. `chunk_read` shows complete chunks, each only once. The number of a
chunk is its position in the corpus, so that chunks n - 1 and n + 1 are adjacent to chunk n. `naive`
has one tool, which searches embeddings of complete chunks and shows them. The other variants have
one tool less. `embedder` embeds the retriever's corpus.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, Self

import dspy
from pydantic import Field, model_validator

from ragbench import retrievers
from ragbench.errors import ConfigError
from ragbench.ledger import file_call
from ragbench.metrics import tokens
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    one_line,
    tools,
)
from ragbench.programs.core.trace import role_lm
from ragbench.retrievers import GranularIndex, Match, Passage, Retriever
from ragbench.signatures import ToolStep

#: Maximum number of chunks of a search.
MAX_TOP_K = 20

#: Tokens of steps after which the loop answers.
TOKEN_BUDGET = 128_000

_SHORT = 4  # minimum number of letters of a keyword

#: Rules of the agent's instruction, with the tools that each rule needs.
_RULES: tuple[tuple[str, set[str]], ...] = (
    ("Split the question into the facts that it needs, and find them one by one.", set()),
    ("Give keyword_search short exact terms: names and rare words.", {"keyword_search"}),
    (
        "Where keywords find nothing, describe the fact to semantic_search.",
        {"keyword_search", "semantic_search"},
    ),
    ("Read a chunk whole before you rely on a sentence of it.", {"chunk_read"}),
    ("Answer once every fact is found.", set()),
)


class ARAGKnobs(ProgramKnobs):
    """Knobs of `a_rag`."""

    k: int = bounded(5, 1, MAX_TOP_K, "chunks that a search shows")
    context_tokens: int = bounded(128_000, 100, 1_000_000, "tokens of steps in a call")
    max_steps: int = bounded(15, 1, 50, "maximum number of turns")
    keyword_search: bool = Field(True, description="offer the tool keyword_search")
    semantic_search: bool = Field(True, description="offer the tool semantic_search")
    chunk_read: bool = Field(True, description="offer the tool chunk_read")
    whole_chunks: bool = Field(False, description="semantic_search embeds chunks, not sentences")
    embedder: str = Field("local", description="local, local:NAME or openai/MODEL")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    backend: tools.Backend = Field("auto", description="how tools are called; auto: native if able")
    parallel_tools: bool = Field(False, description="use all tools that a native turn asks for")
    guards: bool = Field(True, description="handle invalid turns")
    reasoning_effort: Literal["", "minimal", "low", "medium", "high"] = Field(
        "", description="passed to LMs that reason; blank leaves it to the LM"
    )

    @model_validator(mode="after")
    def _can_search(self) -> Self:
        if not (self.keyword_search or self.semantic_search):
            raise ValueError("keyword_search and semantic_search are both off; leave one on")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        every = ("keyword_search", "semantic_search", "chunk_read")
        return tuple(name for name in every if getattr(self, name))


@PROGRAMS.register("a_rag")
class ARAG(RAGProgram[ARAGKnobs]):
    """Use search and reading tools in turns until the answer is found."""

    variants = {  # noqa: RUF012
        "full": {"on_missing": "say_so"},
        "naive": {
            "on_missing": "say_so",
            "keyword_search": False,
            "chunk_read": False,
            "whole_chunks": True,
        },
        "no_keyword": {"on_missing": "say_so", "keyword_search": False},
        "no_semantic": {"on_missing": "say_so", "semantic_search": False},
        "no_read": {"on_missing": "say_so", "chunk_read": False},
    }

    def make_predictors(self) -> None:
        tool_names = self.knobs.names
        rules = " ".join(rule for rule, needed in _RULES if needed <= set(tool_names))
        step = ToolStep.with_instructions(f"{ToolStep.instructions}\n\n{rules}")
        self.act = tools.tool_predictor(step, tool_names, like=ToolStep)

    def prepare(
        self, questions: Sequence[str] = (), progress: retrievers.Progress | None = None
    ) -> None:
        """Embed the pooled corpus and record the calls.

        The passages of single questions are embedded with each question.
        """
        if isinstance(getattr(self.retriever, "whole", self.retriever), retrievers.Distracting):
            raise ConfigError(
                f"--retriever distracting has no effect on {self.name}, whose tools search the "
                "corpus directly. Use another retriever or program."
            )
        if isinstance(self.retriever, retrievers.PerQuestion) or not self.knobs.semantic_search:
            return
        index = self.index_of(self.retriever)
        before = len(index.index_calls)
        if self.knobs.whole_chunks:
            index.build_chunks(retrievers.progress_of("vectors of chunks", progress))
        else:
            index.build_sentences(retrievers.progress_of("vectors of sentences", progress))
        for call in index.index_calls[before:]:
            file_call(call)

    def index_of(self, retriever: Retriever) -> GranularIndex:
        return GranularIndex.of(
            retriever.corpus, embedder=self.knobs.embedder, api_base=self.knobs.embedder_base
        )

    def solve(self, trace: Trace) -> dspy.Prediction:
        knobs = self.knobs
        config: dict[str, Any] = {}
        if knobs.reasoning_effort:
            if role_lm("reason").supports_reasoning:
                config["reasoning_effort"] = knobs.reasoning_effort
            else:
                trace.count("reasoning_effort_ignored")
        loop = tools.ToolLoop(
            self.act,
            ChunkTools(trace, self.index_of(trace.retriever), knobs),
            knobs.backend,
            knobs.context_tokens,
            knobs.max_steps,
            knobs.guards,
            parallel=knobs.parallel_tools,
            token_budget=TOKEN_BUDGET,
            config=config,
        )
        answer, reason = loop.run()
        return trace.prediction(answer or loop.conclude(), reason)


class ChunkTools(tools.Toolbox):
    """The tools of one question. Without `chunk_read`, searches show complete chunks."""

    def __init__(self, trace: Trace, index: GranularIndex, knobs: ARAGKnobs) -> None:
        super().__init__(trace, knobs.names)
        self.index = index
        self.knobs = knobs
        self._read: set[int] = set()
        top_k = {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": knobs.k}
        for name in self.tools.keys() & {"keyword_search", "semantic_search"}:
            tool = self.tools[name]
            tool.args["top_k"] = top_k
            semantic = name == "semantic_search" and knobs.whole_chunks
            whole_chunks = semantic or not knobs.chunk_read
            content = "the whole chunks" if whole_chunks else "matching sentences"
            tool.desc = f"{tool.desc.removesuffix('.')}; shows {content}."

    def keyword_search(self, keywords: list[str], top_k: int | None = None) -> tools.ToolResult:
        """Find chunks with these exact words or names, each an item."""
        words = listed(keywords, split=False)
        return self._search(
            ", ".join(words), top_k, lambda k: self.index.keyword_search(words, k=k)
        )

    def semantic_search(self, query: str, top_k: int | None = None) -> tools.ToolResult:
        """Find chunks by meaning."""
        query = " ".join(listed(query, split=False))
        find = self.index.semantic_search
        if self.knobs.whole_chunks:
            find = self.index.chunk_search
        return self._search(query, top_k, lambda k: find(query, k=k), similar=True)

    def chunk_read(self, chunk_ids: list[str]) -> tools.ToolResult:
        """Read whole chunks by their numbers."""
        corpus = self.index.corpus
        blocks = []
        known: dict[int, None] = {}
        new: list[int] = []
        for text in listed(chunk_ids, split=True):
            number = _number(text)
            if number is None or number >= len(corpus):
                blocks.append(f"Chunk {text}: not found.")
                continue
            known[number] = None
            if number in self._read:
                blocks.append(f"Chunk {number} has been read before.")
            else:
                self._read.add(number)
                new.append(number)
                blocks.append(self._text(number))
        passages = [corpus[number].scored(0.0) for number in new]
        if {passage.pid for passage in passages} - {p.pid for p in self.trace.passages}:
            numbers = ", ".join(map(str, new))
            self.trace.search_by(lambda: passages, f"chunk_read {numbers}", k=len(new))
        pids = tuple(corpus[number].pid for number in known)
        texts = tuple(passage.text for passage in passages)
        return tools.ToolResult("\n\n".join(blocks), pids, texts, empty=not new)

    def question_search(self) -> tools.ToolUse:
        if self.knobs.semantic_search:
            return tools.ToolUse("semantic_search", {"query": self.trace.question})
        words = []
        for word in dict.fromkeys(tokens(self.trace.question)):
            if len(word) >= _SHORT:
                words.append(word)
        return tools.ToolUse("keyword_search", {"keywords": words or [self.trace.question]})

    def _search(
        self, query: str, top_k: Any, find: Any, *, similar: bool = False
    ) -> tools.ToolResult:
        k = self.knobs.k
        with suppress(TypeError, ValueError):  # missing, or not a number
            k = min(max(int(top_k), 1), MAX_TOP_K)
        matches: list[Match] = []

        def found() -> list[Passage]:
            matches.extend(find(k))
            return [match.passage for match in matches]

        self.trace.search_by(found, query, k=k)
        if not matches:
            advice = "No chunk matches. Try one name or word alone"
            if similar:
                advice = "Nothing found"
            elif self.knobs.semantic_search:
                advice += ", or semantic_search"
            return tools.ToolResult(f"{advice}.", (), (), empty=True)
        lines: list[str] = []
        texts: list[str] = []
        for match in matches:
            line, shown_texts = self._show(match, similar=similar)
            lines.append(line)
            texts += shown_texts
        pids = tuple(match.passage.pid for match in matches)
        return tools.ToolResult("\n".join(lines), pids, tuple(texts))

    def _show(self, match: Match, *, similar: bool) -> tuple[str, Sequence[str]]:
        passage = match.passage
        knobs = self.knobs
        number = self.index.corpus.positions[passage.pid]
        head = self._name(number)
        if similar:
            head += f" (similarity {passage.score:.3f})"
        if not knobs.chunk_read or (similar and knobs.whole_chunks):
            self._read.add(number)
            return f"{head}: {passage.text}", (passage.text,)
        if not match.sentences:  # a keyword that spans two sentences
            return head, ()
        return f"{head}: ... {' ... '.join(match.sentences)} ...", match.sentences

    def _text(self, number: int) -> str:
        corpus = self.index.corpus
        block = f"{self._name(number)}:\n{corpus[number].text}"
        near = self.index.neighbours(corpus[number].pid)
        if corpus.view == "chunk" and near:  # the order of paragraphs is arbitrary
            block += f"\n(Beside it: {' and '.join(str(corpus.positions[p.pid]) for p in near)}.)"
        return block

    def _name(self, number: int) -> str:
        title = self.index.corpus[number].title
        if title:
            return f"Chunk {number} | {title}"
        return f"Chunk {number}"


def listed(value: Any, *, split: bool) -> list[str]:
    """Return the texts in a tool argument.

    Args:
        value: Argument of a model: a list, JSON, or one text.
        split: Split at commas, semicolons and line ends. Keywords are not split, because names
            contain commas.

    Returns:
        Texts without quotation marks and without a period at the end.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, list | tuple):
        items = value
    else:
        items = [] if value is None else [value]
    texts = list(map(str, items))
    if split:
        joined = "\n".join(text.strip("[] ") for text in texts)
        texts = re.split(r"[,;\n]", joined)
    texts = [one_line(text).rstrip(" .").strip("\"'") for text in texts]
    return list(filter(None, texts))


def _number(text: str) -> int | None:
    """Return the number in "7", "Chunk 7" or "chunk 7 | Title: text"."""
    match = re.match(r"(?:chunk)?\W*(\d{1,9})\b", text, re.IGNORECASE)
    if match:
        return int(match[1])
    return None
