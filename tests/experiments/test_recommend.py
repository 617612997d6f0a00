"""Advice on runs made for it; and its router, a policy run as a program on other questions."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.artifacts import read_policy
from ragbench.experiments.recommend import advise
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store import read_records
from ragbench.programs.routing import Candidate, Leaf, Policy, Router, decide, question_features
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.fake_server import FakeServer
from tests.fakes import plausible
from tests.kills import write_questions
from tests.metrics.records import call
from tests.programs.shelf import ask, shelf

#: Whether the question is a comparison -> the chance of a right answer.
Chance = Callable[[bool], float]

TURNED: dict[str, Chance] = {
    "vanilla": lambda comparison: 0.85 if comparison else 0.25,
    "ircot": lambda comparison: 0.25 if comparison else 0.75,
    "react": lambda comparison: 0.45,
}
ALIKE: dict[str, Chance] = {name: lambda comparison: 0.5 for name in TURNED}
#: Comparisons go to the second program.
RULE = {"feature": "comparison", "at_least": 0.5, "yes": {"program": 1}, "no": {"program": 0}}
BOTH = "Are Orla Venn and Tam Quill both writers?"
ONE = "Where was Orla Venn born?"


def make_runs(
    folder: Path, n: int, chances: dict[str, Chance], tokens: dict[str, int] | None = None
) -> list[Evaluation]:
    """Runs over `n` questions, a third of them comparisons; `tokens` of a program's one call."""
    runs = []
    for name, chance in chances.items():
        rng, prompt = random.Random(name), (tokens or {}).get(name, 90)
        spent = call(model="scripted/answerer", prompt_tokens=prompt, cost_usd=prompt / 1e6)
        ledger = {"calls": [spent], "path": {"calls": 1, "latency_s": 0.5}}
        records = [
            answered(
                f"q{i}", "Norway" if rng.random() < chance(i % 3 == 0) else "Sweden",
                question=question(i), gold_pids=[f"g{i}"], ledger=ledger,
            )
            for i in range(n)
        ]  # fmt: skip
        identity = {**CARD["identity"], "program": name, "set": {"k": 5}}
        runs.append(reopen(make_run(folder / name, records, identity=identity)))
    return runs


def question(number: int) -> str:
    if number % 3:
        return f"Who is the mother of the director of the film Gamma{number} Delta?"
    return f"Which river is longer, the Alpha{number} or the Beta{number}?"


def test_the_cheapest_not_shown_worse_is_named_in_whatever_order(tmp_path: Path) -> None:
    tokens = {"vanilla": 990, "ircot": 490, "react": 90}
    runs = make_runs(tmp_path / "runs", 60, ALIKE, tokens)
    advised = [advise(list(order)) for order in itertools.permutations(runs)]
    assert {each.use.label for each in advised} == {"react"}
    turned = [
        make_run(tmp_path / run.folder.name, [*run.records.values()][::-1], **run.card.model_dump())
        for run in runs
    ]
    advised.append(advise([reopen(folder) for folder in turned]))
    assert len({tuple(each.sentences()) for each in advised}) == 1
    best, difference = advised[0].best, advised[0].difference
    assert best.mean == max(arm.mean for arm in advised[0].arms)
    assert difference.difference == pytest.approx(best.mean - advised[0].use.mean)
    better: dict[str, Chance] = {"vanilla": lambda _: 0.3, "ircot": lambda _: 0.9}
    dearer = advise(make_runs(tmp_path / "dear", 100, better, {"vanilla": 90, "ircot": 990}))
    assert (dearer.use.label, dearer.difference) == ("ircot", None)
    assert "shown better than every cheaper program" in dearer.sentences()[0]


def test_a_router_is_recommended_only_where_it_gains(tmp_path: Path, command: Any) -> None:
    out = tmp_path / "policy.json"
    folders = [run.folder for run in make_runs(tmp_path / "runs", 150, TURNED)]
    assert "router" not in command("recommend", *folders)[1]
    said = command("recommend", *folders, "--router", "-o", out)[1]
    assert "use the router: it gains +" in said
    learned = read_policy(out)
    chosen = [decide(learned.rule, question_features(question(n)))[0] for n in (0, 1)]
    assert [learned.programs[n].program for n in chosen] == ["vanilla", "ircot"]
    assert len(learned.learned_from.ids) == 150
    folders = [run.folder for run in make_runs(tmp_path / "alike", 120, ALIKE)]
    assert "no router: " in command("recommend", *folders, "--router", "-o", out)[1]
    assert isinstance(read_policy(out).rule, Leaf)


# -- the router ------------------------------------------------------------------------------------


def test_each_question_is_answered_by_the_program_of_the_rule() -> None:
    programs = [
        Candidate(label="the simple one", program="vanilla", set={"k": 2}),
        Candidate(label="the other", program="ircot", set={"max_steps": 2}),
    ]
    policy = {"format": 2, "metric": "f1", "rule": RULE, "programs": programs}
    router = Router(shelf(), Policy.model_validate(policy))
    prediction, lm, ledger = ask(router, plausible, ONE)
    route, *rest = prediction.steps
    assert (route.action, route.observation) == ("route", "the simple one")
    assert route.thought == "it asks for no comparison"
    assert route.notes["program"] == "vanilla"
    assert [(step.action, step.calls) for step in rest] == [("answer", (0,))]
    assert len(lm.asked) == len(ledger.calls) == 1
    assert [search.k for search in prediction.searches] == [2]
    other, _, _ = ask(router, plausible, BOTH)
    assert other.steps[0].observation == "the other"
    assert other.steps[1].action != "route"


def test_a_policy_is_learned_and_run_on_other_questions(
    tmp_path: Path, server: FakeServer, command: Any
) -> None:
    data = ["--data-file", write_questions(tmp_path, 20)]
    lm = ["--lm", "openai/fake", "--api-base", server.url, "--no-cache", "--workers", 2]
    runs, learned = [tmp_path / "vanilla", tmp_path / "direct"], tmp_path / "learned.json"
    for run in runs:
        given = ["--program", run.name, "--split", "train", "--out", run]
        assert command("eval", *data, *lm, *given)[0] == 0
    said = command("recommend", *runs, "--router", "-o", learned)[1]
    assert "not enough questions" in said
    learned.write_text(json.dumps({**json.loads(learned.read_text()), "rule": RULE}))
    routed = ["--program", "router", "--policy", learned]
    assert command("eval", *data, *lm, *routed, "--out", tmp_path / "out")[0] == 0
    again = command("eval", *data, *lm, *routed, "--split", "train")[2]
    assert "was learned from 8 of these 8 questions" in again
    assert "no prompts of its own" in command("compile", *routed, *data)[2]
    records = read_records(tmp_path / "out")
    assert len(records) == 8  # the test split, although a file is asked whole otherwise
    for record in records.values():
        assert (record.steps[0].action, record.ledger.as_if.calls) == ("route", 1)
