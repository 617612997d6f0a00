"""Indexes of 30 passages by a server that cuts, refuses and garbles: nothing is lost unsaid."""

import json
import re
import sqlite3
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import Limits, spending
from ragbench.lms.factory import make_lm
from ragbench.record import Ledger
from ragbench.retrievers import Corpus, store as index_store
from ragbench.retrievers.lm_index import (
    GistIndex,
    HippoIndex,
    KnowledgeGraph,
    LightIndex,
    LinearIndex,
    LMIndex,
    SummaryTree,
    by_pattern,
)
from tests.fake_server import FakeServer, Hit

pytestmark = pytest.mark.usefixtures("words")
WORKERS = 4
SYSTEMS: dict[str, tuple[type[LMIndex], dict[str, Any]]] = {
    "hippo_rag": (HippoIndex, {}),
    "light_rag": (LightIndex, {}),
    "graph_rag": (KnowledgeGraph, {"description_words": 20}),
    "raptor": (SummaryTree, {"top_size": 3, "cluster_tokens": 200}),
    "linear_rag": (LinearIndex, {}),
    "memo_rag": (GistIndex, {"stretch_tokens": 100}),
}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    made = load_dataset(DataSettings(size=100, setting="pooled")).corpus
    return made.subset(range(30))


def whole(hit: Hit) -> dict[str, Any]:
    """What a good LM says: the names of the text, each related to the next."""
    parts = re.split(r"\[\[ ## (\w+) ## \]\]\n", hit.body["messages"][-1]["content"])
    inputs = dict(zip(parts[1::2], parts[2::2], strict=True))
    names = by_pattern(inputs.get("text", "").partition("\n\n")[0])
    ends = list(pairwise(names))
    words = " ".join((inputs.get("texts", "") + inputs.get("entities", "")).split()[:30])
    schema = hit.body["response_format"]["json_schema"]["schema"]
    related: dict[str, Any] = {"description": "next to", "strength": 5.0}
    related |= {"keywords": ["near"]} if "KeyedRelation" in schema.get("$defs", {}) else {}
    said = {
        "triples": [{"subject": a, "relation": "is near", "object": b} for a, b in ends],
        "relations": [{"source": a, "target": b, **related} for a, b in ends],
        "summary": f"Of {words}.",
        "title": words[:20],
        "rating": 5.0,
        "findings": ["One thing.", "Another."],
    }
    wanted = schema["properties"]
    if "relations" in wanted:
        described = [{"name": n, "type": "place", "description": f"{n} is {n}"} for n in names]
        return {"entities": described, "relations": said["relations"]}
    if "entities" in wanted:
        return {"entities": names}
    return {name: said[name] for name in wanted}


def lengthened(said: dict[str, Any], characters: int) -> dict[str, Any]:
    """`said`, its last field too long by at least so many characters."""
    name, value = list(said.items())[-1]
    if isinstance(value, list):
        return {**said, name: value * (1 + characters // max(1, len(json.dumps(value)) - 2))}
    return {**said, name: value + " And so on." * (characters // 11)}


class Faulty:
    """Answers as an LM that fails in one reply of five; `said` has the whole replies by prompt."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}
        self.lost: dict[str, str] = {}

    def __call__(self, hit: Hit) -> str:
        # 0 refuses, 1 is unreadable, 2 is cut at first, 3 is cut again; others are whole.
        kind, said = zlib.crc32(hit.prompt.encode()) % 20, whole(hit)
        if kind == 3 and list(said.values())[-1]:
            self.lost[hit.prompt] = "cut_replies"
            return json.dumps(lengthened(said, 80_000))
        if kind in (0, 1, 3):
            self.lost[hit.prompt] = "unreadable_replies"
            return '{"something": "else' if kind == 1 else "I am sorry, but I cannot help."
        if kind == 2:  # more than 4,096 tokens, less than 8,192
            said = lengthened(said, 20_000)
        self.said[hit.prompt] = said
        return json.dumps(said)


def asking(server: FakeServer) -> Any:
    lm = make_lm("hosted_vllm/fake", api_base=server.url, cache=False, schema=True)
    return dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=WORKERS)


def made(
    name: str, corpus: Corpus, server: FakeServer, limit: int | None = None
) -> tuple[LMIndex, Ledger]:
    """The index that an LM behind `server` makes, with at most `limit` calls."""
    kind, settings = SYSTEMS[name]
    index_store._OPEN.clear()
    with spending(Limits(calls=limit)), asking(server), open_ledger() as ledger:
        return kind.of(corpus, lm="fake", **settings), ledger


def stored(folder: Path) -> list[str]:
    """The values of the replies that are kept, sorted."""
    with closing(sqlite3.connect(folder / "indexes" / "replies.sqlite")) as db:
        rows = [row for (row,) in db.execute("SELECT value FROM kept")]
    return sorted(json.dumps(json.loads(row)["values"], sort_keys=True) for row in rows)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_stored_is_what_was_said_and_the_rest_is_counted_and_asked_again(
    name: str, corpus: Corpus, tmp_path: Path
) -> None:
    said = Faulty()
    with FakeServer(said, cuts=True) as server:
        index, ledger = made(name, corpus, server)
        hits, facts = list(server.hits), index.facts()
        assert stored(tmp_path) == sorted(json.dumps(v, sort_keys=True) for v in said.said.values())
        for loss in ("cut_replies", "unreadable_replies"):
            assert facts[loss] == list(said.lost.values()).count(loss)
        assert said.lost
        # The bill and the server's own count agree.
        calls = [call for call in ledger.calls if call.kind == "lm"]
        assert len(calls) == len(hits) == facts["index_calls"]
        assert sum(call.completion_tokens for call in calls) == sum(
            hit.completion_tokens for hit in hits
        )
        # The next build asks for the lost ones, and for what depends on them.
        server.script = lambda hit: json.dumps(whole(hit))
        index, _ = made(name, corpus, server)
        again = [hit.prompt for hit in server.hits[len(hits) :]]
        assert len(again) == len({*again})
        assert {*again} & {hit.prompt for hit in hits} <= {*said.lost}
        assert {*again} & {*said.lost}
        assert index.is_whole
        # The one after it asks for nothing.
        made(name, corpus, server)
        assert len(server.hits) == len(hits) + len(again)


@pytest.mark.parametrize("name", ["hippo_rag", "graph_rag", "raptor"])
def test_a_stop_loses_at_most_the_calls_under_way(
    name: str, corpus: Corpus, tmp_path: Path
) -> None:
    with FakeServer(lambda hit: json.dumps(whole(hit))) as server:
        stops = 0
        while True:
            try:
                index, _ = made(name, corpus, server, limit=10)
                break
            except dspy.LMError:
                stops += 1
                assert len(server.hits) - len(stored(tmp_path)) <= WORKERS * stops
        assert stops >= 1
        assert len(server.hits) <= index.facts()["index_calls"] + WORKERS * stops
