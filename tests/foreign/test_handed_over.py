"""What people hand over that our own parts are not: inputs, texts, names and metrics of theirs."""

from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.errors import ConfigError
from tests.fake_server import FakeServer

ROWS = [
    dspy.Example(question="Which river?", persona="a child", gold="Po").with_inputs(
        "question", "persona"
    ),
    dspy.Example(question="Which lake?", persona="a judge", gold="Como").with_inputs(
        "question", "persona"
    ),
]


class Open(dspy.Module):
    """A module that takes any input and hands it on."""

    def __init__(self, *, thinks: bool = False) -> None:
        super().__init__()
        signature = "question, persona -> answer"
        self.ask = dspy.ChainOfThought(signature) if thinks else dspy.Predict(signature)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return self.ask(**inputs)


class Later(dspy.Module):
    """A module that answers by asyncio alone."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question, persona -> answer")

    async def aforward(self, question: str, persona: str) -> dspy.Prediction:
        return await self.ask.acall(question=question, persona=persona)


def model(server: FakeServer) -> dspy.LM:
    return dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)


@pytest.mark.parametrize(
    "module",
    [
        dspy.Predict("question, persona -> answer"),
        dspy.ChainOfThought("persona, question -> answer"),
        dspy.ReAct("question, persona -> answer", tools=[]),
        Open(),
        Open(thinks=True),
        Later(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_every_input_that_a_module_takes_is_in_its_requests(
    module: dspy.Module, server: FakeServer
) -> None:
    rb.evaluate(module, ROWS, lm=model(server), field="gold", workers=1)
    for row in ROWS:
        asked = [hit.prompt for hit in server.hits if row.question in hit.prompt]
        assert asked
        assert all(row.persona in prompt for prompt in asked)
        assert not any(row.gold in prompt for prompt in asked)


@pytest.mark.parametrize("open_to_any", [False, True])
def test_a_question_under_its_own_name_is_asked_under_it(
    open_to_any: bool, server: FakeServer
) -> None:
    rows = [dspy.Example(query="Which river?", gold="Po").with_inputs("query")]
    module: dspy.Module = dspy.Predict("query -> answer")
    if open_to_any:
        module = Open()
        module.ask = dspy.Predict("query -> answer")
    fields = {"question": "query", "answer": "gold"}
    rb.evaluate(module, rows, lm=model(server), field=fields)
    assert "[[ ## query ## ]]\nWhich river?" in server.hits[0].prompt
    assert "[[ ## question ## ]]" not in server.hits[0].prompt


def test_a_history_is_an_input_and_what_is_no_json_is_refused(server: FakeServer) -> None:
    history = dspy.History(messages=[{"question": "Where is Turin?", "answer": "In Piedmont"}])
    row = dspy.Example(question="On which river?", history=history, answer="Po")
    module = dspy.Predict("question, history: dspy.History -> answer")
    run = rb.evaluate(module, [row.with_inputs("question", "history")], lm=model(server))
    assert run.failed == 0
    assert "In Piedmont" in server.hits[0].prompt
    for value in (object(), {"a set", "has no order"}, b"\xff"):
        with pytest.raises(ConfigError, match="neither JSON"):
            rb.evaluate(module, [row.copy(history=value)], lm=model(server))


class Drawing(dspy.Module):
    """A module whose answer has beside it what JSON has no word for."""

    def forward(self, question: str) -> dspy.Prediction:
        beside = {("a", 1): b"\x89\xff", "tags": [{"b", "a"}]}
        return dspy.Prediction(answer="Po", picture=b"\xff", tags={"b", "a"}, beside=beside)


def test_outputs_that_are_no_json_are_in_the_record_all_the_same(server: FakeServer) -> None:
    row = dspy.Example(question="Which river?", answer="Po").with_inputs("question")
    [record] = rb.evaluate(Drawing(), [row], lm=model(server)).records
    assert record.answer == "Po"
    outputs = record.extra["outputs"]
    assert (outputs["picture"], outputs["tags"]) == ("_w==", ["a", "b"])
    assert outputs["beside"]["('a', 1)"] == "if8="
    assert outputs["beside"]["tags"] == [["a", "b"]]


def test_optimizers_see_every_input_and_the_names_of_the_person(
    server: FakeServer, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def gold(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> bool:
        seen.append((example.gold, example.persona))
        return prediction.answer == example.gold

    rows = []
    for number in range(3):
        for row in ROWS:
            copied = row.copy(question=f"{row.question} {number}")
            rows.append(copied.with_inputs("question", "persona"))
    folder = rb.compile(
        Open(),
        trainset=rows[:4],
        valset=rows[4:],
        field="gold",
        optimizer=dspy.BootstrapFewShot(metric=gold),
        lm=model(server),
        out=tmp_path / "mine",
        max_calls=100,
    )
    assert folder == tmp_path / "mine"
    assert set(seen) <= {("Po", "a child"), ("Como", "a judge")}
    assert seen
    assert all("a child" in hit.prompt or "a judge" in hit.prompt for hit in server.hits)


def test_records_are_in_the_order_of_the_examples(server: FakeServer) -> None:
    rows = [dspy.Example(question=f"Which river {n}?", answer="Po") for n in range(6)]
    run = rb.evaluate("direct", rows, lm=model(server), workers=4)
    assert [record.question for record in run.records] == [row.question for row in rows]


TEXTS = {"first": ["The Po is long.", "Turin is old."], "second": ["The Danube flows east."]}


class Twice(dspy.Module):
    """Two searches, whose texts are returned together."""

    def __init__(self, retriever: Any) -> None:
        super().__init__()
        self.retriever = retriever

    def forward(self, question: str) -> dspy.Prediction:
        passages = []
        for query in ("first", "second", "first"):
            passages += self.retriever.search(query)
        return dspy.Prediction(answer=str(len(passages)), passages=passages)


def search_texts(query: str, k: int = 3) -> list[str]:
    """Find the texts of a query."""
    return TEXTS[query]


def test_texts_of_two_searches_are_different_passages_and_of_one_the_same() -> None:
    lm = dspy.LM("openai/m", api_key="none")
    run = rb.evaluate(Twice, ROWS, lm=lm, retriever=search_texts, field="gold")
    first, second, again = run.records[0].searches
    pids = [pid for pid, _ in (*first.hits, *second.hits)]
    assert len(set(pids)) == 3
    assert again.hits == first.hits


def has_gold(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
    """Whether the answer is the person's own gold, and what the module gave beside it is there."""
    return float(prediction.answer == example.gold and prediction.note == example.persona)


class Noting(dspy.Module):
    """A module with an output beside its answer, which fails for judges."""

    def forward(self, question: str, persona: str) -> dspy.Prediction:
        if persona == "a judge":
            raise ValueError("no judges")
        return dspy.Prediction(answer="Po", note=persona)


def test_a_metric_of_ones_own_reads_the_fields_of_ones_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lm = dspy.LM("openai/m", api_key="none")
    run = rb.evaluate(Noting(), ROWS, lm=lm, field="gold", metric=[has_gold, "contain"])
    assert run.scores["has_gold"] == 0.5
    assert "contain" in run.scores
    assert "1 of 2 questions failed and count as the worst score" in capsys.readouterr().err
    score: Any = rb.metric(has_gold)
    assert score(ROWS[0], dspy.Prediction(answer="Po", note="a child")) == 1


class Brings(dspy.Module):
    """A module with an LM of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")
        self.ask.set_lm(dspy.LM("openai/big", api_base=url, api_key="none"))

    def forward(self, question: str) -> dspy.Prediction:
        return self.ask(question=question)


def test_an_lm_that_a_module_brings_has_the_price_that_is_given_for_it(server: FakeServer) -> None:
    row = dspy.Example(question="Which river?", answer="Po")
    lm = model(server)
    name = f"openai/big@{server.url}"
    run = rb.evaluate(Brings(server.url), [row], lm=lm, price_for={name: "in=10,out=20"})
    [hit] = server.hits
    spent = run.records[0].ledger.as_if
    reply_tokens = spent.tokens - hit.prompt_tokens
    assert spent.cost_usd == pytest.approx((10 * hit.prompt_tokens + 20 * reply_tokens) / 1e6)
