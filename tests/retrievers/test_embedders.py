"""Embedders: OpenAI-compatible, by a real client and a server on this machine; the local one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import ConfigError, LMSetupError, ModelError
from ragbench.ledger import open_ledger
from ragbench.lms.local import find, is_installed
from ragbench.retrievers import dense
from ragbench.retrievers.embedders import make_embedder, openai as module
from ragbench.retrievers.embedders.local import LocalEmbedder
from ragbench.retrievers.embedders.openai import OpenAIEmbedder
from ragbench.sqlite_cache import CachedRows
from tests.retrievers.wire import Wire, serving


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(text.count("a"))]


def embeddings(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    assert path == "/v1/embeddings"
    rows = [{"index": i, "embedding": vector(t)} for i, t in enumerate(body["input"])]
    usage = {"prompt_tokens": sum(len(t) for t in body["input"]), "total_tokens": 0}
    return 200, {"data": rows[::-1], "model": body["model"], "usage": usage}


@pytest.fixture
def wire() -> Iterator[Wire]:
    with serving(embeddings) as found:
        yield found


@pytest.fixture
def cache(tmp_path: Path) -> CachedRows:
    return CachedRows(tmp_path / "vectors.sqlite")


def make(wire: Wire, cache: CachedRows, model: str = "small") -> OpenAIEmbedder:
    return OpenAIEmbedder(model, api_base=wire.address, cache=cache)


def test_vectors_are_the_servers_in_order_batched_and_repeats_sent_once(
    wire: Wire, cache: CachedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_TEXTS", 4)
    told: list[tuple[int, int]] = []
    texts = [f"text {i}" * i for i in range(1, 11)] + ["text 1"]
    got = make(wire, cache).embed(texts, lambda done, total: told.append((done, total)))
    expected = np.array([vector(t) for t in texts])
    assert got == pytest.approx(expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert [len(body["input"]) for body in wire.requests] == [4, 4, 2]
    assert told[-1] == (10, 10)


def test_embedder_if_a_text_repeats_sends_it_once(wire: Wire, cache: CachedRows) -> None:
    with open_ledger() as first:
        vectors = make(wire, cache).embed(["one", "three"])
    with open_ledger() as again:
        assert np.array_equal(make(wire, cache).embed(["one", "three"]), vectors)
    assert len(wire.requests) == 1
    assert (first.as_if.tokens, first.as_if.other_tokens) == (0, 8)
    took = pytest.approx(first.as_if.latency_s)
    assert replace(again.as_if, latency_s=took) == first.as_if
    assert (first.billed.others, again.billed.others) == (1, 0)


def test_price_by_the_map_unknown_elsewhere(
    wire: Wire, cache: CachedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr(module, "_OPENAI", wire.address)
    embedder = OpenAIEmbedder("text-embedding-3-small", cache=cache)
    with open_ledger() as ledger:
        embedder.embed(["a" * 1000])
    assert ledger.as_if.cost_usd == pytest.approx(1000 * 0.02 / 1e6)
    with open_ledger() as ledger:
        make(wire, cache).embed(["new"])
    assert ledger.as_if.cost_usd is None


def test_embedder_if_the_server_is_custom_does_not_send_the_openai_key(
    wire: Wire, cache: CachedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    make(wire, cache).embed(["x"])
    monkeypatch.setenv(module.KEY_VARIABLE, "theirs")
    make(wire, cache).embed(["y"])
    assert wire.keys == ["Bearer none", "Bearer theirs"]


def rows(*indices: Any, vectors: Any = ([1.0], [1.0])) -> list[dict[str, Any]]:
    return [{"index": i, "embedding": v} for i, v in zip(indices, vectors, strict=False)]


BAD_REPLIES = {
    "twice the same index": rows(0, 0),
    "true for an index": rows(False, True),
    "two dimensions": rows(0, 1, vectors=([1.0], [1.0, 2.0])),
    "not finite": rows(0, 1, vectors=([1.0], [float("nan")])),
    "all zeros": rows(0, 1, vectors=([0.0], [1.0])),
    "no numbers": rows(0, 1, vectors=([None], ["x"])),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_embedder_if_vectors_are_invalid_refuses_and_does_not_cache(
    name: str, cache: CachedRows
) -> None:
    answer = {"data": BAD_REPLIES[name], "usage": {"prompt_tokens": 4}}
    with serving(lambda path, body: (200, answer)) as wire:
        for asked in (1, 2):
            with pytest.raises(LMSetupError, match="a vector for each of the 2 texts"):
                make(wire, cache).embed(["x", "y"])
            assert len(wire.requests) == asked


def test_embedder_if_vector_length_changes_has_a_one_line_error(
    wire: Wire, cache: CachedRows
) -> None:
    with serving(lambda path, body: (200, {"data": [{"index": 0, "embedding": [1.0]}]})) as other:
        made = make(other, cache)
        made.embed(["x"])
        made.service = make(wire, cache).service  # the same place, another model
        with pytest.raises(LMSetupError, match="vectors of 1 and 3 numbers"):
            made.embed(["x", "y"])
    index = dense.make_index(np.eye(2, dtype=np.float32), "auto")
    with pytest.raises(LMSetupError, match=r"vectors of 3 numbers, and those of the index have 2"):
        dense.nearest(index, np.eye(3, dtype=np.float32), 1)


# -- the local sentence model, where its bytes are

needs_model = pytest.mark.skipif(
    not is_installed("minilm-int8"), reason="needs `ragbench fetch minilm-int8`"
)


@needs_model
def test_vectors_do_not_depend_on_neighbours_or_order() -> None:
    embedder = make_embedder("local")
    texts = ["short", "a much longer text about Bergen and rain " * 5, "", "x \ud800", "東京"]
    together = embedder.embed(texts)
    assert together.shape == (5, 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)
    assert embedder.embed(texts[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    known = ["A man is eating food.", "A man eats a piece of bread.", "A plane is taking off."]
    a, b, c = embedder.embed(known)
    assert a @ b > 0.6 > 0.2 > a @ c


@needs_model
def test_long_texts_are_read_in_windows() -> None:
    embedder = make_embedder("local")
    start, end = "Rain fell on the harbour. " * 60, "The pianist played a sonata by Brahms. " * 60
    whole, head, question = embedder.embed([start + end, start, "Who played Brahms?"])
    assert whole @ question > head @ question + 0.1
    assert len(embedder.token_vectors([start + end])[0]) > 600


@needs_model
def test_local_embedder_of_a_folder_uses_its_model(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(find("minilm-int8").paths()["model"].parent / name)
    own = LocalEmbedder(str(tmp_path))
    assert np.array_equal(own.embed(["x"]), make_embedder("local").embed(["x"]))


def test_make_embedder_if_the_spec_is_invalid_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(LMSetupError, match=r"OPENAI_API_KEY.*embedder=local"):
        make_embedder("openai/text-embedding-3-small")
    with pytest.raises(ConfigError, match="give local"):
        make_embedder("minilm")
    with pytest.raises(ModelError, match=r"must hold model\.onnx"):
        make_embedder(f"local:{tmp_path}/none")
