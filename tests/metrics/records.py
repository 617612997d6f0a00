"""Small records for tests of metrics, in the shape that runs store."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from ragbench.record import Call, Record, Search, ShownPassage

_RECORD = TypeAdapter(Record)

PASSAGES = (
    ("p1", "Ann Lee", ("Ann Lee wrote Red Sky.", "She was born in Oslo.")),
    ("p2", "Oslo", ("Oslo is the capital of Norway.", "It has 700,000 people.")),
    ("p3", "Bo Dan", ("Bo Dan wrote Blue Sea.", "He was born in Bergen.")),
    ("p4", "Bergen", ("Bergen is a city in Norway.",)),
)


def passage(pid: str) -> ShownPassage:
    """The passage of PASSAGES called `pid`."""
    _, title, sentences = next(p for p in PASSAGES if p[0] == pid)
    return ShownPassage(pid, title, " ".join(sentences), sentences)


def search(query: str, pids: Sequence[str], k: int = 5) -> Search:
    """A search that found `pids` in this order."""
    hits = tuple((pid, 10.0 - rank) for rank, pid in enumerate(pids))
    return Search(query, k, hits, 0.01)


def call(**fields: Any) -> Call:
    """One call as the ledger stores it."""
    usual: dict[str, Any] = {
        "model": "m",
        "signature": "AnswerFromContext",
        "role": "answering",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cost_usd": 0.001,
        "latency_s": 0.5,
    }
    return Call(**usual | fields)


def record(
    answer: str | None = "Norway", *, pids: Sequence[str] = ("p1", "p2"), **fields: Any
) -> Record:
    """A record of a two-hop question with the gold answer Norway and gold passages p1 and p2."""
    stored = {
        "qid": "q1",
        "question": "In which country was the author of Red Sky born?",
        "answers": ["Norway"],
        "qtype": "bridge",
        "hops": 2,
        "support": [["Ann Lee", 1], ["Oslo", 0]],
        "gold_pids": ["p1", "p2"],
        "decomposition": [],
        "extra": {},
        "answer": answer,
        "stop_reason": "answered",
        "citations": None,
        "passages": [passage(pid) for pid in dict.fromkeys(pids)],
        "searches": [search("author of Red Sky", pids)] if pids else [],
        "steps": [],
        "counts": {},
        "ledger": {"calls": [call()], "path": {"calls": 1, "latency_s": 0.5}},
        "latency_s": 0.6,
        "failure": None,
        "scores": {},
        **fields,
    }
    return _RECORD.validate_python(stored)


def failure(error: str = "LMTimeoutError", boundary: str = "lm") -> Record:
    """A record that an error ended."""
    return record(
        None,
        stop_reason=None,
        failure={"boundary": boundary, "error": error, "message": "no reply"},
    )
