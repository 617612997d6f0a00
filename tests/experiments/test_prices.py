"""List price beside price paid, from a run over HTTP to its summary and tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.experiments.config import make_config
from ragbench.experiments.report.tables import notes, run_table
from ragbench.experiments.runs import Evaluation, evaluate, reopen
from ragbench.lms import configure_cache
from tests.fake_server import FakeServer, Fault, Hit

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}


def run(server: FakeServer, out: Path, price: str | None = "in=1,out=2,cached=0.25") -> Evaluation:
    config = make_config(
        {
            "program": "vanilla", "size": 200, "limit": 4, "workers": 1, "lm": "openai/fake",
            "api_base": server.url, "price": price, "out": out,
        }
    )  # fmt: skip
    return evaluate(config)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    configure_cache(tmp_path / "cache" / "lm")


def caching(hit: Hit) -> Fault:
    if hit.number == 1:
        return Fault("500", json={"usage": USAGE})
    cached = {"prompt_tokens_details": {"cached_tokens": 800 if hit.number > 2 else 0}}
    return Fault("changed", json={"usage": {**USAGE, **cached}})


def test_tables_show_what_was_paid_where_it_is_not_the_list_price(tmp_path: Path) -> None:
    with FakeServer(caching) as server:
        first = run(server, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["as_if"]["cost_usd"] == pytest.approx(4 * 0.0012)
    assert summary["billed"]["list_usd"] == pytest.approx(5 * 0.0012)
    assert summary["billed"]["cost_usd"] == pytest.approx(5 * 0.0012 - 3 * 0.0006)
    assert summary["billed"]["failed_tokens"] == 1100
    [shown] = run_table([first]).rows
    assert (shown["calls"], shown["cost_usd"]) == (1.0, pytest.approx(0.0012))
    (line,) = [line for line in notes(first) if line.startswith("in all")]
    assert line.endswith("0.0042 $")
    assert reopen(tmp_path / "run").summary == first.summary


def test_a_price_given_later_holds_for_what_was_asked_before(tmp_path: Path) -> None:
    with FakeServer(lambda hit: caching(replace(hit, number=hit.number + 1))) as server:
        assert run(server, tmp_path / "run", price=None).summary.as_if.cost_usd is None
        priced = run(server, tmp_path / "run")
        cached = run(server, tmp_path / "again")  # every reply is one that had no price
        assert len(server.hits) == 4
        assert run(server, tmp_path / "run", price=None).summary == priced.summary
    for found in (priced, cached, reopen(tmp_path / "run")):
        assert found.summary.as_if.cost_usd == pytest.approx(4 * 0.0012)
    assert priced.summary.billed.cost_usd == pytest.approx(4 * 0.0012 - 3 * 0.0006)
    assert cached.summary.billed.cost_usd == 0
