"""Which data set's layout a file has, by the fields of its first record."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ragbench.data.readers.rows import read_rows
from ragbench.errors import DataError


class Layout(NamedTuple):
    """A layout of questions: the name of its data set, its title, and the fields it is known by."""

    dataset: str
    title: str
    fields: frozenset[str]


#: In this order: the first whose fields are all there.
LAYOUTS = (
    Layout("musique", "MuSiQue", frozenset({"question", "paragraphs"})),
    Layout(
        "2wikimultihopqa",
        "2WikiMultiHopQA",
        frozenset({"question", "supporting_facts", "context", "evidences"}),
    ),
    Layout("hotpotqa", "HotpotQA", frozenset({"question", "supporting_facts", "context"})),
    Layout("graphrag_bench", "GraphRAG-Bench", frozenset({"question", "question_type", "source"})),
    Layout("2wikimultihopqa", "2WikiMultiHopQA", frozenset({"question", "answer_id"})),
    Layout("jsonl", "FlashRAG", frozenset({"question", "golden_answers"})),
    Layout("jsonl", "questions of your own", frozenset({"question", "answer"})),
    Layout("jsonl", "questions of your own", frozenset({"question", "answers"})),
)
_BEIR = Layout("beir", "BEIR", frozenset())
_HIPPORAG = Layout("2wikimultihopqa", "2WikiMultiHopQA as HippoRAG has it", frozenset())


def detect_layout(path: Path) -> Layout | None:
    """The layout of the questions in a file, or in a folder; None where it is not known."""
    if (path / "queries.jsonl").is_file():
        return _BEIR
    try:
        first = next(iter(read_rows(path)), None)
    except DataError:
        return None
    if first is None or not isinstance(first.data, dict):
        return None
    evidence = first.data.get("evidence")
    if isinstance(evidence, list) and evidence and isinstance(evidence[0], list):
        return _HIPPORAG  # GraphRAG-Bench has the same field, as text
    return next((layout for layout in LAYOUTS if layout.fields <= first.data.keys()), None)


def describe_layout(path: Path | None, dataset: str) -> str:
    """A remark for an error: what `path` looks like, where that is not `dataset`; else blank."""
    layout = None if path is None else detect_layout(path)
    if layout is None or layout.dataset == dataset:
        return ""
    return f"; this looks like {layout.title}: give --dataset {layout.dataset}"
