"""A race asks what the decision needs, loses no best program, and is what its records say."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ragbench.experiments.cells.choose import Field, blocks
from ragbench.experiments.choose.racing import Race, Rule
from ragbench.metrics import get_metric
from ragbench.record import Totals
from ragbench.retrievers.embedders import local, make_embedder
from tests.fake_server import FakeServer

#: Modules of known quality: right on so many of ten questions, with so many calls each.
PROGRAMS = """
import hashlib
import dspy


def luck(question):
    return int(hashlib.sha256(question.encode()).hexdigest(), 16) % 10


class Known(dspy.Module):
    right, calls = 5, 1

    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question, number -> answer")

    def forward(self, question):
        for number in range(self.calls):
            self.answer(question=question, number=str(number))
        known = luck(question) < self.right
        return dspy.Prediction(answer="yes" if known else "no")


class Poor(Known):
    right = 2


class Good(Known):
    right = 8


class Dear(Known):
    right, calls = 8, 3
"""


@pytest.fixture
def towns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the modules, and with questions whose answer is yes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PROGRAMS)
    rows = [{"id": f"q{n}", "question": f"Is {n} a number?", "answer": "yes"} for n in range(400)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def choose(
    command: Callable[..., tuple[int, str, str]], server: FakeServer, *more: str
) -> tuple[int, str, str]:
    programs = "mine.py:Poor,mine.py:Good,mine.py:Dear"
    return command(
        "choose", "--programs", programs, "--data-file", "q.jsonl", "--lm",
        f"openai/small@{server.url}", "--price", "in=1,out=1", "--metric", "em", "--out", "race",
        "--docs", "docs", "--workers", "8", *more,
    )  # fmt: skip


def test_the_worse_and_the_dearer_leave_early_and_records_give_the_same(
    command: Callable[..., tuple[int, str, str]], server: FakeServer, towns: Path
) -> None:
    (towns / "docs").mkdir()
    (towns / "docs" / "a.txt").write_text("Numbers are numbers.")
    code, out, err = choose(command, server, "--min-gain", "0.2")
    assert code == 0, err
    assert out.startswith("use mine.py:Good: em 0.")
    stored = json.loads((towns / "race" / "experiment.json").read_text())["results"]
    reasons = {left["program"]: left["reason"] for left in stored["exits"]}
    assert reasons == {"mine.py:Poor": "beaten", "mine.py:Dear": "not worth it"}
    assert stored["share"] < 0.5
    asked = len(server.hits)
    assert choose(command, server, "--min-gain", "0.2")[1] == out  # continued: nothing to ask
    assert len(server.hits) == asked

    runs = sorted((towns / "race" / "cells").iterdir())
    given = [word for run in runs for word in ("--replay", str(run))]
    code, again, err = command("choose", *given, "--metric", "em", "--min-gain", "0.2")
    assert code == 0, err
    assert "use Good" in again or "use mine.py:Good" in again


def test_a_limit_ends_a_race_undecided_and_the_same_command_goes_on(
    command: Callable[..., tuple[int, str, str]], server: FakeServer, towns: Path
) -> None:
    (towns / "docs").mkdir()
    (towns / "docs" / "a.txt").write_text("Numbers are numbers.")
    code, out, _ = choose(command, server, "--max-calls", "40")
    assert code == 3
    assert "undecided" in out
    assert len(server.hits) <= 40
    code, out, err = choose(command, server, "--min-gain", "0.2", "--max-calls", "5000")
    assert code == 0, err
    assert "use mine.py:Good" in out


def test_choose_dry_run_downloads_no_embedder(
    command: Callable[..., tuple[int, str, str]], server: FakeServer, towns: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def download(name: str) -> None:
        raise AssertionError(f"{name} was downloaded")

    monkeypatch.setattr(local, "ensure", download)
    make_embedder.cache_clear()
    (towns / "docs").mkdir()
    (towns / "docs" / "a.txt").write_text("Numbers are numbers.")
    for retriever in ("dense", "hybrid"):
        code, out, err = choose(command, server, "--retriever", retriever, "--dry-run")
        assert code == 0, err
        assert "all questions with 3 programs" in out
    make_embedder.cache_clear()
    assert server.hits == []


def test_choose_without_any_answer_ends_with_its_state(
    command: Callable[..., tuple[int, str, str]], server: FakeServer, towns: Path
) -> None:
    (towns / "docs").mkdir()
    (towns / "docs" / "a.txt").write_text("Numbers are numbers.")
    code, out, err = choose(command, server, "--max-cost", "0.0000001")
    assert code == 3, err
    assert "undecided: no program has an answer yet (--max-cost 1e-07)" in out
    stored = json.loads((towns / "race" / "experiment.json").read_text())
    assert stored["stopped_by"] == "--max-cost 1e-07"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--programs", "vanilla"), "at least two programs"),
        (("--programs", "vanilla,vanila"), "did you mean vanilla"),
        (("--programs", "vanilla,vanilla"), "names vanilla twice"),
        (("--programs", "vanilla,direct", "--metric", "calls"), "race by em or f1"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...],
    message: str,
    command: Callable[..., tuple[int, str, str]],
    server: FakeServer,
) -> None:
    code, _, err = command("choose", "--lm", f"openai/small@{server.url}", *words)
    assert code == 2
    assert message in err
    assert not server.hits


def test_no_cluster_is_cut_by_a_look() -> None:
    field = Field(["vanilla", "ircot"], Rule(), "f1")
    ordered = field.start(range(60), [str(n % 30) for n in range(60)])
    assert ordered == [n // 2 + 30 * (n % 2) for n in range(60)]
    assert field.clusters == [str(n // 2) for n in range(60)]
    assert field.race.largest == 2
    parts = list(blocks(field.clusters, least=3))
    assert [part.stop for part in parts] == [*range(4, 61, 4)]


def _race(scores: np.ndarray[Any, Any], costs: list[float], rule: Rule) -> Race:
    programs, questions = scores.shape
    race = Race(programs, rule)
    for end in range(20, questions + 1, 20):
        if race.over:
            break
        block = scores[:, end - 20 : end].copy()
        block[[number for number in range(programs) if number not in race.running]] = np.nan
        so_far = np.repeat(np.array(costs, dtype=float)[:, None], end, axis=1)
        race.look(block, so_far, np.zeros_like(block), range(end - 20, end))
    return race


#: Shares of the capital that a bet stakes side by side.
STAKES = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)


def _won(bet: float, limit: float) -> int:
    """The number of bets that gain `bet` each, by which the capital reaches `limit`."""
    capital, number = 1.0, 0
    while capital < limit:
        number += 1
        capital = sum((1 + stake * bet) ** number for stake in STAKES) / len(STAKES)
    return number


def _exit_of(
    rule: Rule, scores: list[float], costs: list[float], seconds: float = 0.0, size: int = 1,
    largest: int = 1,
) -> tuple[str, int] | None:  # fmt: skip
    """Why and after how many questions the first program leaves, one look a cluster of `size`."""
    race = Race(len(scores), rule, largest=largest)
    for number in range(1, 400):
        block = np.repeat(np.array(scores)[:, None], size, axis=1)
        late = np.zeros_like(block)
        late[-1] = seconds
        so_far = np.repeat(np.array(costs)[:, None], number * size, axis=1)
        if left := race.look(block, so_far, late, [f"c{number}"] * size):
            return left[0].reason, left[0].questions
    return None


@pytest.mark.parametrize(
    ("rule", "scores", "costs", "wanted"),
    [
        # One rule in use, then two; three programs; a cluster counts by its size.
        (Rule(min_gain=0), [0.0, 1.0], [1.0, 1.0], ("beaten", _won(1, 1 / 0.05))),
        (Rule(min_gain=0.1), [0.0, 1.0], [1.0, 1.0], ("beaten", _won(1, 2 / 0.05))),
        (Rule(min_gain=0), [0.0, 1.0, 1.0], [1.0] * 3, ("beaten", _won(1, 2 / 0.05))),
        (Rule(min_gain=0.25), [0.5, 0.5], [1.0, 2.0], ("not worth it", _won(0.2, 2 / 0.05))),
        (Rule(min_gain=0.25), [0.5, 0.5], [1.0, 1.2], None),  # within the minimum gain
        (Rule(min_gain=0, max_p95=3.0), [0.0] * 4, [1.0] * 4, None),
    ],
)
def test_race_drops_a_program_at_the_bet_that_pays_for_all(
    rule: Rule, scores: list[float], costs: list[float], wanted: tuple[str, int] | None
) -> None:
    assert _exit_of(rule, scores, costs) == wanted
    if wanted and wanted[0] == "beaten":
        reason, _ = wanted
        halves = _won(0.5, (len(scores) - 1) * (2 if rule.min_gain else 1) / 0.05)
        assert _exit_of(rule, scores, costs, size=2, largest=4) == (reason, 2 * halves)


def test_race_drops_slow_programs_by_a_limit_for_all_of_them() -> None:
    rule = Rule(min_gain=0, max_p95=3.0)
    late = _won((1 - 0.05) / 0.05, 4 / 0.05)
    assert _exit_of(rule, [0.0] * 4, [1.0] * 4, seconds=5.0) == ("too slow", late)


def test_race_keeps_a_program_that_is_cheaper_but_for_questions_that_run_away() -> None:
    """B is .05 better and 20 % cheaper: A runs away on one question in 100."""
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(40):
        race = Race(2, Rule(min_gain=0.2))
        costs = np.stack([np.where(rng.random(400) < 0.01, 35.0, 0.9), np.ones(400)])
        scores = (rng.random((2, 400)) < np.array([[0.5], [0.55]])).astype(float)
        for end in range(20, 401, 20):
            if not race.over:
                race.look(scores[:, end - 20 : end], costs[:, :end], 0 * scores[:, :20], range(20))
        lost += 1 not in race.running
    assert lost <= 2


def test_costs_of_a_race_have_the_index_and_a_missing_score_is_the_worst() -> None:
    field = Field(["a", "b"], Rule(), "em")
    for name, usd in (("a", None), ("b", 0.5)):
        amounts = {"cost_usd": usd, "tokens": 30.0}
        columns = {get_metric(unit).score: {"q": amount} for unit, amount in amounts.items()}
        run: Any = SimpleNamespace(
            records=SimpleNamespace(column=columns.__getitem__),
            prepared=Totals(prompt_tokens=70, cost_usd=0.1),
        )
        field.runs[name] = run
    field._asked = ["q"]
    assert field._costs().tolist() == [[100.0], [100.0]]
    field.race.running = [1]
    assert field._costs()[1].tolist() == [0.6]
    columns[get_metric("em").score] = {"q": None}
    assert field._columns("em", ["q"])[1].tolist() == [0.0]


@pytest.mark.parametrize("seed", range(2))
def test_equal_programs_end_at_the_cheapest_and_the_best_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    equal = (rng.random((4, 1000)) < 0.5).astype(float)
    assert _race(equal, [4, 3, 2, 1], Rule(min_gain=0)).running == [0, 1, 2, 3]
    race = _race(equal, [4, 3, 2, 1], Rule(min_gain=0.2))
    assert race.running == [3]
    assert {left.reason for left in race.exits} == {"not worth it"}
    better = np.concatenate([equal, np.ones((1, 1000))])
    assert _race(better, [1, 1, 1, 1, 9], Rule(min_gain=0.2)).running == [4]
