"""Judging through batches: the real clients against a server that speaks both interfaces."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError, LMSetupError, RunError
from ragbench.experiments.score.asking import read_journal
from ragbench.experiments.score.batched import BatchRunner, open_batches
from ragbench.experiments.store import RunFolder
from ragbench.lms.batch import batched
from ragbench.lms.calls import Limits, spending
from ragbench.lms.factory import make_lm
from ragbench.lms.lm import RagbenchLM
from tests.experiments.scored_runs import answered
from tests.experiments.test_judge import Folder, judged
from tests.fake_batches import BatchServer, Spoilt
from tests.fake_server import Hit

BOTH = pytest.mark.parametrize("spec", ["openai/judge", "anthropic/judge"])


def fair(ask: Hit) -> str:
    shown = ask.prompt.rpartition("[[ ## answer ## ]]")[2]
    verdict = "correct" if "Norway" in shown else "incorrect"
    if "[[ ## completed ## ]]" in ask.prompt:
        return f"[[ ## verdict ## ]]\n{verdict}\n\n[[ ## completed ## ]]"
    return json.dumps({"verdict": verdict})


def lm_at(server: BatchServer, spec: str, **settings: Any) -> RagbenchLM:
    settings = {"price": "in=1,out=2", "schema": True, "cache": False, **settings}
    return make_lm(spec, api_base=server.url, **settings)


def journal(folder: Path) -> list[dict[str, Any]]:
    return sorted(read_journal(RunFolder(folder)), key=lambda row: str(row["key"]))


@BOTH
def test_batches_are_asked_and_read_as_calls_are_at_half_price(folder: Folder, spec: str) -> None:
    a, b = folder(), folder()

    def sent(server: BatchServer) -> list[str]:
        bodies = [json.dumps({"stream": False, **b}, sort_keys=True) for b in server.bodies]
        server.bodies.clear()
        return sorted(bodies)

    with BatchServer(fair) as server:
        direct = judged(a, lm_at(server, spec))
        asked = sent(server)
        found = judged(b, batched(lm_at(server, spec)))
        assert (server.direct, len(server.batches), server.items) == (3, 1, 3)
        assert sent(server) == asked
    for money in ("as_if", "billed"):
        for usd in ("cost_usd", "list_usd"):
            assert found[money].pop(usd) == pytest.approx(0.5 * direct[money].pop(usd))
        for row in (found[money], direct[money]):
            row.pop("latency_s")
    assert found == direct
    assert (found["correct"], found["incorrect"], found["failed"]) == (4 // 2, 1, 1)
    kept = ("qid", "pass", "key", "model", "value", "why")
    rows = [[[row[k] for k in kept] for row in journal(run)] for run in (a, b)]
    assert rows[0] == rows[1]
    calls = [call for row in journal(b) for call in row["calls"]]
    assert all(c["batch"] and c["kind"] == "judge" and not c["latency_s"] for c in calls)


@BOTH
def test_unreadable_replies_come_in_a_second_batch_and_failed_items_with_the_next_command(
    folder: Folder, spec: str
) -> None:
    names = ("Norway", "Chad", "Peru", "Norway 1", "Norway 2", "Norway 3")
    run = folder(*(answered(f"q{n}", name) for n, name in enumerate(names)))
    spoilt = {"Norway 1": Spoilt("expired"), "Norway 2": Spoilt("529"), "Norway 3": Spoilt("400")}

    def script(ask: Hit) -> str | Spoilt:
        if "Peru" in ask.prompt or ("Chad" in ask.prompt and not ask.body["temperature"]):
            return "I would say so"
        return next((kind for text, kind in spoilt.items() if text in ask.prompt), fair(ask))

    with BatchServer(script) as server:
        found = judged(run, batched(lm_at(server, spec)))
        assert [len(made.items) for made in server.batches] == [6, 2]
        assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 1, 4)
        assert any("LMInvalidRequestError" in why for why in found["unscored_because"])
        spoilt.clear()
        healed = judged(run, batched(lm_at(server, spec)))
        assert (healed["correct"], healed["unscored"], server.items) == (4, 1, 6 + 2 + 3)
        assert healed == judged(run, batched(lm_at(server, spec)))
        assert server.items == 11


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    ("spec", "event"), [("openai/judge", "submitted"), ("anthropic/judge", "ended")]
)
def test_pass_that_was_cut_off_goes_on_without_paying_twice(
    folder: Folder, spec: str, event: str,
    monkeypatch: pytest.MonkeyPatch, command: Any,
) -> None:  # fmt: skip
    run = folder(*(answered(f"q{n}", f"Norway {n}") for n in range(4)))
    with BatchServer(fair, looks=0) as server:
        lm = lm_at(server, spec, schema=None, reply_tokens=1024)
        with monkeypatch.context() as patch:
            note = BatchRunner._note

            def cut(self: Any, kind: str, **more: Any) -> None:
                note(self, kind, **more)
                if kind == event:
                    raise StoppedError

            patch.setattr(BatchRunner, "_note", cut)
            with pytest.raises(StoppedError):
                judged(run, batched(lm))
        if event == "submitted":
            with pytest.raises(RunError, match="Add --batch"):
                judged(run, lm)
        code, _, _ = command("score", str(run), "--judge", spec, "--batch",
                             "--api-base", server.url, "--price", "in=1,out=2")  # fmt: skip
        assert (code, server.creations, server.items, server.direct) == (0, 1, 4, 0)
    assert open_batches(RunFolder(run).replies()) == []


def test_limit_of_spending_is_kept_whatever_the_replies(folder: Folder) -> None:
    records = [answered(f"q{n}", f"Norway {n}") for n in range(30)]
    run, other = folder(*records), folder(*records)
    with BatchServer(fair) as server:
        lm = lm_at(server, "openai/judge", reply_tokens=50)
        with spending(Limits(cost=1e-6)) as spent:
            none = judged(run, batched(lm))
        assert (none["not_asked"], server.items, spent.stopped_by) == (30, 0, "--max-cost 1e-06")
        all_of_it = judged(other, batched(lm))["billed"]["cost_usd"]
        limit, before = 0.7 * all_of_it, len(server.batches)
        with spending(Limits(cost=limit)) as spent:
            found = judged(run, batched(lm))
        assert spent.stopped_by.startswith("--max-cost")
        assert len(server.batches) > before + 1  # what a batch leaves is used by another
        assert found["not_asked"] == 60 - server.items > 0
        assert spent.total.calls == server.items - 30
        assert spent.total.cost == pytest.approx(found["billed"]["cost_usd"])
        assert 0.3 * limit < spent.total.cost <= limit
        whole = judged(run, batched(lm))
        assert (whole["correct"], server.items) == (30, 60)
        free = lm_at(server, "openai/judge", price=None)
        with spending(Limits(cost=1.0)), pytest.raises(ConfigError, match="--price"):
            judged(folder(), batched(free))


@BOTH
def test_what_fails_is_one_line_and_the_same_command_goes_on(folder: Folder, spec: str) -> None:
    run = folder()
    with BatchServer(fair, looks=0, busy=[1], refuse="enqueued token limit") as server:
        with pytest.raises(RunError, match=r"may have been made .* the same command continues"):
            judged(run, batched(lm_at(server, spec)))
        if spec.startswith("openai"):
            with pytest.raises(RunError, match="enqueued token limit"):
                judged(run, batched(lm_at(server, spec)))
        server.refuse = ""
        assert judged(run, batched(lm_at(server, spec)))["correct"] == 2


def test_mistakes_are_one_line(folder: Folder, command: Any) -> None:
    with pytest.raises(LMSetupError, match=r"openai/\.\.\. and anthropic/"):
        batched(make_lm("groq/llama"))
    code, _, err = command("score", folder(), "--batch")
    assert (code, "--judge" in err, err.count("\n")) == (2, True, 1)
