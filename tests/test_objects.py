"""Objects that are handed over in Python run as they are; what is none is refused in one line."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner

import ragbench as rb
from ragbench.cli.main import cli
from ragbench.errors import ConfigError, LMSetupError
from ragbench.lms import make_lm
from ragbench.retrievers import Corpus, Passage
from tests.fake_server import FakeServer
from tests.retrievers.wire import serving


class Counting(dspy.LM):
    """An LM of somebody's own."""

    asked = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        type(self).asked += 1
        return super().__call__(*args, **kwargs)


def test_an_lm_of_ones_own_is_called_with_its_key_address_and_sampling(server: FakeServer) -> None:
    lm = Counting("openai/m", api_base=server.url, api_key="sk-of-mine", temperature=0.25, seed=9)
    run = rb.evaluate("vanilla", lm=lm, limit=2, size=100, cache=False)
    assert [record.answer for record in run.records] == ["some answer"] * 2
    assert Counting.asked == len(server.hits) == 2
    assert {(hit.key, hit.body["temperature"]) for hit in server.hits} == {("sk-of-mine", 0.25)}
    assert run.records[0].ledger.as_if.tokens > 0
    written = b"".join(path.read_bytes() for path in run.folder.iterdir() if path.is_file())
    assert b"sk-of-mine" not in written
    with pytest.raises(LMSetupError, match="cannot be carried to another process"):
        make_lm("object:openai/m#00000000")


class Echo(dspy.Module):
    """A module that asks no LM."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


@pytest.mark.parametrize("module", [Echo, Echo()], ids=["class", "instance"])
def test_a_module_is_taken_as_a_class_or_an_instance(module: Any, server: FakeServer) -> None:
    data = [dspy.Example(question="who?", answer="who?").with_inputs("question")]
    run = rb.evaluate(module, data=data, lm="openai/m", api_base=server.url)
    assert [record.answer for record in run.records] == ["who?"]


class Found:
    """A retriever of somebody's own, over texts."""

    def __init__(self, passages: list[str], least: int = 1) -> None:
        self.passages, self.least = passages, least

    def forward(self, query: str, k: int = 3) -> dspy.Prediction:
        return dspy.Prediction(passages=self.passages[: max(k, self.least)])


OWN = """
class First:
    def __init__(self, corpus, at=0):
        self.corpus, self.at = corpus, at

    def search(self, query, k):
        return [{"id": p.pid, "text": p.text, "score": 1.0} for p in self.corpus[self.at:][:k]]
"""


def run_of(server: FakeServer, retriever: Any, **options: Any) -> list[list[str]]:
    """The pids of each search."""
    given = {"lm": "hosted_vllm/fake", "api_base": server.url, "limit": 2, "size": 100}
    run = rb.evaluate("vanilla", retriever=retriever, k=2, **given, **options)
    assert not any(record.failed for record in run.records)
    return [[pid for pid, _ in search.hits] for r in run.records for search in r.searches]


def test_a_retriever_object_is_the_one_that_is_asked(server: FakeServer) -> None:
    known = rb.load_dataset("synthetic", size=100).corpus[7]
    mine = rb.make_retriever("bm25", Corpus([Passage("mine", "Mine", "A text."), known]))
    assert {pid for pids in run_of(server, mine) for pid in pids} <= {"mine", known.pid}
    mine.search_many = lambda queries, k: [[known.scored(float("nan"))] for _ in queries]
    assert run_of(server, mine) == [[known.pid]] * 2  # and the record can be read
    # What is callable like DSPy's searches.
    assert run_of(server, Found([str(known), "a text of its own"])) == [[known.pid, "own-1"]] * 2


def test_a_class_in_a_file_is_a_retriever_and_an_edit_another_run(server: FakeServer) -> None:
    corpus = rb.load_dataset("synthetic", size=100).corpus
    Path("own_retriever.py").write_text(OWN)
    pooled = {"setting": "pooled"}
    assert run_of(server, "own_retriever.py:First", **pooled) == [[p.pid for p in corpus[:2]]] * 2
    init = {"retriever_set": {"init": '{"at": 4}'}}
    assert (
        run_of(server, "own_retriever.py:First", **pooled, **init)
        == [[p.pid for p in corpus[4:6]]] * 2
    )
    Path("own_retriever.py").write_text(OWN.replace("at=0", "at=1"))
    assert run_of(server, "own_retriever.py:First", **pooled) == [[p.pid for p in corpus[1:3]]] * 2


def test_any_server_that_answers_with_json_is_a_retriever() -> None:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        hits = [{"doc": {"body": f"{body['q']} {i}", "name": f"N{i}"}} for i in range(9)]
        return 200, {"result": {"docs": hits[: body["n"]]}}

    with serving(answer) as wire:
        found = rb.make_retriever(
            "http", Corpus(()), url=f"{wire.address}/find", query="q",
            k="n", hits="result.docs", text="doc.body", title="doc.name", id="", score="",
        ).search("rivers", k=2)  # fmt: skip
    assert [(p.title, p.text) for p in found] == [("N0", "rivers 0"), ("N1", "rivers 1")]


def test_a_function_in_a_file_is_a_metric_of_every_command(server: FakeServer) -> None:
    Path("own_metric.py").write_text(
        "def wordy(example, prediction, trace=None):\n"
        "    assert example.answers[0] == example.answer\n"
        "    return len((prediction.answer or '').split()) / 4\n"
    )
    for name in ("vanilla", "direct"):
        given = {"lm": "hosted_vllm/fake", "api_base": server.url, "limit": 2, "size": 100}
        rb.evaluate(name, out=name, **given)
    spec = "own_metric.py:wordy"
    for words in (["score", "vanilla", "--metric", spec],
                  ["compare", "vanilla", "direct", "--metric", spec],
                  ["report", "vanilla", "direct", f"--metric={spec}", "-o", "page.html"],
                  ["errors", "vanilla", "--metric", spec]):  # fmt: skip
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
    assert rb.open_run("vanilla").mean(spec) == 0.5


GOOD = dspy.Example(question="Who?", answer="Bo")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": ["Who?"]}, "data has 'Who\\?'; give each question as a dspy.Example"),
    ({"data": [dspy.Example(question=5, answer="a")]}, "is 5, which is no text"),
    ({"data": [GOOD, dspy.Example(question="Who?", answer="Al")]}, "two examples have the qid"),
    ({"data": [GOOD], "corpus": "one text"}, "corpus is one str; give a list"),
    ({"data": [GOOD], "corpus": ["text", None]}, "corpus has None; give each"),
    ({"data": [GOOD], "lm": 5}, "lm=5 is neither a spec such as"),
    ({"data": [GOOD], "retriever": 5}, "retriever=5 is no retriever"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_what_cannot_be_asked_is_refused_in_one_line(
    given: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told) as caught:
        rb.evaluate("direct", **{"lm": "openai/x", "api_base": "http://127.0.0.1:9", **given})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
