"""Servers of vectors and rankings as they are: limits of their own, blanks, shapes of replies."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import LMSetupError
from ragbench.ledger import open_ledger
from ragbench.lms.calls import LimitReachedError, Limits, spending
from ragbench.retrievers.embedders.openai import OpenAIEmbedder
from ragbench.retrievers.rerank import HTTPReranker
from ragbench.sqlite_cache import CachedRows
from tests.retrievers.conftest import make_corpus
from tests.retrievers.wire import Wire, serving

Refusal = tuple[int, Any]


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0]


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    rows = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
    return {"data": rows, "usage": {"prompt_tokens": 5}}


def embedder_at(wire: Wire, folder: Path) -> OpenAIEmbedder:
    return OpenAIEmbedder("m", api_base=wire.address, cache=CachedRows(folder / "v.sqlite"))


#: How servers word that a request has too many texts (more than 32), and that one is too long.
TOO_MANY: list[Refusal] = [
    (413, {"error": {"message": "batch size 100 > maximum allowed batch size 32"}}),
    (422, {"error": "batch size 100 > maximum allowed batch size 32", "error_type": "Validation"}),
    (400, {"error": {"message": "Invalid 'input': array too long. Expected at most 32 items"}}),
    (400, {"error": {"message": "batch size is invalid, it should not be larger than 25"}}),
    (400, {"error": {"message": "too many inputs: 100"}}),
    (413, b"<html>413 Request Entity Too Large</html>"),
]  # fmt: skip
TOO_LONG: list[Refusal] = [
    (413, {"error": "Input validation error: `inputs` must have less than 512 tokens. Given: 700"}),
    (400, {"error": {"message": "This model's maximum context length is 512 tokens"}}),
    (400, {"error": {"message": "Invalid 'input[0]': string too long, input exceeds the maximum"}}),
    (422, {"error": {"message": "input is too long for this model"}}),
    (400, {"error": {"message": "too many tokens: total input must be at most 512 tokens"}}),
]


@pytest.mark.parametrize(("status", "reply"), TOO_MANY)
def test_a_batch_that_is_refused_is_halved_and_its_size_remembered(
    status: int, reply: Any, tmp_path: Path
) -> None:
    def answer(path: str, body: dict[str, Any]) -> Refusal:
        if len(body["input"]) > 32:
            return status, reply
        return 200, embeddings(body)

    texts = [f"text {number} {'x' * number}" for number in range(100)]
    with serving(answer) as wire, open_ledger() as ledger:
        embedder = embedder_at(wire, tmp_path)
        rows = embedder.embed(texts)
        refused = [len(body["input"]) for body in wire.requests if len(body["input"]) > 32]
        embedder.embed([f"{text}!" for text in texts])
        after = [len(body["input"]) for body in wire.requests if len(body["input"]) > 32]
    assert rows.shape == (100, 3)
    assert refused == after  # the second time none is too large
    assert not [call for call in ledger.calls if call.error]


@pytest.mark.parametrize(("status", "reply"), TOO_LONG)
def test_service_if_a_text_is_too_long_truncates_and_logs_it(
    status: int, reply: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(path: str, body: dict[str, Any]) -> Refusal:
        if any(len(text) > 1500 for text in body["input"]):
            return status, reply
        return 200, embeddings(body)

    texts = ["y" * 5000 if number == 7 else f"text {number}" for number in range(20)]
    with serving(answer) as wire, open_ledger():
        embedder = embedder_at(wire, tmp_path)
        rows = embedder.embed(texts)
        embedder.embed([f"more {number}" for number in range(20)])
        assert len(wire.requests[-1]["input"]) == 20  # other texts go together as before
    assert rows[7][0] > 0.99
    assert "rejects texts of 5000 characters" in caplog.text


@pytest.mark.parametrize("mode", ["takes", "refuses", "zeros"])
def test_service_if_a_text_is_blank_does_not_send_it(mode: str, tmp_path: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Refusal:
        if mode == "refuses" and not all(text.strip() for text in body["input"]):
            return 400, {"error": {"message": "'$.input' is invalid."}}
        return 200, embeddings(body)

    with serving(answer) as wire, open_ledger():
        rows = embedder_at(wire, tmp_path).embed(["one", "", " \n", "two"])
        alone = embedder_at(wire, tmp_path / "other").embed([" "])
        assert all(text.strip() for body in wire.requests for text in body["input"])
    assert rows.any(axis=1).tolist() == [True, False, False, True]
    assert (alone.shape, alone.any()) == ((1, 3), False)


def numbers(change: Callable[[list[float]], Any]) -> Callable[[dict[str, Any]], Any]:
    def reply(body: dict[str, Any]) -> Any:
        rows = embeddings(body)["data"]
        return {"data": [{**row, "embedding": change(row["embedding"])} for row in rows]}

    return reply


SHAPES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("1e38", numbers(lambda row: [number * 1e38 for number in row])),
    ("1e200", numbers(lambda row: [number * 1e200 for number in row])),
    ("1e-40", numbers(lambda row: [number * 1e-40 for number in row])),
    ("a bare list", lambda body: [vector(text) for text in body["input"]]),
    ("no index", lambda body: {"data": [{"embedding": vector(text)} for text in body["input"]]}),
    ("reversed", lambda body: {"data": embeddings(body)["data"][::-1]}),
    ("odd usage", lambda body: {**embeddings(body), "usage": {"prompt_tokens": -3}}),
    ("no object", lambda body: {**embeddings(body), "usage": "none"}),
]


@pytest.mark.parametrize(("name", "reply"), SHAPES)
def test_vectors_are_read_in_every_shape(name: str, reply: Any, tmp_path: Path) -> None:
    with serving(lambda path, body: (200, reply(body))) as wire, open_ledger():
        rows = embedder_at(wire, tmp_path).embed(["a", "four"])
    expected = np.array([vector("a"), vector("four")])
    assert rows == pytest.approx(expected / np.linalg.norm(expected, axis=1, keepdims=True), 1e-5)


def scores(n: int) -> list[dict[str, Any]]:
    return [{"index": place, "relevance_score": float(place)} for place in range(n)][::-1]


def scored(name: str) -> Callable[[int], list[dict[str, Any]]]:
    return lambda n: [{"index": row["index"], name: row["relevance_score"]} for row in scores(n)]


RANKINGS: list[Callable[[int], Any]] = [
    lambda n: {"results": scores(n)},
    lambda n: {"results": scored("score")(n)},
    lambda n: {"data": scores(n)},
    lambda n: scored("score")(n),
    lambda n: {"rankings": scored("logit")(n)},
    lambda n: {"output": {"results": scores(n)}},
    lambda n: {"scores": [float(place) for place in range(n)]},
    lambda n: [float(place) for place in range(n)],
    lambda n: {"results": [{**row, "relevance_score": str(row["index"])} for row in scores(n)]},
]
CORPUS = list(make_corpus(["one", "two", "three", "four"]))


@pytest.mark.parametrize("reply", RANKINGS)
def test_rankings_are_read_in_every_shape(reply: Any) -> None:
    with serving(lambda path, body: (200, reply(len(body["documents"])))) as wire, open_ledger():
        assert HTTPReranker(wire.address).score("q", CORPUS) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("bad", [{"results": []}, {"results": scores(2)}, {}, [1, 2], "x", None])
def test_a_ranking_of_something_else_is_one_line(bad: Any) -> None:
    said = pytest.raises(LMSetupError, match="one per document")
    with serving(lambda path, body: (200, bad)) as wire, open_ledger() as ledger, said:
        HTTPReranker(wire.address).score("q", CORPUS)
    assert ledger.as_if.failed == 1


@pytest.mark.parametrize("status", [400, 422])
def test_an_endpoint_that_wants_texts_gets_texts(status: int) -> None:
    def answer(path: str, body: dict[str, Any]) -> Refusal:
        if "texts" not in body:
            return status, {"error": "Failed to deserialize: missing field `texts`"}
        return 200, scored("score")(len(body["texts"]))

    with serving(answer) as wire, open_ledger():
        reranker = HTTPReranker(wire.address)
        for _ in range(2):
            assert reranker.score("q", CORPUS) == [0.0, 1.0, 2.0, 3.0]
        assert ["texts" in body for body in wire.requests] == [False, True, True]


def test_blank_passages_have_the_lowest_score_and_too_many_go_in_halves() -> None:
    def answer(path: str, body: dict[str, Any]) -> Refusal:
        if len(body["documents"]) > 2:
            return 413, {"error": "batch size 3 > maximum allowed batch size 2"}
        rows = [{"index": i, "score": len(text)} for i, text in enumerate(body["documents"])]
        return 200, {"results": rows}

    passages = list(make_corpus(["one", "", "three", "seventeen"]))
    blank = passages[1].__class__(**{**vars_of(passages[1]), "title": "", "text": " "})
    with serving(answer) as wire, open_ledger():
        found = HTTPReranker(wire.address).score("q", [passages[0], blank, *passages[2:]])
    assert found[1] == min(found)
    assert found[3] > found[2] > found[0]


def vars_of(passage: Any) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in passage.__dataclass_fields__}


@pytest.mark.parametrize("density", [1, 2, 4])
def test_a_limit_of_tokens_holds_for_vectors_within_one_request(
    density: int, tmp_path: Path
) -> None:
    billed: list[int] = []

    def answer(path: str, body: dict[str, Any]) -> Refusal:
        billed.append(sum(map(len, body["input"])) // density)
        return 200, {**embeddings(body), "usage": {"prompt_tokens": billed[-1]}}

    with serving(answer) as wire, open_ledger():
        embedder = embedder_at(wire, tmp_path)
        with spending(Limits(tokens=1000)) as spent, suppress(LimitReachedError):
            for number in range(40):
                embedder.embed([f"{number} " + "word " * 40])
    assert sum(billed) <= 1000
    assert spent.stopped_by == "--max-total-tokens 1000"
