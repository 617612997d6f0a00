"""When everything fails, calls wait and one of them probes; what cannot heal ends the command."""

import re
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from dspy import lm15

from ragbench.cli.main import cli
from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Attempt, Reply, Scope, caller as breakers
from ragbench.lms.calls.caller import IN_A_ROW, Breaker
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.kills import write_questions
from tests.runs import record_rows


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def attempt(prompt: str = "") -> Attempt:
    return Attempt(hash(prompt), 20, Scope.current())


def answered(prompt: str = "") -> Attempt:
    made = attempt(prompt)
    made.reply = Reply("yes", tokens=2, cost_usd=None)
    return made


def failed(error: Exception, prompt: str = "") -> Attempt:
    made = attempt(prompt)
    made.error = error
    return made


def down(breaker: Breaker, error: Exception, times: int = IN_A_ROW) -> None:
    for number in range(times):
        breaker.leave(failed(error, f"prompt {number % 3}"))


GONE = lm15.TransportError("connection refused")


def test_it_opens_after_failures_in_a_row_of_different_prompts_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    breaker = Breaker("openai/fake", clock=Clock())
    down(breaker, GONE, IN_A_ROW - 1)
    assert not breaker.open
    breaker.leave(answered())
    down(breaker, GONE)
    assert breaker.open
    assert "openai/fake is down" in caplog.text
    assert "connection refused" in caplog.text


def test_one_prompt_that_always_fails_opens_nothing() -> None:
    breaker = Breaker("fake", clock=Clock())
    for _ in range(50):
        breaker.leave(failed(lm15.ServerError("500", status=500), "the same"))
    assert not breaker.open


@pytest.mark.parametrize(
    "error", [lm15.InvalidRequestError("400", status=400), lm15.RateLimitError("429", status=429)]
)
def test_a_server_that_answers_with_an_error_of_the_call_is_there(error: Exception) -> None:
    breaker = Breaker("fake", clock=Clock())
    down(breaker, GONE, IN_A_ROW - 1)
    breaker.leave(failed(error))
    down(breaker, GONE, 1)
    assert not breaker.open


def test_calls_wait_while_one_probes_after_growing_pauses() -> None:
    clock, passed = Clock(), list[str]()
    breaker = Breaker("fake", clock=clock)
    down(breaker, GONE)
    waiting = [
        threading.Thread(target=lambda n=n: (breaker.enter(attempt()), passed.append(n)))
        for n in range(3)
    ]
    for pause in (1.0, 2.0, 4.0):
        clock.now += pause
        probe = failed(GONE)
        breaker.enter(probe)  # does not wait: it is time
        breaker.leave(probe)
        assert breaker.open
    for thread in waiting:
        thread.start()
    clock.now += 8.0
    probe = answered()
    breaker.enter(probe)
    time.sleep(0.1)
    assert not passed  # one probe at a time
    breaker.leave(probe)
    for thread in waiting:
        thread.join(5)
    assert len(passed) == 3
    assert not breaker.open


@pytest.mark.parametrize(
    ("error", "ends", "code"),
    [
        (lm15.AuthError("revoked", status=401), LMSetupError, 2),
        (lm15.BillingError("no money", status=402), LMUnavailableError, 4),
        (lm15.RateLimitError("tomorrow", status=429, retry_after=7200), LMUnavailableError, 4),
    ],
)
def test_what_cannot_heal_ends_it_at_once(
    error: Exception, ends: type[RagbenchError], code: int
) -> None:
    breaker = Breaker("openai/fake", clock=Clock())
    breaker.leave(failed(error))
    assert type(breaker.broken) is ends
    assert breaker.broken.exit_code == code


def test_a_filtered_prompt_is_no_revoked_key_but_ten_refusals_are() -> None:
    breaker, forbidden = Breaker("fake", clock=Clock()), lm15.AuthError("no", status=403)
    down(breaker, forbidden, IN_A_ROW - 1)
    assert breaker.broken is None
    down(breaker, forbidden, 1)
    assert isinstance(breaker.broken, LMSetupError)


def test_a_server_that_rejects_every_call_for_too_long_is_given_up() -> None:
    clock = Clock()
    breaker = Breaker("fake", patience=100.0, clock=clock)
    for _ in range(12):
        breaker.leave(failed(lm15.RateLimitError("429", status=429)))
        clock.now += 10.0
    assert isinstance(breaker.broken, LMUnavailableError)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(breakers, "FIRST_PAUSE_S", 0.05)


def evaluate(folder: Path, server: FakeServer, *more: str, n: int = 30) -> tuple[int, str]:
    data = folder / "questions.jsonl"
    if not data.exists():
        write_questions(folder, 3 * n)
    result = CliRunner().invoke(cli, [
        "eval", "--program", "vanilla", "--no-cache", "--dataset", "jsonl",
        "--data-file", str(data), "--limit", str(n), "--lm", "openai/fake",
        "--api-base", server.url, "--workers", "4", "--out", str(folder / "run"), *more,
    ])  # fmt: skip
    error = result.exception
    code = getattr(error, "exit_code", result.exit_code)
    return code, f"{result.output}{error or ''}"


@pytest.mark.usefixtures("settings")
def test_a_key_revoked_midway_fails_no_question_and_a_new_one_goes_on(
    tmp_path: Path,
) -> None:
    script = lambda hit: Fault("401") if hit.number > 10 else plausible(hit)  # noqa: E731
    with FakeServer(script) as server:
        code, said = evaluate(tmp_path, server)
        assert code == 2
        table, _, error = said.rpartition("\n")
        assert re.search(r"10 of 30 answered, \d cut off, \d+ not asked; the scores are of", table)
        assert "| vanilla | 10 |" in table
        assert "refuses the key: HTTP 401" in error
        assert "refuses the key" not in table
        loaded = read_records(tmp_path / "run")
        assert len(loaded.finished) == len(loaded) == 10
        assert len(server.hits) <= 14  # what was under way
        asked = {hit.prompt for hit in server.hits[:10]}
        server.script = plausible
        code, said = evaluate(tmp_path, server)
        assert code == 0, said
        assert len(read_records(tmp_path / "run").finished) == 30
        assert not asked & {hit.prompt for hit in server.hits[14:]}


@pytest.mark.usefixtures("settings")
def test_an_outage_that_lasts_shows_what_there_is(tmp_path: Path) -> None:
    with FakeServer(lambda hit: Fault("503") if hit.number > 10 else plausible(hit)) as server:
        code, said = evaluate(tmp_path, server, "--patience", "0.2", "--workers", "12")
    assert code == 4
    assert re.search(r"10 of 30 answered, 1\d cut off, \d+ not asked", said)
    assert "has been down for" in said.rpartition("\n")[2]


@pytest.mark.usefixtures("settings")
def test_an_outage_pauses_the_run_and_fails_no_question(tmp_path: Path) -> None:

    def script(hit: Hit) -> str | Fault:
        return Fault("503") if 8 < hit.number <= 22 else plausible(hit)

    with FakeServer(script) as server:
        code, said = evaluate(tmp_path, server)
    assert code == 0, said
    rows = record_rows(tmp_path / "run")
    assert len(rows) == 30
    assert not any(row["failure"] for row in rows)
    assert sum(call["attempts"] for row in rows for call in row["ledger"]["calls"]) == 44
