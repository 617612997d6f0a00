"""What a server takes is learned once from its refusals, and nothing of an answer is lost."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.experiments.store import read_card
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.wire import ask, eval_towns, lm_at

#: What is refused, in a server's words, and what is done.
REFUSALS = [
    ("temperature", "`temperature` is deprecated for this model.", {}, "not sent"),
    (
        "temperature",
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1)"
        " value is supported.",
        {"param": "temperature"},
        "not sent",
    ),
    ("temperature", "Invalid request", {"param": "temperature"}, "not sent"),
    ("seed", "Unknown parameter: 'seed'.", {"param": "seed"}, "not sent"),
    ("seed", "property 'seed' is unsupported", {}, "not sent"),
    ("seed", "seed: Extra inputs are not permitted", {}, "not sent"),
    ("seed", "extra fields not permitted: body -> seed", {}, "not sent"),
    ("stop", "Argument not supported: stop", {}, "not sent"),
    ("stop", "Unrecognized request argument supplied: stop", {}, "not sent"),
    ("seed", "Unknown field (seed)", {}, "not sent"),
    ("top_p", "temperature and top_p cannot both be specified for this model.", {}, "not sent"),
    ("stop", "Unsupported parameter: 'stop' is not supported with this model.", {}, "not sent"),
    (
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        {"param": "max_tokens"},
        "sent as max_completion_tokens",
    ),
    ("max_tokens", "max_tokens: 900 > 500, which is the maximum allowed", {}, "at most 500"),
    ("max_tokens", "max_tokens is not accepted here", {}, "not sent"),
]


def refusing(name: str, words: str, more: dict[str, Any], most: int = 0) -> Any:
    """A script that refuses requests with this parameter (above `most`)."""

    def script(hit: Hit) -> Any:
        value = hit.body.get(name)
        if value is not None and not (most and value <= most):
            return Fault("400", json={"error": {"message": words, **more}})
        return plausible(hit)

    return script


@pytest.mark.parametrize(("name", "words", "more", "done"), REFUSALS)
def test_a_parameter_that_is_refused_is_sent_otherwise_from_then_on(
    name: str, words: str, more: dict[str, Any], done: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = refusing(name, words, more, 500 * ("at most" in done))
    with FakeServer(script) as server, open_ledger() as ledger:
        lm = lm_at(server, reply_tokens=900).copy(top_p=0.9, stop=["END"])
        assert [ask(lm, "one"), ask(lm, "two")] == ["some answer"] * 2
        bodies = [hit.body for hit in server.hits]
    assert [call.attempts for call in ledger.calls] == [2, 1]
    assert lm.metered.terms.learned == {name: done}
    assert caplog.text.count("from now on") == 1
    lost = bodies[0].keys() - bodies[2].keys()
    assert lost == ({name} if done == "not sent" or "sent as" in done else set())


@pytest.mark.parametrize(
    "words",
    [
        "This response_format type is unavailable now",
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
        "Structured outputs are not supported: json_schema",
        "guided_json: grammar is not supported",
        '{"detail":[{"type":"extra_forbidden","loc":["body","response_format"]}]}',
    ],
)
def test_a_schema_that_is_refused_becomes_plain_json(words: str) -> None:
    def script(hit: Hit) -> Any:
        if (hit.body.get("response_format") or {}).get("type") == "json_schema":
            return Fault("400", json={"error": {"message": words}})
        return '{"answer": "Paris"}'

    with FakeServer(script) as server:
        lm = lm_at(server, schema=True)
        with dspy.context(lm=lm, adapter=make_adapter("json")):
            assert dspy.Predict("question -> answer")(question="x").answer == "Paris"
    assert lm.metered.terms.learned == {"response_format": "without a schema"}


def test_many_calls_at_once_learn_it_and_none_fails(tmp_path: Path) -> None:
    script = refusing("temperature", "`temperature` is deprecated for this model.", {})
    with FakeServer(script, latency_s=0.05) as server:
        code, text = eval_towns(tmp_path, server, 12, "--workers", 12)
    assert code == 0, text
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert log.count("temperature is not sent from now on") == 1
    [(lm, learned)] = read_card(tmp_path / "run").negotiated.items()
    assert (lm.partition("@")[0], learned) == ("openai/fake", {"temperature": "not sent"})


@pytest.mark.parametrize(
    "words", ["the prompt says temperature", "Bad request", "messages: roles must alternate"]
)
def test_other_refusals_are_failures(words: str) -> None:
    with FakeServer(lambda hit: Fault("400", json={"error": {"message": words}})) as server:
        with pytest.raises(dspy.LMInvalidRequestError):
            lm_at(server)("Where?")
        assert len(server.hits) == 1


@pytest.mark.parametrize("model", ["o3", "gpt-5-mini", "vendor/o4-mini"])
def test_a_model_is_known_by_its_own_name_at_any_address(model: str) -> None:
    lm = make_lm(f"openai/{model}", api_base="http://127.0.0.1:9/v1")
    assert "temperature" not in {name for name, value in lm.kwargs.items() if value is not None}
    assert lm.kwargs["max_tokens"] >= 16_000
