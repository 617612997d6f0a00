"""What a run comes to: the last try counts, every try is billed; list price and price paid."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare.spending import IndexCost, index_cost, whole_cost
from ragbench.experiments.config import make_config
from ragbench.experiments.report.scores import metric_table
from ragbench.experiments.report.tables import notes, run_table
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import Evaluation, headline_intervals, reopen
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.lms.reply_cache import configure_cache
from ragbench.metrics import mean_interval
from ragbench.record import (
    CUT_OFF,
    Call,
    CriticalPath,
    FailedAttempts,
    Failure,
    Ledger,
    Record,
    total,
)
from tests.experiments.scored_runs import answered
from tests.fake_server import FakeServer, Fault, Hit
from tests.metrics.records import call, failure
from tests.runs import query

Ran = Callable[..., Evaluation]


@pytest.fixture
def ran(folder: Callable[..., Path]) -> Ran:
    """The run of some records, each time in another folder."""
    return lambda *records, **card: reopen(folder(*records, **card))


def failing(qid: str, error: str = "LMServerError", boundary: str = "provider") -> Record:
    ledger = Ledger([call(), call(error=error)], CriticalPath(2, 0.5))
    return replace(failure(error, boundary), qid=qid, ledger=ledger)


def five() -> list[Record]:
    """q1 right at once; q2 wrong at once; q3 and q4 fail, q3 is right when asked again."""
    q1, q3 = answered("q1", "Norway"), answered("q3", "Norway")
    return [q1, failing("q3"), answered("q2", "Sweden"), failing("q4", "LMTimeoutError"), q3]


def asked(qid: str, *calls: Call, **fields: Any) -> Record:
    ledger = {"calls": list(calls), "path": {"calls": len(calls), "latency_s": 0.5}}
    return answered(qid, "Norway", ledger=ledger, **fields)


def lm(usd: float | None, **fields: Any) -> Call:
    return Call("m", prompt_tokens=100, completion_tokens=10, cost_usd=usd, **fields)


def test_the_last_record_counts_and_every_try_is_billed(ran: Ran, command: Any) -> None:
    whole = ran(*five())
    summary = whole.summary
    assert (summary.n, summary.failed, summary.scores["em"]) == (4, 1, 0.5)  # q1 and q3 of four
    assert summary.errors == {"provider/LMTimeoutError": 1}
    last = ran(*five()[2:], five()[0]).summary
    assert summary.as_if == last.as_if
    assert summary.billed.calls == last.billed.calls + 2
    assert ran(five()[1], five()[3], *five()[::2]).summary == summary
    code, out, _ = command("show", whole.folder)
    assert code == 0
    assert "including 1 failed attempts that were repeated" in out
    assert "| provider  | LMTimeoutError | 1 | q4          | no reply |" in out


def test_what_is_billed(ran: Ran) -> None:
    cheap = lm(0.5, paid_usd=0.2)
    failed = lm(0.25, failed=FailedAttempts(7, 3, cost_usd=0.125))
    summary = ran(asked("q1", lm(1.0, cached=True), cheap, failed)).summary
    assert summary.as_if.cost_usd == pytest.approx(1.75)
    assert summary.billed.cost_usd == pytest.approx(0.2 + 0.25 + 0.125)
    assert (summary.as_if.tokens, summary.billed.tokens) == (330, 230)
    assert summary.billed.failed_tokens == 10
    assert ran(asked("q1", lm(1.0)), asked("q2", lm(None))).summary.as_if.cost_usd is None
    known, unknown = total([lm(1.0)]), total([lm(None)])
    assert ((known + unknown).cost_usd, (known + known).cost_usd) == (None, 2.0)
    stopped = Failure("limit", CUT_OFF, "stopped")
    cut = replace(asked("q2", lm(4.0)), answer=None, failure=stopped, stop_reason=None)
    summary = ran(asked("q1", lm(1.0)), asked("q1", lm(2.0)), cut).summary
    assert (summary.n, summary.billed.cost_usd, summary.as_if.cost_usd) == (1, 7.0, 2.0)


def test_embedding_the_corpus_is_in_the_whole_cost(ran: Ran) -> None:
    paid = {"embedding_tokens": 900, "embedding_s": 1.0, "embedding_usd": 0.25}
    index = {"index_calls": 5, "index_tokens": 1_000, "index_usd": 0.5}
    dense = {"name": "dense", **paid}
    both = {"retriever": dense, "index": index}
    row = asked("q1", lm(1.0))
    for card, cost in (
        ({"retriever": dense}, 1.25),
        ({"retriever": {"name": "hybrid", "parts": [dense]}}, 1.25),
        (both, 1.75),
        ({"retriever": {**paid, "embedding_usd": None}}, None),
    ):
        assert whole_cost(ran(row, **card)) == cost
    assert index_cost(ran(row, **both).card) == IndexCost(5, 1_900, 0.75)
    assert index_cost(ran(row, retriever={**paid, "embedding_usd": 0.0}).card) is None


def test_means_have_intervals_that_go_by_the_clusters_of_the_records(ran: Ran) -> None:
    right = [n % 4 < 2 for n in range(12)]
    answers = ["Norway" if ok else "Chad" for ok in right]
    own = [{"gold_pids": [f"p{n}"], "question": f"Where is town {n}?"} for n in range(12)]
    alone = ran(*(answered(f"q{n:02}", answers[n], **own[n]) for n in range(12)))
    wanted = mean_interval(right, (0.0, 1.0))
    scored = [score_run(alone.folder, ScoreRequest())]
    em = next(row for row in metric_table(scored).rows if row["metric"] == "em")
    for row, name in ((run_table([alone]).rows[0], "em"), (em, "mean")):
        shown = [row[f"{name}{end}"] for end in ("", "_low", "_high")]
        assert shown == [0.5, wanted.low, wanted.high]
    groups = [f"c{n // 3}" for n in range(12)]
    rows = [answered(f"q{n:02}", answers[n], extra={"cluster": groups[n]}) for n in range(12)]
    grouped = mean_interval(right, (0.0, 1.0), groups)
    together = ran(*rows)
    assert headline_intervals(together.records)["em"] == grouped != wanted
    row = run_table([together]).rows[0]
    assert (row["em_low"], row["em_high"]) == (grouped.low, grouped.high)
    assert headline_intervals(ran(rows[0]).records) == {}
    line = "questions that vary together: 4 clusters, the largest of 3"
    assert line in notes(together)
    assert [text for text in notes(alone) if text.startswith("questions that vary")] == []


@pytest.mark.parametrize("event", ["exhaustive_retrieval", "trivial_index"])
def test_a_run_that_does_not_show_its_method_is_marked_with_a_legend(ran: Ran, event: str) -> None:
    def table(marked: int) -> Any:
        counts = [{event: 1} if n < marked else {} for n in range(4)]
        rows = [answered(f"q{n}", "Norway", counts=counts[n]) for n in range(4)]
        return run_table([ran(*rows)])

    most, half = table(3), table(2)
    assert most.rows[0]["mark"] == "\u2020"
    assert any(note.startswith("\u2020: ") for note in most.notes)
    assert "mark" not in half.rows[0]
    assert "\u2020" not in " ".join(half.notes)
    bound = run_table([ran(answered("q", "Norway", counts={event: 1, "reads_gold": 1}))])
    assert bound.rows[0]["mark"] == "\u2021"
    assert [note[0] for note in bound.notes[1:]] == ["\u2021"]


# -- prices of a run over HTTP ---------------------------------------------------------------------

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
Paid = Callable[..., Evaluation]


@pytest.fixture
def paid(server: FakeServer, tmp_path: Path) -> Paid:
    """Makes a run, with a cache of its own."""
    configure_cache(tmp_path / "cache" / "lm")
    given = {"program": "vanilla", "size": 200, "limit": 4, "workers": 1, "lm": "openai/fake",
             "api_base": server.url, "price": "in=1,out=2,cached=0.25"}  # fmt: skip
    return lambda out, **over: evaluate(make_config({**given, "out": tmp_path / out, **over}))


def caching(hit: Hit) -> Fault:
    if hit.number == 1:
        return Fault("500", json={"usage": USAGE})
    cached = {"prompt_tokens_details": {"cached_tokens": 800 if hit.number > 2 else 0}}
    return Fault("changed", json={"usage": {**USAGE, **cached}})


def test_tables_show_what_was_paid_beside_the_list_price(paid: Paid, server: FakeServer) -> None:
    server.script = caching
    first = paid("run")
    summary = json.loads((first.folder / "summary.json").read_text())
    assert summary["as_if"]["cost_usd"] == pytest.approx(4 * 0.0012)
    assert summary["billed"]["list_usd"] == pytest.approx(5 * 0.0012)
    assert summary["billed"]["cost_usd"] == pytest.approx(5 * 0.0012 - 3 * 0.0006)
    assert summary["billed"]["failed_tokens"] == 1100
    [shown] = run_table([first]).rows
    assert (shown["calls"], shown["cost_usd"]) == (1.0, pytest.approx(0.0012))
    (line,) = [line for line in notes(first) if line.startswith("in all")]
    assert line.endswith("0.0042 $")
    again = reopen(first.folder)
    assert (again.summary, again.progress) == (first.summary, first.progress)
    assert summary == again.stored() == {**summary, **first.summary.to_dict()}
    assert summary["intervals"].keys() == first.summary.scores.keys()


def test_a_price_holds_for_what_was_asked_for_replies_from_the_cache_and_in_the_database(
    paid: Paid, server: FakeServer
) -> None:
    server.script = lambda hit: caching(replace(hit, number=hit.number + 1))
    sums = "SELECT round(sum(cost_usd), 9) FROM answers"
    cheap, dear = "in=1,out=2,cached=0.25", "in=100,out=200"
    for out, price, usd, billed in (
        ("run", None, None, None),
        ("run", cheap, 4 * 0.0012, 4 * 0.0012 - 3 * 0.0006),
        ("again", cheap, 4 * 0.0012, 0),  # every reply is one that had no price
        ("run", None, 4 * 0.0012, 4 * 0.0012 - 3 * 0.0006),
        ("dear", dear, 4 * 0.12, 0),
        ("run", dear, 4 * 0.12, None),
        ("unpriced", None, None, None),
    ):
        found = paid(out, price=price)
        expected = None if usd is None else pytest.approx(usd)
        for each in (found, reopen(found.folder)):
            assert each.summary.as_if.cost_usd == expected
            if billed is not None:
                assert each.summary.billed.cost_usd == pytest.approx(billed)
        assert query(found.folder, sums) == [(expected,)]
    assert len(server.hits) == 4
