"""Advice: what is claimed of a router, on runs made so that it can gain and so that it cannot."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ragbench as rb
from benchmarks.advice import simulate
from ragbench.cli.main import cli
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import read_policy
from ragbench.experiments.recommend import Limits, gather, recommend
from ragbench.experiments.recommend.rules import folds
from ragbench.experiments.recommend.trees import assign, best_trees, make_splits
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.programs.routing import (
    Leaf,
    decide,
    group_of,
    leaves,
    question_features,
    score_features,
)
from ragbench.record import Record, Search
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
        spent = call(model="scripted/answerer", prompt_tokens=(tokens or {}).get(name, 90))
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


def test_a_router_that_gains_is_recommended(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs", 150, TURNED)
    out = tmp_path / "policy.json"
    given = ["recommend", *(str(tmp_path / "runs" / name) for name in TURNED), "-o", str(out)]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0, done.output
    assert "use the router: it gains +" in done.output
    policy = read_policy(out)
    comparison, bridge = (str(_answered(n, True)["question"]) for n in (0, 1))
    chosen = [decide(policy.rule, question_features(q))[0] for q in (comparison, bridge)]
    assert [policy.programs[n].program for n in chosen] == ["vanilla", "ircot"]
    assert policy.evidence["shown"] is True
    assert len(policy.learned_from.ids) == 150
    assert policy.not_runnable == ""
    assert {"words", "comparison", "hops"} <= {*policy.features}
    assert [each.identity["program"] for each in policy.programs] == [*TURNED]


def test_where_programs_are_alike_no_router_is_recommended(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs", 120, ALIKE)
    out = tmp_path / "policy.json"
    given = ["recommend", *(str(tmp_path / "runs" / name) for name in ALIKE), "-o", str(out)]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0, done.output
    assert "no gain from routing is shown" in done.output
    assert isinstance(read_policy(out).rule, Leaf)


def test_python_gives_the_advice_and_writes_the_policy(tmp_path: Path) -> None:
    runs = make_runs(tmp_path, 60, TURNED)
    out = tmp_path / "policy.json"
    advice = rb.recommend(*(run.folder for run in runs), objective="em", policy=out)
    assert advice.asked.objective == read_policy(out).objective == "em"
    assert advice.gain is not None
    assert [arm.name for arm in advice.programs] == [*TURNED]


def test_few_questions_are_not_enough(tmp_path: Path) -> None:
    runs = make_runs(tmp_path, 30, TURNED)
    done = CliRunner().invoke(cli, ["recommend", *(str(run.folder) for run in runs)])
    assert "not enough questions: 30" in done.output
    advice = recommend(gather(runs, "f1"))
    assert (advice.gain, advice.shown, isinstance(advice.rule_used, Leaf)) == (None, False, True)


def test_questions_of_one_passage_count_once(tmp_path: Path) -> None:
    runs = make_runs(tmp_path, 60, TURNED)
    same = [
        reopen(
            make_run(
                run.folder.with_name(f"{run.folder.name}-linked"),
                [
                    answered(r.qid, r.answer_text, question=r.question, gold_pids=[f"g{n // 2}"])
                    for n, r in enumerate(run.records.values())
                ],
                identity=run.card.identity,
            )
        )
        for run in runs
    ]
    assert recommend(gather(same, "f1")).clusters == 30


def test_simulated_claims() -> None:
    """A few of the sets of benchmarks/advice.py, which measures the shares over 200 of each."""
    null = [recommend(simulate(n, 60, lead=0.0, signal=0.0, cluster=1)) for n in range(6)]
    turned = [recommend(simulate(n, 200, lead=0.0, signal=0.35, cluster=1)) for n in range(2)]
    assert sum(advice.shown for advice in null) <= 1
    assert all(advice.shown for advice in turned)


def test_the_best_of_many_alike_is_not_flattered() -> None:
    advice = recommend(simulate(3, 60, lead=0.0, signal=0.0, cluster=1, programs=12))
    assert advice.single is not None
    assert advice.single.mean < advice.programs[advice.best].mean - 0.03
    assert sum(advice.chosen) == 25


def test_limits_are_kept_by_the_best_program_and_the_rule(tmp_path: Path) -> None:
    better: dict[str, Chance] = {
        "vanilla": lambda comparison: 0.8 if comparison else 0.2,
        "ircot": lambda comparison: 0.8,
    }
    runs = make_runs(tmp_path, 150, better, {"vanilla": 90, "ircot": 990})
    free = recommend(gather(runs, "f1"))
    assert runs[free.best].card.program == "ircot"
    advice = recommend(gather(runs, "f1", Limits(tokens=750)))
    assert runs[advice.best].card.program == "vanilla"
    assert advice.shown
    used = {leaf.program: leaf.n for _, leaf in leaves(advice.rule_used)}
    assert (100 * used[0] + 1000 * used[1]) / 150 <= 750
    assert advice.oracle is not None
    assert (advice.oracle.spending["tokens"] or 0) <= 750
    with pytest.raises(ConfigError, match="the cheapest takes 100"):
        gather(runs, "f1", Limits(tokens=50))


def test_scores_of_a_search_for_the_question_are_features(tmp_path: Path) -> None:
    def searched(record: Record, k: int) -> Record:
        hits = [["p1", 9.0], ["p2", 6.0], ["p3", 3.0]]
        search = Search(record.question, k, tuple((p, s) for p, s in hits), 0.01)  # type: ignore[misc]
        return answered(record.qid, "Norway", question=record.question, searches=[search])

    runs = make_runs(tmp_path, 4, ALIKE)
    plain = gather(runs, "f1")
    assert plain.search_k is None
    records = [searched(record, 3) for record in runs[0].records.values()]
    runs[0] = reopen(make_run(tmp_path / "searched", records, identity=runs[0].card.identity))
    assert gather(runs, "f1").search_k == 3
    assert score_features([9.0, 6.0, 3.0]) == pytest.approx(
        {"top_score": 9.0, "score_lead": 1 / 3, "score_fall": 2 / 3}
    )


def test_the_best_tree_is_found() -> None:
    """Against every tree of depth two, tried one by one."""
    rng = np.random.default_rng(1)
    values, worth = rng.integers(0, 4, (40, 2)).astype(float), rng.random((40, 3))
    holds = make_splits(("words", "names"), values).holds
    least, best = 5, 0.0
    for root in range(holds.shape[1]):
        value = 0.0
        for side in (holds[:, root], ~holds[:, root]):
            if side.sum() < least:
                value = -np.inf
                continue
            ways = [worth[side].sum(axis=0).max()]
            for second in range(holds.shape[1]):
                parts = (side & holds[:, second], side & ~holds[:, second])
                if min(part.sum() for part in parts) >= least:
                    ways.append(sum(worth[part].sum(axis=0).max() for part in parts))
            value += max(ways)
        best = max(best, value)
    trees = best_trees(worth, holds, least)
    reached = [worth[np.arange(40), assign(tree, holds)].sum() for tree in trees]
    assert reached[2] == pytest.approx(best)
    assert reached[0] <= reached[1] <= reached[2]


def test_folds_keep_clusters_whole() -> None:
    clusters = [n // 3 for n in range(31)]
    seen: list[int] = []
    for inside, outside in folds(clusters, 5, np.random.default_rng(0)):
        assert not {clusters[i] for i in inside} & {clusters[i] for i in outside}
        seen += outside.tolist()
    assert sorted(seen) == list(range(31))


@pytest.mark.parametrize(
    ("question", "group"),
    [
        ("Are Ann Lee and Bo Dan both writers?", "comparison"),
        ("Who is older, Ann Lee or Bo Dan?", "comparison"),
        ("Which film came out first, Red Sky or Blue Sea?", "comparison"),
        ("Where was the author of Red Sky born?", "2 hops"),
        ("Where was the mother of the author of Red Sky born?", "3 hops"),
        ("Who wrote Red Sky?", "1 hop"),
        ("", "1 hop"),
    ],
)
def test_the_kind_of_a_question_is_predicted_from_its_wording(question: str, group: str) -> None:
    assert group_of(question) == group


def test_a_question_of_any_text_has_features() -> None:
    for text in ("", "?", "\x00" * 50, "A " * 20_000, "\u202eWho and Or " * 500, "'s" * 5_000):
        assert all(np.isfinite(value) for value in question_features(text).values())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["RUN"], "give two runs or more"),
        (["RUN", "RUN", "--objective", "tokens"], "no measure of accuracy"),
        (["RUN", "RUN", "--objective", "f2"], "no metric named 'f2'"),
        (["RUN", "nowhere"], "not a run folder"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, given: list[str], words: str) -> None:
    [run] = make_runs(tmp_path, 3, {"vanilla": lambda comparison: 1.0})
    words_given = [str(run.folder) if word == "RUN" else word for word in given]
    done = CliRunner().invoke(cli, ["recommend", *words_given])
    assert done.exit_code != 0
    assert words in str(done.exception)


def test_a_policy_that_was_changed_is_refused(tmp_path: Path) -> None:
    runs = make_runs(tmp_path / "runs", 3, ALIKE)
    out = tmp_path / "policy.json"
    CliRunner().invoke(cli, ["recommend", *(str(run.folder) for run in runs), "-o", str(out)])
    out.write_text(json.dumps({**json.loads(out.read_text()), "objective": "em"}, indent=2))
    with pytest.raises(RunError, match="changed after it was written"):
        read_policy(out)
