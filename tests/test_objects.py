"""Objects that are handed over in Python run as they are."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner

import ragbench as rb
from ragbench.cli.main import cli
from ragbench.errors import ConfigError, LMSetupError
from ragbench.lms import make_lm
from ragbench.programs import PROGRAMS
from ragbench.programs.external import keep_module
from ragbench.retrievers import Corpus, Passage
from tests.fake_server import FakeServer


class Counting(dspy.LM):
    """An LM of somebody's own."""

    asked = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        type(self).asked += 1
        return super().__call__(*args, **kwargs)


def test_an_lm_keeps_its_key_its_address_and_its_sampling(server: FakeServer) -> None:
    lm = dspy.LM("openai/m", api_base=server.url, api_key="sk-of-mine", temperature=0.25, seed=9)
    run = rb.evaluate("vanilla", lm=lm, limit=2, size=100, cache=False)
    assert [record.answer for record in run.records] == ["some answer"] * 2
    assert {hit.key for hit in server.hits} == {"sk-of-mine"}
    assert {hit.body["temperature"] for hit in server.hits} == {0.25}
    assert run.records[0].ledger.as_if.tokens > 0
    written = b"".join(path.read_bytes() for path in run.folder.iterdir() if path.is_file())
    assert b"sk-of-mine" not in written


def test_a_subclass_of_an_lm_is_called(server: FakeServer) -> None:
    lm = Counting("openai/m", api_base=server.url, api_key="k")
    rb.evaluate("vanilla", lm=lm, limit=2, size=100, cache=False)
    assert Counting.asked == len(server.hits) == 2


class Echo(dspy.Module):
    """A module that asks no LM."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


@pytest.mark.parametrize("module", [Echo, Echo()], ids=["class", "instance"])
def test_a_module_is_taken_as_a_class_or_an_instance(module: Any, server: FakeServer) -> None:
    data = [dspy.Example(question="who?", answer="who?").with_inputs("question")]
    run = rb.evaluate(module, data=data, lm="openai/m", api_base=server.url)
    assert [record.answer for record in run.records] == ["who?"]


def test_a_class_of_ragbench_is_its_program_and_another_is_refused() -> None:
    assert keep_module(PROGRAMS.get("ircot")) == "ircot"
    with pytest.raises(ConfigError, match="neither a name nor a DSPy module"):
        keep_module(Counting)  # type: ignore[arg-type]


def test_an_object_is_not_known_to_another_process() -> None:
    with pytest.raises(LMSetupError, match="cannot be carried to another process"):
        make_lm("object:openai/m#00000000")


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
    passages = [Passage(f"mine-{i}", f"Mine {i}", f"Text {i} of mine.") for i in range(5)]
    mine = rb.make_retriever("bm25", Corpus(passages))
    found = run_of(server, mine)
    assert all(pid.startswith("mine-") for pids in found for pid in pids)


def test_what_is_callable_like_dspys_searches(server: FakeServer) -> None:
    dataset = rb.load_dataset("synthetic", size=100)
    known = dataset.corpus[7]
    found = run_of(server, Found([str(known), "a text of its own"]))
    assert found == [[known.pid, "own-1"]] * 2
    mine = rb.make_retriever("bm25", Corpus([known]))
    mine.search_many = lambda queries, k: [[known.scored(float("nan"))] for _ in queries]
    assert run_of(server, mine) == [[known.pid]] * 2  # and the record can be read
    with pytest.raises(ConfigError, match="retriever=5 is no retriever"):
        run_of(server, 5)


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


class _Search(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        hits = [{"doc": {"body": f"{asked['q']} {i}", "name": f"N{i}"}} for i in range(9)]
        body = json.dumps({"result": {"docs": hits[: asked["n"]]}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_any_server_that_answers_with_json_is_a_retriever() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Search)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        found = rb.make_retriever(
            "http", Corpus(()), url=f"http://127.0.0.1:{server.server_port}/find", query="q",
            k="n", hits="result.docs", text="doc.body", title="doc.name", id="", score="",
        ).search("rivers", k=2)  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
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
