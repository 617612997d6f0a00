"""Nothing is patched for the process: LMs of a module are replaced, others seen by a callback."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest
import yaml
from dspy.clients import execution

import ragbench as rb
from ragbench.errors import ConfigError
from tests.fake_server import FakeServer

ROWS = [dspy.Example(question=f"Which river {n}?", answer="Po") for n in range(6)]
SOURCE = """
import dspy


class Within(dspy.Module):
    def __init__(self, url):
        super().__init__()
        self.url = url
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        own = dspy.LM("openai/big", api_base=self.url, api_key="none", cache=False)
        with dspy.context(lm=own):
            return self.answer(question=question)
"""


def own_lm(server: FakeServer) -> dspy.LM:
    return dspy.LM("openai/big", api_base=server.url, api_key="none", cache=False)


class Holding(dspy.Module):
    """A module that holds an LM in one of several ways."""

    def __init__(self, lm: dspy.LM, way: str) -> None:
        super().__init__()
        self.way = way
        self.answer = dspy.Predict("question -> answer")
        if way == "predictor":
            self.answer.set_lm(lm)
        elif way == "inner":
            self.inner = dspy.ChainOfThought("question -> answer")
            self.inner.set_lm(lm)
        else:
            self.big = lm

    def forward(self, question: str) -> dspy.Prediction:
        if self.way == "predictor":
            return self.answer(question=question)
        if self.way == "inner":
            return self.inner(question=question)
        if self.way == "called":
            return dspy.Prediction(answer=self.big(question)[0])
        with dspy.context(lm=self.big):
            return self.answer(question=question)


@pytest.mark.parametrize("way", ["predictor", "inner", "context", "called"])
def test_an_lm_that_a_module_holds_is_metered_and_kept_within_limits(
    way: str, server: FakeServer
) -> None:
    module = Holding(own_lm(server), way)
    run = rb.evaluate(
        module, ROWS, lm="openai/m", api_base=server.url, max_calls=2, workers=1,
        price_for={"openai/big": "in=10,out=20"},
    )  # fmt: skip
    assert len(server.hits) == 2
    assert {hit.body["model"] for hit in server.hits} == {"big"}
    assert not run.complete
    for record in run.records:
        [call] = record.ledger.calls
        assert call.model.startswith("object:openai/big")
        assert call.cost_usd
    assert type(module.answer.lm or module.__dict__.get("big", dspy.LM("a"))) is dspy.LM


@pytest.fixture
def within(server: FakeServer) -> dict[str, Any]:
    """A program file whose `forward` makes an LM."""
    Path("within.py").write_text(SOURCE)
    init = {"url": server.url}
    lm = f"openai/m@{server.url}"
    return {"program": "within.py:Within", "set": {"init": init}, "lm": lm, "cache": False}


def test_an_lm_made_in_forward_without_a_limit_is_counted_at_an_unknown_cost(
    within: dict[str, Any], server: FakeServer
) -> None:
    run = rb.evaluate(data=ROWS, **within, price="in=1,out=1")
    assert [len(record.ledger.calls) for record in run.records] == [1] * len(ROWS)
    for record in run.records:
        [call] = record.ledger.calls
        assert (call.model, call.cost_usd) == ("openai/big", None)
        assert call.prompt_tokens > 0
    assert run.evaluation.summary.to_dict().get("cost_usd") is None


@pytest.mark.parametrize("limit", [{"max_calls": 100}, {"max_total_tokens": 10**6}])
def test_an_lm_made_in_forward_with_a_limit_ends_the_run_after_one_question(
    limit: dict[str, Any], within: dict[str, Any], server: FakeServer
) -> None:
    with pytest.raises(ConfigError, match="openai/big is not metered") as caught:
        rb.evaluate(data=ROWS, **within, **limit, workers=4)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 200
    assert len(server.hits) == 1


def test_an_lm_made_in_forward_with_a_limit_ends_a_sweep_with_2(
    server: FakeServer, command: Any, within: dict[str, Any]
) -> None:
    rows = [{"question": f"What is {n}?", "answer": "a", "context": ["a"]} for n in range(9)]
    Path("q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fields = {
        "program": "within.py:Within",
        "set": {"init": {"url": server.url}},
        "data_file": "q.jsonl",
        "split": "all",
        "lm": f"openai/m@{server.url}",
        "cache": False,
    }
    Path("cell.yaml").write_text(yaml.safe_dump(fields))
    code, _, said = command("sweep", "cell.yaml", "--max-calls", "9")
    assert code == 2, said
    assert "openai/big is not metered" in " ".join(said.split())
    assert len(server.hits) == 1


def test_an_lm_made_in_forward_with_a_limit_ends_a_compile(
    within: dict[str, Any], server: FakeServer
) -> None:
    with pytest.raises(ConfigError, match="openai/big is not metered"):
        rb.compile(
            **within, trainset=ROWS[:3], valset=ROWS[3:], optimizer="bootstrap", max_calls=100
        )
    assert len(server.hits) == 1


def test_a_thread_has_the_lm_of_the_run_if_it_takes_the_context_with_it(
    server: FakeServer,
) -> None:
    class Threaded(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.answer = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            from contextvars import copy_context

            with ThreadPoolExecutor(1) as pool:
                context = copy_context()
                future = pool.submit(context.run, lambda: self.answer(question=question))
                return future.result()

    run = rb.evaluate(Threaded(), ROWS[:2], lm="openai/m", api_base=server.url)
    assert [len(record.ledger.calls) for record in run.records] == [1, 1]


def test_importing_and_running_leaves_python_and_dspy_unchanged(server: FakeServer) -> None:
    places: list[tuple[Any, str]] = [
        (threading.Thread, "start"), (threading.Thread, "run"), (ThreadPoolExecutor, "submit"),
    ]  # fmt: skip
    for owner in (
        dspy.LM, dspy.BaseLM, dspy.Predict, dspy.Module, dspy.Evaluate, dspy.Parallel,
        execution, execution.PreparedCall, dspy.ChatAdapter, dspy.JSONAdapter,
    ):  # fmt: skip
        for name, value in vars(owner).items():
            if callable(value):
                places.append((owner, name))
    before = [vars(owner)[name] for owner, name in places]
    within: list[list[Any]] = []

    class Looking(dspy.Module):
        """A module that looks around."""

        def __init__(self) -> None:
            super().__init__()
            self.answer = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            within.append([vars(owner)[name] for owner, name in places])
            return self.answer(question=question)

    rb.evaluate(Looking(), ROWS[:1], lm=own_lm(server))
    given = {"trainset": ROWS[:2], "valset": ROWS[2:4], "lm": own_lm(server)}
    rb.compile(Looking(), optimizer=dspy.LabeledFewShot(k=1), max_calls=100, **given)
    assert [vars(owner)[name] for owner, name in places] == before
    assert all(now == before for now in within)
