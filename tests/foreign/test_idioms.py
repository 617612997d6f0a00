"""A module runs as its author runs it: in plain DSPy, in Python, by command and when compiled.

The modules of `idioms` ask a server that answers by one script. What was sent, what came out, the
scores, errors, usage and callbacks are equal to those of `dspy.Evaluate`, or the row says what is
not, and why.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dspy
import pytest
from click.testing import CliRunner
from dspy.utils.callback import BaseCallback

import ragbench as rb
from ragbench.cli.main import cli
from tests.fake_server import FakeServer, Hit, plausible
from tests.foreign import idioms

FILE = Path(idioms.__file__)
ROWS = [
    {"question": "Which river is long?", "answer": "some answer", "place": "Turin"},
    {"question": "Which lake is deep?", "answer": "B", "place": "Como"},
]
#: What is answered where "some FIELD" means nothing.
REPLIES = {
    "some next_tool_args": '{"name": "Rhine"}',
    "some tool_calls": '{"tool_calls": [{"name": "submit", "args": {"answer": "some answer"}}]}',
    "some finished": "True",
    "some generated_code": "```python\nanswer = 1\n```",
}


def reply(hit: Hit) -> str:
    """A good answer; an agent looks up one thing and ends."""
    text = plausible(hit)
    if "unreadable" in hit.prompt:
        return "nothing of the kind"
    tool = "finish" if "observation_0" in hit.prompt else "lookup"
    for made_up, value in {**REPLIES, "some next_tool_name": tool}.items():
        text = text.replace(made_up, value)
    return text


IDIOMS = [
    "Asking", "ChainOfThought", "BestOfN", "ReAct", "ReActV2", "RLM", "Ensemble", "Loaded",
    "MultiChainComparison", "Parallel", "Thread", "Loop", "Synced", "Stream", "WithContext",
    "SetLM", "Direct", "History", "Conversation", "Trace", "Usage", "KNN", "Reading", "Several",
    "XML", "TwoStep", "OwnAdapter", "Garbled", "Raising", "Fields",
]  # fmt: skip
#: Idioms whose callbacks of threads arrive in any order.
UNORDERED = ("Parallel", "Loop")
#: Those whose run by command and whose compile is compared too: of each kind one.
ALSO_BY_COMMAND = ("Asking", "ReAct", "RLM", "Stream", "SetLM", "Reading", "Several", "XML")
ALSO_COMPILED = ("Asking", "MultiChainComparison", "Synced", "KNN", "XML")


class Events(BaseCallback):  # type: ignore[misc]
    """What callbacks are told, but for the evaluation itself."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []


def _noting(name: str) -> Any:
    def note(events: Events, **told: Any) -> None:
        subject = told.get("instance") or told.get("exception") or told.get("outputs")
        kind = type(subject).__name__.replace("RagbenchLM", "LM")
        if "evaluate" not in name:
            events.told.append((name, kind))

    return note


for _name in dir(BaseCallback):
    if _name.startswith("on_"):
        setattr(Events, _name, _noting(_name))


def sent(server: FakeServer, *, exact: bool = True) -> list[str]:
    """Every request, in an order that threads do not change; `exact` with its settings."""
    found = []
    for hit in server.hits:
        body = {k: v for k, v in hit.body.items() if k not in ("stream", "stream_options")}
        if not exact:
            body = {k: body.get(k) for k in ("messages", "model", "tools", "response_format")}
        # DSPy calls modules in another way while there is a callback.
        text = json.dumps(body, sort_keys=True)
        found.append(re.sub(r"File [^ ]*callback\.py.*?(?=File )", "", text))
    return sorted(found)


def exact(example: dspy.Example, prediction: Any, trace: Any = None) -> float:
    answer = getattr(prediction, "answer", None) or prediction
    return float((answer["answer"] if isinstance(answer, dict) else answer) == example.answer)


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[FakeServer, FakeServer]]:
    """Two servers: what one is asked in plain DSPy is what the other is to be asked."""
    with FakeServer(reply) as plain, FakeServer(reply) as own:
        yield plain, own


@pytest.fixture
def both(
    servers: tuple[FakeServer, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> tuple[FakeServer, FakeServer]:
    """The servers, of which nothing was asked."""
    for server in servers:
        server.hits.clear()
    return servers


def model(server: FakeServer, **settings: Any) -> dspy.LM:
    return dspy.LM("openai/m", api_base=server.url, api_key="k", cache=False, **settings)


def devset() -> list[dspy.Example]:
    return [dspy.Example(**row).with_inputs("question", "place") for row in ROWS]


def settings_of(name: str) -> dict[str, Any]:
    return {"rm": idioms.Shelf()} if name == "Reading" else {}


class Plain:
    """What plain DSPy makes of an idiom."""

    def __init__(
        self, name: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, *callbacks: Events
    ) -> None:
        monkeypatch.setenv("IDIOM_SERVER", server.url)
        lm = model(server, callbacks=[*callbacks[1:]])
        rows = devset()
        if name != "Several":
            rows = [row.with_inputs("question") for row in rows]
        settings = settings_of(name)
        with ExitStack() as stack:
            stack.enter_context(dspy.context(lm=lm, callbacks=[*callbacks[:1]], **settings))
            usage = stack.enter_context(dspy.track_usage())
            evaluate = dspy.Evaluate(devset=rows, metric=exact, num_threads=1)
            self.results = evaluate(getattr(idioms, name)()).results
        self.usage = usage.get_total_tokens()
        self.history = [entry["model"] for entry in lm.history]


@pytest.mark.parametrize("name", IDIOMS)
def test_it_asks_and_answers_as_in_plain_dspy(
    name: str, both: tuple[FakeServer, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, own = both
    callback, of_lm, in_plain, of_plain = (Events() for _ in range(4))
    plain = Plain(name, server, monkeypatch, in_plain, of_plain)
    monkeypatch.setenv("IDIOM_SERVER", own.url)
    lm = model(own, callbacks=[of_lm])
    with dspy.context(callbacks=[callback], **settings_of(name)), dspy.track_usage() as usage:
        run = rb.evaluate(getattr(idioms, name)(), devset(), lm=lm, cache=False, workers=1)
    assert sent(own) == sent(server)
    assert usage.get_total_tokens() == plain.usage
    assert [entry["model"] for entry in lm.history] == plain.history
    for here, there in ((callback, in_plain), (of_lm, of_plain)):
        if name in UNORDERED:
            here.told.sort()
            there.told.sort()
        assert here.told == there.told
    total = 0.0
    for record, (example, prediction, score) in zip(run.records, plain.results, strict=True):
        total += score
        assert record.question == example.question
        assert record.failed == (name in ("Garbled", "Raising"))
        if record.failed:
            continue
        fields = dict(prediction.items())
        assert record.answer == fields.pop("answer")
        fields.pop("reasoning", None)
        if name not in ("RLM", "ReActV2"):  # whose outputs hold objects
            assert record.extra.get("outputs", {}) == json.loads(json.dumps(fields, default=str))
    assert (run.mean(exact) or 0.0) * 2 == total
    calls = [call for record in run.records for call in record.ledger.calls]
    assert len(calls) == len(own.hits)
    assert all(call.prompt_tokens > 0 for call in calls)


#: Settings of an LM that is handed over.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"reasoning_effort": "low", "frequency_penalty": 0.5, "logit_bias": {"5": 1}, "user": "me"},
    {"temperature": 0.3, "top_p": 0.9, "max_tokens": 77, "seed": 4, "stop": ["x"]},
    {"n": 2, "temperature": 0.8, "logprobs": True, "metadata": {"a": "b"}},
    {"max_completion_tokens": 88, "service_tier": "flex", "parallel_tool_calls": False},
    {"extra_body": {"z": 1}, "min_p": 0.1, "extra_headers": {"x-a": "b"}},
)


class Own(dspy.LM):  # type: ignore[misc]
    """An LM of one's own, with an attribute that modules read and a call of its own."""

    tenant = "acme"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **{**kwargs, "user": self.tenant})


@pytest.mark.parametrize("settings", [*SETTINGS, {"own": True}], ids=str)
def test_an_lm_that_is_handed_over_is_called_with_all_its_settings(
    settings: dict[str, Any], both: tuple[FakeServer, FakeServer]
) -> None:
    server, own = both
    lms = []
    for place in both:
        options = {"api_base": place.url, "api_key": "k", "cache": False}
        if "own" in settings:
            lms.append(Own("openai/m", **options))
        else:
            lms.append(dspy.LM("openai/m", **options, **settings))
    with dspy.context(lm=lms[0]):
        for row in devset():
            idioms.Direct()(question=row.question)
            idioms.Asking()(question=row.question)
    for module in (idioms.Direct(), idioms.Asking()):
        rb.evaluate(module, devset(), lm=lms[1], cache=False, workers=1)
    assert sent(own) == sent(server)


@pytest.mark.parametrize("name", ALSO_BY_COMMAND)
def test_it_does_so_by_command(
    name: str, both: tuple[FakeServer, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, own = both
    plain = Plain(name, server, monkeypatch)
    monkeypatch.setenv("IDIOM_SERVER", own.url)
    rows = [json.dumps({"id": str(number), **row}) for number, row in enumerate(ROWS)]
    Path("rows.jsonl").write_text("\n".join(rows))
    words = ["eval", "--program", f"{FILE}:{name}", "--data-file", "rows.jsonl", "--out", "run"]
    if name == "Reading":
        words += ["--retriever", f"{FILE}:Shelf"]
    done = CliRunner().invoke(cli, [*words, "--lm", f"openai/m@{own.url}", "--no-cache"])
    assert done.exit_code == 0, (done.output, done.exception)
    run = rb.open_run("run")
    assert sent(own, exact=False) == sent(server, exact=False)
    answers = {record.question: record.answer for record in run.records}
    assert answers == {example.question: p.answer for example, p, _ in plain.results}


@pytest.mark.parametrize("name", ALSO_COMPILED)
def test_it_learns_the_same_demonstrations(
    name: str, both: tuple[FakeServer, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, own = both

    def optimizer() -> dspy.BootstrapFewShot:
        return dspy.BootstrapFewShot(metric=exact, max_bootstrapped_demos=1, max_labeled_demos=0)

    trainset = [row.with_inputs("question") for row in devset()]
    monkeypatch.setenv("IDIOM_SERVER", server.url)
    with dspy.context(lm=model(server)):
        compiled = optimizer().compile(getattr(idioms, name)(), trainset=trainset)
    monkeypatch.setenv("IDIOM_SERVER", own.url)
    valset = [dspy.Example(question="Which sea is salty?", answer="some answer")]
    module = getattr(idioms, name)()
    folder = rb.compile(
        module, trainset=trainset, valset=valset, optimizer=optimizer(), lm=model(own), cache=False
    )
    taken = rb.load_program(folder, program=module, retriever=lambda query: [])
    found = [demos_of(predictor) for predictor in taken.predictors()]
    assert found == [demos_of(predictor) for predictor in compiled.predictors()]
    assert set(sent(server)) <= set(sent(own))


def demos_of(predictor: Any) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in dict(demo).items() if name in predictor.signature.fields}
        for demo in predictor.demos
    ]
