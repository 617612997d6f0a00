"""When everything fails, calls wait and one of them probes; what cannot heal ends the command."""

import re
import threading
from pathlib import Path

import pytest
from dspy import lm15

from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.experiments.store import read_records
from ragbench.lms.calls import Attempt, Reply, Scope, caller as breakers
from ragbench.lms.calls.caller import IN_A_ROW, Breaker
from tests.fake_server import FakeServer, Fault, plausible
from tests.wire import eval_towns

GONE = lm15.TransportError("connection refused")
FORBIDDEN = lm15.AuthError("no", status=403)


class Timed:
    """A breaker with a clock of its own."""

    def __init__(self, patience: float = 600.0) -> None:
        self.now = 0.0
        self.breaker = Breaker("openai/fake", patience=patience, clock=lambda: self.now)

    def attempt(self, error: Exception | None = None, prompt: str = "") -> Attempt:
        """One that ended with `error`, or was answered."""
        reply = None if error else Reply("yes", tokens=2, cost_usd=None)
        return Attempt(hash(prompt), 20, Scope.current(), reply, error)

    def left(self, error: Exception | None, times: int = 1, prompts: int = 3) -> None:
        """So many attempts at so many prompts end with `error`."""
        for number in range(times):
            self.breaker.leave(self.attempt(error, f"prompt {number % prompts}"))


def test_it_opens_after_failures_in_a_row_of_different_prompts_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timed = Timed()
    timed.left(GONE, IN_A_ROW - 1)
    timed.left(None)
    timed.left(GONE, 50, prompts=1)  # one prompt that always fails
    assert timed.breaker.opened_at is None
    for error in (lm15.InvalidRequestError("400", status=400), lm15.RateLimitError("429")):
        timed.left(GONE, IN_A_ROW - 1)
        timed.left(error)  # which the server is there to say
    assert timed.breaker.opened_at is None
    timed.left(GONE, IN_A_ROW)
    assert timed.breaker.opened_at is not None
    assert "openai/fake is down" in caplog.text
    assert "connection refused" in caplog.text


def test_calls_wait_while_one_probes_after_growing_pauses() -> None:
    timed = Timed()
    breaker = timed.breaker
    timed.left(GONE, IN_A_ROW)
    for pause in (1.0, 2.0, 4.0):
        timed.now += pause
        breaker.enter(timed.attempt())  # does not wait: it is time
        timed.left(GONE)
    timed.now += 8.0
    breaker.enter(timed.attempt())
    waiting = threading.Thread(target=lambda: breaker.enter(timed.attempt()))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()  # one probe at a time
    timed.left(None)
    waiting.join(5)
    assert (waiting.is_alive(), breaker.opened_at) == (False, None)


@pytest.mark.parametrize(
    ("error", "times", "ends", "code"),
    [
        (lm15.AuthError("revoked", status=401), 1, LMSetupError, 2),
        (lm15.BillingError("no money", status=402), 1, LMUnavailableError, 4),
        (lm15.RateLimitError("later", status=429, retry_after=7200), 1, LMUnavailableError, 4),
        (FORBIDDEN, 3, LMSetupError, 2),  # one may be of a filtered prompt
    ],
)
def test_what_cannot_heal_ends_it(
    error: Exception, times: int, ends: type[RagbenchError], code: int
) -> None:
    timed = Timed()
    timed.left(error, times - 1)
    assert timed.breaker.broken is None
    timed.left(error, 3)
    assert type(timed.breaker.broken) is ends
    assert timed.breaker.broken.exit_code == code


def test_a_server_that_rejects_every_call_for_too_long_is_given_up() -> None:
    timed = Timed(patience=100.0)
    for _ in range(12):
        timed.left(lm15.RateLimitError("429", status=429))
        timed.now += 10.0
    assert isinstance(timed.breaker.broken, LMUnavailableError)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakers, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(breakers, "LONGEST_PAUSE_S", 0.05)


@pytest.mark.usefixtures("short_pauses")
def test_a_key_revoked_midway_fails_no_question_and_a_new_one_goes_on(
    server: FakeServer, tmp_path: Path
) -> None:
    server.script = lambda hit: Fault("401") if hit.number > 10 else plausible(hit)
    code, said = eval_towns(tmp_path, server, 30, "--workers", 4)
    assert code == 2
    table, _, error = said.rpartition("\n")
    assert re.search(r"10 of 30 answered, \d cut off, \d+ not asked; the scores are of", table)
    assert "| vanilla | 10 |" in table
    assert "refuses the key: HTTP 401" in error
    assert "refuses the key" not in table
    loaded = read_records(tmp_path / "run")
    assert len(loaded.finished) == len(loaded) == 10
    assert len(server.hits) <= 14  # what was under way
    server.script = plausible
    code, said = eval_towns(tmp_path, server, 30)
    assert code == 0, said
    assert len(read_records(tmp_path / "run").finished) == 30
    assert not {hit.prompt for hit in server.hits[:10]} & {h.prompt for h in server.hits[14:]}


@pytest.mark.usefixtures("short_pauses")
def test_an_outage_pauses_the_run_and_fails_no_question(server: FakeServer, tmp_path: Path) -> None:
    # More failures than twelve calls may have between them.
    server.script = lambda hit: Fault("503") if 10 < hit.number <= 70 else plausible(hit)
    code, said = eval_towns(tmp_path, server, 30, "--workers", 12)
    assert code == 0, said
    assert len(read_records(tmp_path / "run").finished) == 30


@pytest.mark.usefixtures("short_pauses")
def test_an_outage_that_lasts_shows_what_there_is(server: FakeServer, tmp_path: Path) -> None:
    server.script = lambda hit: Fault("503") if hit.number > 10 else plausible(hit)
    code, said = eval_towns(tmp_path, server, 30, "--patience", 0.2, "--workers", 12)
    assert code == 4
    counts = re.search(r"10 of 30 answered, (\d+) cut off, (\d+) not asked", said)
    cut_off, not_asked = map(int, counts.groups())
    assert cut_off + not_asked == 20  # none failed
    assert 3 <= cut_off <= 12  # the failing prompts that end a run, and the workers
    assert "has been down for" in said.rpartition("\n")[2]
