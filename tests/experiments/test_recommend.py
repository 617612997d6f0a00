"""Advice: the program named, and what is claimed of a router, on runs made for it."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.experiments.artifacts import read_policy
from ragbench.experiments.recommend import advise
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.programs.routing import Leaf, decide, question_features
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import call

#: Whether the question is a comparison -> the chance of a right answer.
Chance = Callable[[bool], float]

TURNED: dict[str, Chance] = {
    "vanilla": lambda comparison: 0.85 if comparison else 0.25,
    "ircot": lambda comparison: 0.25 if comparison else 0.75,
    "react": lambda comparison: 0.45,
}
ALIKE: dict[str, Chance] = {name: lambda comparison: 0.5 for name in TURNED}


def make_runs(
    folder: Path, n: int, chances: dict[str, Chance], tokens: dict[str, int] | None = None
) -> list[Evaluation]:
    """Runs over `n` questions, a third of them comparisons; `tokens` of a program's one call."""
    runs = []
    for name, chance in chances.items():
        rng = random.Random(name)
        prompt = (tokens or {}).get(name, 90)
        spent = call(model="scripted/answerer", prompt_tokens=prompt, cost_usd=prompt / 1e6)
        records = [_answered(i, rng.random() < chance(i % 3 == 0)) for i in range(n)]
        ledger = {"calls": [spent], "path": {"calls": 1, "latency_s": 0.5}}
        records = [answered(**{**fields, "ledger": ledger}) for fields in records]
        identity = {**CARD["identity"], "program": name, "set": {"k": 5}}
        runs.append(reopen(make_run(folder / name, records, identity=identity)))
    return runs


def _answered(number: int, right: bool) -> dict[str, object]:
    comparison = f"Which river is longer, the Alpha{number} or the Beta{number}?"
    bridge = f"Who is the mother of the director of the film Gamma{number} Delta?"
    return {
        "qid": f"q{number}", "answer": "Norway" if right else "Sweden",
        "question": bridge if number % 3 else comparison, "gold_pids": [f"g{number}"],
    }  # fmt: skip


def recommended(*given: object) -> str:
    done = CliRunner().invoke(cli, ["recommend", *map(str, given)])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_cheapest_not_shown_worse_is_named_in_whatever_order(tmp_path: Path) -> None:
    tokens = {"vanilla": 990, "ircot": 490, "react": 90}
    runs = make_runs(tmp_path / "runs", 60, ALIKE, tokens)
    advised = [advise(list(order)) for order in itertools.permutations(runs)]
    assert {each.use.label for each in advised} == {"react"}
    assert len({tuple(each.sentences()) for each in advised}) == 1
    for number, run in enumerate(runs):
        records = list(run.records.values())
        random.Random(number).shuffle(records)
        make_run(tmp_path / "shuffled" / run.folder.name, records, identity=run.card.identity)
    shuffled = [reopen(tmp_path / "shuffled" / name) for name in ALIKE]
    assert advise(shuffled).sentences() == advised[0].sentences()
    best = advised[0].best
    assert best.mean == max(arm.mean for arm in advised[0].arms)
    difference = advised[0].difference
    assert difference is not None
    assert difference.difference == pytest.approx(best.mean - advised[0].use.mean)


def test_a_dearer_program_is_named_where_it_is_shown_better(tmp_path: Path) -> None:
    better: dict[str, Chance] = {"vanilla": lambda _: 0.3, "ircot": lambda _: 0.9}
    runs = make_runs(tmp_path, 100, better, {"vanilla": 90, "ircot": 990})
    advice = advise(runs)
    assert (advice.use.label, advice.difference) == ("ircot", None)
    assert "shown better than every cheaper program" in advice.sentences()[0]


def test_a_router_that_gains_is_recommended(tmp_path: Path) -> None:
    runs, out = make_runs(tmp_path / "runs", 150, TURNED), tmp_path / "policy.json"
    folders = [run.folder for run in runs]
    assert "router" not in recommended(*folders)
    assert "use the router: it gains +" in recommended(*folders, "--router", "-o", out)
    policy = read_policy(out)
    comparison, bridge = (str(_answered(n, True)["question"]) for n in (0, 1))
    chosen = [decide(policy.rule, question_features(q))[0] for q in (comparison, bridge)]
    assert [policy.programs[n].program for n in chosen] == ["vanilla", "ircot"]
    assert len(policy.learned_from.ids) == 150


def test_where_programs_are_alike_no_router_is_recommended(tmp_path: Path) -> None:
    runs, out = make_runs(tmp_path / "runs", 120, ALIKE), tmp_path / "policy.json"
    shown = recommended(*(run.folder for run in runs), "--router", "-o", out)
    assert "no router: " in shown
    assert isinstance(read_policy(out).rule, Leaf)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["RUN"], "give two runs or more"),
        (["RUN", "RUN", "--metric", "tokens"], "no measure of accuracy"),
        (["RUN", "RUN", "--metric", "f2"], "no metric named 'f2'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, given: list[str], words: str) -> None:
    [run] = make_runs(tmp_path, 3, {"vanilla": lambda comparison: 1.0})
    words_given = [str(run.folder) if word == "RUN" else word for word in given]
    done = CliRunner().invoke(cli, ["recommend", *words_given])
    assert done.exit_code != 0
    assert words in str(done.exception)
