"""What the user hands over or names is what runs, or is refused; nothing else does."""

import json
import sys
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from click.testing import CliRunner

import ragbench as rb
from ragbench import user_code
from ragbench.cli.main import COMMANDS, cli
from ragbench.errors import ConfigError, NoAnswerError, RagbenchError
from ragbench.lms.factory import make_lm
from ragbench.programs import PROGRAMS
from ragbench.retrievers import Corpus, Passage, make_retriever
from tests.fake_server import FakeServer
from tests.retrievers.wire import serving

ASKED = [dspy.Example(question=f"Which river {n}?", answer="Po") for n in range(3)]


def evaluated(program: Any, server: FakeServer, **options: Any) -> rb.Run:
    """A run over two synthetic questions, of which none failed."""
    given = {"lm": "hosted_vllm/fake", "api_base": server.url, "limit": 2, "size": 100, **options}
    run = rb.evaluate(program, **given)
    assert not any(record.failed for record in run.records)
    return run


class Echo(dspy.Module):
    """A module that asks no LM."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


class Found:
    """A retriever of somebody's own, over texts."""

    def __init__(self, passages: list[str]) -> None:
        self.passages = passages

    def forward(self, query: str, k: int = 3) -> dspy.Prediction:
        return dspy.Prediction(passages=self.passages[:k])


OWN = """
class First:
    def __init__(self, corpus, at=0):
        self.corpus, self.at = corpus, at

    def search(self, query, k):
        return [{"id": p.pid, "text": p.text, "score": 1.0} for p in self.corpus[self.at:][:k]]
"""


def found(server: FakeServer, retriever: Any, **options: Any) -> list[list[str]]:
    """The pids of each search."""
    run = evaluated("vanilla", server, retriever=retriever, k=2, **options)
    return [[pid for pid, _ in search.hits] for r in run.records for search in r.searches]


def test_a_retriever_object_is_the_one_that_is_asked(server: FakeServer) -> None:
    known = rb.load_dataset("synthetic", size=100).corpus[7]
    mine = rb.make_retriever("bm25", Corpus([Passage("mine", "Mine", "A text."), known]))
    assert {pid for pids in found(server, mine) for pid in pids} <= {"mine", known.pid}
    mine.search_many = lambda queries, k: [[known.scored(float("nan"))] for _ in queries]
    assert found(server, mine) == [[known.pid]] * 2  # and the record can be read
    # What is callable like DSPy's searches.
    pids = [known.pid, "own-dd5145cbbc63"]
    assert found(server, Found([str(known), "a text of its own"])) == [pids] * 2


def test_a_class_in_a_file_is_a_retriever_and_an_edit_another_run(server: FakeServer) -> None:
    corpus = rb.load_dataset("synthetic", size=100).corpus
    for text, init, at in (
        (OWN, "{}", 0),
        (OWN, '{"at": 4}', 4),
        (OWN.replace("=0", "=1"), "{}", 1),
    ):
        Path("own_retriever.py").write_text(text)
        given = {"setting": "pooled", "retriever_set": {"init": init}}
        hits = [passage.pid for passage in corpus[at : at + 2]]
        assert found(server, "own_retriever.py:First", **given) == [hits] * 2


def test_any_server_that_answers_with_json_is_a_retriever() -> None:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        hits = [{"doc": {"body": f"{body['q']} {i}", "name": f"N{i}"}} for i in range(9)]
        return 200, {"result": {"docs": hits[: body["n"]]}}

    with serving(answer) as wire:
        passages = rb.make_retriever(
            "http", Corpus(()), url=f"{wire.address}/find", query="q",
            k="n", hits="result.docs", text="doc.body", title="doc.name", id="", score="",
        ).search("rivers", k=2)  # fmt: skip
    assert [(p.title, p.text) for p in passages] == [("N0", "rivers 0"), ("N1", "rivers 1")]


def test_a_function_in_a_file_is_a_metric_of_every_command(server: FakeServer) -> None:
    Path("own_metric.py").write_text(
        "def wordy(example, prediction, trace=None):\n"
        "    assert example.answers[0] == example.answer\n"
        "    return len((prediction.answer or '').split()) / 4\n"
    )
    for name in ("vanilla", "direct"):
        evaluated(name, server, out=name)
    spec = "own_metric.py:wordy"
    for words in (["score", "vanilla"], ["compare", "vanilla", "direct"], ["errors", "vanilla"],
                  ["report", "vanilla", "direct", "-o", "page.html"]):  # fmt: skip
        result = CliRunner().invoke(cli, [*words, "--metric", spec])
        assert result.exit_code == 0, (words, result.output, result.exception)
    assert rb.open_run("vanilla").mean(spec) == 0.5


GOOD = dspy.Example(question="Who?", answer="Bo")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": ["Who?"]}, "data has 'Who\\?'; give each question as a dspy.Example"),
    ({"data": [dspy.Example(question=5, answer="a")]}, "'question': .* not a number"),
    ({"data": [GOOD, dspy.Example(question="Who?", answer="Al")]}, "two examples have the qid"),
    ({"data": [GOOD], "corpus": "one text"}, "corpus is one str; give a list"),
    ({"data": [GOOD], "corpus": ["text", None]}, "corpus has None; give each"),
    ({"data": [GOOD], "corpus": ["a\x00"]}, "corpus has 'a.x00', which holds a NUL"),
    ({"data": [GOOD], "lm": 5}, "lm=5 is neither a spec such as"),
    ({"data": [GOOD], "retriever": 5}, "retriever=5 is not a retriever"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_what_cannot_be_asked_is_refused_in_one_line(
    given: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RagbenchError, match=told) as caught:
        rb.evaluate("direct", **{"lm": "openai/x", "api_base": "http://127.0.0.1:9", **given})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


class Searching(dspy.Module):
    """A module whose constructor takes a retriever and the passages that it searches for."""

    def __init__(self, retriever: Any, k: int = 2) -> None:
        super().__init__()
        self.retriever, self.k = retriever, k

    def forward(self, question: str) -> dspy.Prediction:
        found = self.retriever.search(question, k=self.k)
        return dspy.Prediction(answer=str(len(found)))


AN_LM = dspy.LM("openai/mine", api_key="none", temperature=0.5)
OF_RAGBENCH = make_lm("openai/mine", api_base="http://127.0.0.1:9")
#: Program, options, and what is said.
UNREAD: list[tuple[Any, dict[str, Any], str]] = [
    (Echo, {"k": 3}, "read k=3: the module itself .* takes k or retriever.*It reads:"),
    (Echo, {"set": {"answer_style": "long"}}, "read answer_style='long': the module's own code"),
    (Echo, {"set": {"max_calls": 3}}, "read max_calls=3: .* reads: variant, max_retrievals, init"),
    (Echo(), {"set": {"init": {"times": 2}}}, "read init=.*already constructed, so pass its class"),
    (Searching, {"k": 3, "set": {"init": {"k": 4}}}, "k is given twice, as k=3 and as init k=4"),
    ("vanilla", {"retriever": Found([]), "retriever_set": {"init": {}}}, "reads init; leave it"),
    ("vanilla", {"retriever": Found([]), "retriever_set": {"k1": 1}}, "reads k1; leave it out"),
    ("vanilla", {"lm": AN_LM, "temperature": 0.9}, "reads temperature=0.9: lm is the object"),
    ("vanilla", {"lm": AN_LM, "reply_tokens": 9}, "reads reply_tokens=9: .* takes: cache, price"),
    ("vanilla", {"lm": AN_LM, "lm_for": {"x": "openai/x"}, "rpm": 9}, "reads rpm=9: lm is the"),
    ("vanilla", {"lm": OF_RAGBENCH, "cache": False}, "reads cache=False: .* takes: none"),
    ("vanilla", {"lm": "openai/o3", "temperature": 0.7}, "=0.7 has no effect: .*not accept it"),
    ("vanilla", {"lm": "local", "header": {"x": "1"}}, "accepts no header; leave out x"),
    ("vanilla", {"encoding": "latin-1"}, "encoding='latin-1' has no effect on the data synthetic"),
    ("vanilla", {"passage_tokens": 90}, "passage_tokens=90 has no effect"),
    ("vanilla", {"data": [ASKED[0]]}, "reads size=100: the data are"),
    ("direct", {"k": 3}, "read k=3: it does not search, so remove k or use vanilla"),
]


@pytest.mark.parametrize(("program", "options", "message"), UNREAD)
def test_a_setting_that_nothing_reads_is_refused_in_one_line(
    program: Any,
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with pytest.raises(RagbenchError, match=message) as caught:
        rb.evaluate(program, **{"lm": "openai/x", "limit": 1, "size": 100, "out": "run", **options})
    assert "\n" not in str(caught.value)
    assert not Path("run").exists()


def test_k_is_that_of_a_constructor_that_takes_it(server: FakeServer) -> None:
    for options, found in (({}, "2"), ({"k": 3}, "3"), ({"set": {"init": {"k": 4}}}, "4")):
        run = evaluated(Searching, server, **options)
        assert {record.answer for record in run.records} == {found}


MODULE = """
import dspy

class Own(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer="ANSWER")
"""


@pytest.mark.parametrize("spec", ["own.py:Own", "own:Own"])
def test_an_edited_module_or_file_that_it_imports_is_another_program(
    server: FakeServer, spec: str
) -> None:
    text = "from helper_of_own import ANSWER\n" + MODULE.replace('"ANSWER"', "ANSWER")
    for own, helper, limit in (
        (MODULE.replace("ANSWER", "old"), "old", 2), (text, "newer", 2), (text, "other", 3)
    ):  # fmt: skip
        Path("own.py").write_text(own)
        Path("helper_of_own.py").write_text(f"ANSWER = {helper!r}")
        run = evaluated(spec, server, limit=limit)
        assert [record.answer for record in run.records] == [helper] * limit
    for name in ("own", "helper_of_own"):
        sys.modules.pop(name, None)


#: Commands that are given run folders, and those that are not.
READERS = {
    "choose", "compare", "errors", "export", "list", "recommend", "report", "score", "show",
    "verify",
}  # fmt: skip
OTHERS = {
    "ask", "compile", "eval", "fetch", "import", "questions", "retrieve", "sweep", "tune",
    "verdict",
}  # fmt: skip


def test_no_command_over_folders_runs_the_code_that_they_name(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(COMMANDS) <= READERS | OTHERS, "say whether the new command is given run folders"
    Path("own.py").write_text(MODULE)
    evaluated("own.py:Own", server, out="run")
    # A compiled program's folder, as it would arrive from a stranger.
    vanilla = Path(__file__).parent / "goldens/compiled/vanilla"
    Path("compiled").mkdir()
    Path("compiled/program.json").write_text((vanilla / "program.json").read_text())
    sidecar = {**json.loads((vanilla / "sidecar.json").read_text()), "program": "own.py:Own"}
    Path("compiled/sidecar.json").write_text(json.dumps(sidecar))
    marker = Path("was_imported")
    Path("own.py").write_text(f"open({str(marker)!r}, 'w').close()\n{MODULE}")
    monkeypatch.setattr(user_code, "_allowed", set())
    for name in sorted(READERS & set(COMMANDS)):
        for folders in (["run"], ["run", "run"], ["compiled"], ["."]):
            needed = {"list": ["compiled", *folders], "report": [*folders, "-o", "p.html"]}
            needed["export"] = [*folders, "--to", "bundle", "-o", "p.zip"]
            needed["choose"] = [f"--replay={folder}" for folder in folders]
            given = needed.get(name, folders)
            result = CliRunner().invoke(cli, [name, *given])
            assert not marker.exists(), (name, given)
            assert not isinstance(result.exception, AttributeError), (name, given)
    for more in ([], ["--limit", "1", "--lm", "hosted_vllm/fake"]):
        result = CliRunner().invoke(cli, ["eval", "--compiled", "compiled", *more])
        assert "give --program own.py:Own if you trust it" in str(result.exception)
    with pytest.raises(ConfigError, match="was not loaded"):
        PROGRAMS.get("own.py:Own")
    assert not marker.exists()


def test_a_server_that_searches_is_one_for_all_questions_with_their_own_passages() -> None:
    corpus = Corpus(
        tuple(Passage(f"p{n}", "", f"Text {n}.") for n in range(2)),
        contexts={"Who?": (0,), "Where?": (1,)},
    )
    made = rb.make_retriever("http", corpus, url="http://127.0.0.1:9/find")
    whole = make_retriever("http", corpus, setting="distractor", url="http://127.0.0.1:9/find")
    whole.whole.server.begin(timeout=0.25)
    for question in corpus.contexts:
        small = whole.for_question(question)
        assert small.server is whole.whole.server  # with its time limit
        assert small.server is not made.server


def unasked() -> dspy.LM:
    """An LM for modules that ask none."""
    return dspy.LM("openai/m", api_key="none")


class Returns(dspy.Module):
    """Return what it was made with."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, question: str) -> Any:
        return self.output


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (True, "yes"),
        (dspy.Prediction(answer=False), "no"),
        (dspy.Prediction(answer=["Po", "Rhone"]), "Po, Rhone"),
        ({"answer": 4.0}, "4"),
        (np.float64(2.5), "2.5"),
    ],
)
def test_an_answer_of_another_type_is_read_as_gold_answers_are(output: Any, answer: str) -> None:
    run = rb.evaluate(Returns(output), ASKED, lm=unasked())
    assert {record.answer for record in run.records} == {answer}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (dspy.Prediction(response="Po", note="x"), "returns response, note and no `answer`"),
        (dspy.Prediction(answer=object()), "an answer of the type object"),
        ({"answer": [{"a": 1}]}, "an answer of the type dict"),
        (b"Po", "an answer of the type bytes"),
    ],
)
def test_what_can_be_no_answer_ends_the_command_at_the_first_question(
    output: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(NoAnswerError) as caught:
        rb.evaluate(Returns(output), ASKED, lm=unasked(), workers=1, out=tmp_path / "run")
    assert message in str(caught.value)
    assert "dspy.Prediction(answer=" in str(caught.value)
    assert not rb.open_run(tmp_path / "run").records


def test_a_question_without_an_answer_is_a_failure_of_it_alone() -> None:
    run = rb.evaluate(Returns(None), ASKED, lm=unasked())
    assert run.failed == len(ASKED)


@pytest.mark.parametrize(
    ("option", "near"),
    [("max_cots", "max_cost"), ("retreiver", "retriever"), ("worker", "workers")],
)
def test_an_option_that_is_not_known_is_refused_with_the_near_name(option: str, near: str) -> None:
    calls: list[Any] = [rb.evaluate, rb.compile, rb.verdict]
    for call in calls:
        with pytest.raises(RagbenchError, match=f"did you mean {near}"):
            call("vanilla", lm=unasked(), **{option: 1})


def test_gold_may_stand_in_another_field() -> None:
    rows = [{"query": f"Which {n}?", "target": {"text": "Po"}} for n in range(2)]
    fields = {"question": "query", "answer": "target.text"}
    run = rb.evaluate(Returns("Po"), rows, lm=unasked(), field=fields)
    assert run.scores["em"] == 1
    examples = [dspy.Example(question="Which?", gold="Po").with_inputs("question")]
    assert rb.evaluate(Returns("Po"), examples, lm=unasked(), field="gold").scores["em"] == 1
    with pytest.raises(RagbenchError, match="there are question, gold: give field answer=NAME"):
        rb.evaluate(Returns("Po"), examples, lm=unasked())
    with pytest.raises(RagbenchError, match="'answer': is missing"):
        rb.evaluate(Returns("Po"), examples, lm=unasked(), field="golden")


def length(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
    """The share of ten characters that an answer takes."""
    return min(len(prediction.answer), 10) / 10


def test_runs_are_compared_by_metrics_of_ones_own() -> None:
    short, long = (rb.evaluate(Returns(text), ASKED, lm=unasked()) for text in ("Po", "Rhone"))
    found = rb.compare(short, long, metrics=["f1", length])
    [score] = [value for name, value in found.scores.items() if "length" in name]
    assert score.difference == pytest.approx(0.3)
    with pytest.raises(ConfigError, match="give a list"):
        rb.compare(short, long, metrics="f1")


def test_a_retriever_is_made_over_passages_a_folder_or_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "po.txt").write_text("Turin lies on the Po.")
    for options in (
        {"passages": ["Turin lies on the Po.", "Lyon lies on the Rhone."]},
        {"data": tmp_path / "notes"},
        {"data": rb.make_retriever("bm25", passages=["Turin lies on the Po."]).corpus},
    ):
        [hit] = rb.make_retriever("bm25", **options).search("Turin?", k=1)
        assert hit.text == "Turin lies on the Po."
    with pytest.raises(ConfigError, match="needs one of passages"):
        rb.make_retriever("bm25")
    with pytest.raises(ConfigError, match="no folder absent"):
        rb.make_retriever("bm25", "absent")
