"""Advice on runs made for it, for all questions and by their kind."""

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import CompareError
from ragbench.experiments.compare.family import Family
from ragbench.experiments.recommend import RankedProgram, advise, decide, required_sample_size
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.metrics import compare_scores, correct as corrected
from tests.experiments.scored_runs import CARD, answered, make_run, study
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
    folder: Path,
    n: int,
    chances: dict[str, Chance],
    tokens: dict[str, int] | None = None,
    hops: int | None = 2,
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
                question=question(i), hops=hops, qtype="bridge" if i % 3 else "comparison",
                extra={"cluster": f"c{i}"}, ledger=ledger,
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


def table_row(out: str, program: str) -> str:
    return next(line for line in out.splitlines() if line.startswith(f"| {program} "))


def fixed(right: dict[str, int]) -> dict[str, Chance]:
    """Chances of 1 or 0: the first so many questions are right; a call for each question."""
    chances: dict[str, Chance] = {}
    for name, count in right.items():
        counter = itertools.count()
        chances[name] = lambda _, c=counter, n=count: float(next(c) < n)  # type: ignore[misc]
    return chances


def test_advice_is_the_same_in_whatever_order(tmp_path: Path) -> None:
    tokens = {"vanilla": 990, "ircot": 490, "react": 90}
    runs = make_runs(tmp_path / "runs", 60, ALIKE, tokens)
    advised = [advise(list(order)) for order in itertools.permutations(runs)]
    turned = [
        make_run(tmp_path / run.folder.name, [*run.records.values()][::-1], **run.card.model_dump())
        for run in runs
    ]
    advised.append(advise([reopen(folder) for folder in turned]))
    assert len({tuple(each.sentences()) for each in advised}) == 1
    best = advised[0].best
    assert best.mean == max(arm.mean for arm in advised[0].arms)
    for arm in advised[0].arms:
        if arm is not best:
            assert arm.to_best.difference == pytest.approx(arm.mean - best.mean)


FAR = {"vanilla": 30, "ircot": 90}


@pytest.mark.parametrize(
    ("n", "right", "dear", "options", "said"),
    [
        # Four questions show nothing, whichever program is the cheapest.
        (4, {"vanilla": 1, "ircot": 4}, ["ircot"], (), "undecided: 4 questions are too few"),
        # Unlike enough, or so alike that the more expensive one is not worth it.
        (100, FAR, ["ircot"], (), "use ircot: it scores highest, and vanilla"),
        (100, FAR, ["vanilla"], (), "use ircot: it scores highest, and vanilla"),
        (100, FAR, ["ircot"], ("--min-gain", 0.7), "use vanilla: no other program gains 0.7"),
        (400, {"vanilla": 200, "ircot": 201}, ["ircot"], (), "use vanilla: no other program gains"),
        (60, {"vanilla": 30, "ircot": 34}, ["ircot"], (), "ircot scores highest; undecided"),
        (12, {"vanilla": 5, "ircot": 6}, ["vanilla"], (), "ircot scores highest at the lowest"),
        (
            100,
            {"vanilla": 40, "ircot": 60, "react": 90},
            ["vanilla", "ircot", "react"],
            (),
            "use react: it scores highest, and all others are significantly worse",
        ),
    ],
)
def test_a_cheaper_program_is_advised_only_where_it_is_shown_as_good(
    n: int, right: dict[str, int], dear: list[str], options: tuple[str, ...], said: str,
    tmp_path: Path, command: Any,
) -> None:  # fmt: skip
    tokens = dict.fromkeys(right, 90) | dict.fromkeys(dear, 990)
    folders = [run.folder for run in make_runs(tmp_path / "runs", n, fixed(right), tokens)]
    out = command("recommend", *folders, "--metric", "em", *options)[1]
    assert out.startswith(said)
    assert f"{n} questions, all shared" in out
    if "scores highest" in said and not said.startswith("use"):
        assert re.search(r"undecided.* \(about \d+ questions would tell\)", out)
    elif n < 10:
        assert not re.search(r"about [\d,]+ questions", out)
    words = table_row(out, "vanilla").rstrip(" |")
    if said.startswith("use ircot") and dear == ["ircot"]:
        assert words.endswith("cheaper, significantly worse")
        assert "| -0.600 [-0.6" in words
    elif len(dear) == 3:  # equally expensive programs are not cheaper
        assert words.endswith("| significantly worse")
    assert command("recommend", *folders, "--min-gain", "0")[0] == 2


def test_of_cheaper_programs_as_good_the_cheapest_is_advised(tmp_path: Path, command: Any) -> None:
    right = {"vanilla": 199, "ircot": 200, "react": 201}
    tokens = {"vanilla": 90, "ircot": 490, "react": 990}
    folders = [run.folder for run in make_runs(tmp_path / "runs", 400, fixed(right), tokens)]
    out = command("recommend", *folders, "--metric", "em")[1]
    said = (
        "use vanilla: no other program gains 0.05 or more over it, and it costs 91 % less than "
        "react, which scores highest"
    )
    assert out.startswith(said)
    assert "cheaper, not significantly worse" in table_row(out, "ircot")
    # Shown worse and yet by less than it is worth is as good; a clear loss is not.
    advised = advise(make_runs(tmp_path / "few", 60, fixed({"vanilla": 20, "ircot": 24})), "em")
    needed = required_sample_size(advised.arms[1].to_best, 0.05, advised.family.tests, cheaper=True)
    assert needed is not None
    assert needed > 60
    shown = advised.arms[1].to_best.planned(advised.family.tests)
    assert shown.power(4 / 60, advised.arms[1].to_best.sd ** 2, needed) >= 0.8


def test_recommend_if_another_program_may_gain_more_is_undecided() -> None:
    """A more expensive one is .10 better in truth, and ten questions do not show it."""
    rng = np.random.default_rng(0)
    for n, spared in ((10, 0), (50, 1)):
        wrong = 0
        for _ in range(60):
            cheap = (rng.random(n) < 0.5).astype(float)
            better = np.where(rng.random(n) < 0.2, 1.0, cheap)
            tests = {(0, 1): corrected([compare_scores(cheap, better)])[0]}
            arms = []
            for label, scores in (("cheap", cheap), ("expensive", better)):
                spending = {"calls": float(len(label))}
                arms.append(
                    RankedProgram((), float(scores.mean()), None, spending, 0, 1, label=label)
                )
            best = int(better.mean() > cheap.mean())
            family = Family("em", (), {}, tuple(arms), best, None, "calls", tests)
            wrong += decide(arms, family, 0.05, n).use == 0
        assert wrong <= 60 * 0.05 + spared


@pytest.mark.parametrize("alike", [1, 6])
def test_recommend_corrects_for_the_programs_that_could_be_advised(alike: int) -> None:
    """One test at p .03 is an advice alone, and none among six."""
    base = np.arange(400) % 2.0
    for gained in range(0, 40, 2):
        better = np.where(np.arange(400) < gained, 1.0, base)
        gap = compare_scores(base, better).p_gains(0.05)
        if gap > 0.02:
            break
    assert 0.02 < gap < 0.05
    rows = [base] * alike + [better]
    arms = [
        RankedProgram((), float(row.mean()), None, {"calls": 1.0 + at}, 0, 1, label=str(at))
        for at, row in enumerate(rows)
    ]
    tests = {(a, b): compare_scores(rows[a], rows[b]) for a in range(alike) for b in [alike]}
    family = Family("em", (), {}, tuple(arms), alike, None, "calls", tests)
    used = decide(arms, family, 0.05, 400).use
    assert (used == 0) == (alike == 1)


def test_a_run_over_three_questions_does_not_change_the_advice(
    tmp_path: Path, command: Any
) -> None:
    right = {"vanilla": 30, "ircot": 90}
    tokens = {"vanilla": 90, "ircot": 990, "react": 10}
    folders = [run.folder for run in make_runs(tmp_path / "runs", 100, fixed(right), tokens)]
    alone = command("recommend", *folders)[1]
    few = [run.folder for run in make_runs(tmp_path / "few", 3, fixed({"react": 3}), tokens)]
    out = command("recommend", *folders, *few)[1]
    assert out.splitlines()[0] == alone.splitlines()[0]
    assert "100 questions, all shared" in out
    assert "left out: react, which has 3 of 100 questions" in out
    assert "left out: react" in command("recommend", folders[0], *few)[2]


def test_a_run_that_shows_nothing_is_weighed_if_asked_for_and_an_upper_bound_never(
    tmp_path: Path, command: Any
) -> None:
    folders: list[Path] = []
    events = {"vanilla": "", "react": "", "raptor": "trivial_index", "gold": "reads_gold"}
    for name, event in events.items():
        counts = {event: 1} if event else {}
        right = ["Norway" if n < 60 + 10 * len(folders) else "Sweden" for n in range(100)]
        records = [answered(f"q{n}", right[n], counts=counts) for n in range(100)]
        identity = {**CARD["identity"], "program": name, "set": {"k": 5}}
        folders.append(make_run(tmp_path / name, records, identity=identity, label=name))
    out = command("recommend", *folders)[1]
    assert "left out: raptor" in out
    wide = command("recommend", *folders, "--include-degenerate")[1]
    assert "left out: raptor" not in wide
    for text in (out, wide):
        assert "left out: gold, which is an upper bound" in text
        assert "| gold" not in text
    assert command("recommend", folders[0], folders[3])[0] == 2


def test_no_program_is_advised_whose_right_answers_lack_their_evidence(
    tmp_path: Path, command: Any
) -> None:
    folders = []
    for name, pids, correct, tokens in (
        ("direct", (), 95, 10), ("vanilla", ("p1", "p2"), 60, 90), ("ircot", ("p1", "p2"), 90, 990)
    ):  # fmt: skip
        spent = call(model="scripted/answerer", prompt_tokens=tokens, cost_usd=tokens / 1e6)
        rows = []
        for n in range(100):
            answer = "Norway" if n < correct else "Chad"
            ledger = {"calls": [spent], "path": {"calls": 1, "latency_s": 0.5}}
            extra = {"cluster": f"c{n}"}
            rows.append(answered(f"q{n}", answer, pids=pids, ledger=ledger, extra=extra))
        identity = {**CARD["identity"], "program": name}
        folders.append(make_run(tmp_path / name, rows, identity=identity))
    out = command("recommend", *folders)[1]
    first = out.splitlines()[0]
    assert first.startswith("use ircot: it scores highest, and no other program gains 0.05 or more")
    said = "direct is left out: most right answers lack gold passages in context"
    assert first.endswith(said)
    assert "95 of 95 right answers lack gold passages in context" in table_row(out, "direct")
    alone = command("recommend", folders[0], make_run(tmp_path / "again", rows, identity={
        **CARD["identity"], "program": "react"}))[1]  # fmt: skip
    assert "use direct" not in alone


def test_every_word_is_of_one_family(tmp_path: Path) -> None:
    tokens = {"vanilla": 90, "ircot": 490, "react": 990}
    right = {"vanilla": 50, "ircot": 62, "react": 75}
    runs = make_runs(tmp_path / "runs", 100, fixed(right), tokens)
    family = advise(runs, "em").family
    programs = [standing.runs[0].card.program for standing in family.standings]
    best, baseline = programs.index("react"), programs.index("vanilla")
    assert (family.best, family.baseline, family.tests) == (best, baseline, 3)
    for standing in family.standings:
        for c in (standing.to_best,):
            if c is not None:
                words = c.outcome in ("better", "worse")
                assert words == c.corrected_interval.excludes_zero() == (c.p_adjusted <= 0.05)
                assert c.corrected_interval.level >= 0.95
                assert c.interval.level == 0.95
    back = family.between(baseline, best)
    forth = family.standings[baseline].to_best
    assert (back.difference, back.p_adjusted) == (-forth.difference, forth.p_adjusted)
    assert (back.verdict, forth.verdict) == ("better", "worse")


def test_recommend_by_type_gives_each_group_its_own_advice(tmp_path: Path, command: Any) -> None:
    folders = [run.folder for run in make_runs(tmp_path / "runs", 240, TURNED)]
    code, out, err = command("recommend", *folders, "--by", "type", "--format", "json")
    assert code == 0, err
    tables = {table["table"]: table["rows"] for table in json.loads(out)}
    rows = {row["group"]: row for row in tables["groups"]}
    assert {name: row["questions"] for name, row in rows.items()} == {
        "bridge": 160, "comparison": 80,
    }  # fmt: skip
    assert rows["comparison"]["advice"].startswith("use vanilla:")
    assert rows["bridge"]["advice"].startswith("use ircot:")
    right = [score for score in (rows["comparison"]["vanilla"], rows["bridge"]["ircot"])]
    assert all(score > 0.6 for score in right)


def test_recommend_by_hops_without_hops_is_refused(tmp_path: Path, command: Any) -> None:
    folders = [run.folder for run in make_runs(tmp_path / "runs", 30, ALIKE, hops=None)]
    code, _, err = command("recommend", *folders, "--by", "hops")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--by hops: no question of these runs has one" in err


def test_advice_over_a_data_set_and_its_variant_is_refused(tmp_path: Path) -> None:
    plain = study(tmp_path / "plain", questions=12)[:2]
    card = {"data": {**CARD["data"], "digest": "1"}, "data_card": {"twin_of": "0"}}
    twins = study(tmp_path / "twin", questions=12, **card)[:1]
    assert advise([reopen(folder) for folder in plain])
    with pytest.raises(CompareError, match="over different data"):
        advise([reopen(folder) for folder in (*plain, *twins)])


def test_a_program_without_a_price_is_neither_cheaper_nor_more_expensive(tmp_path: Path) -> None:
    """Tokens are not compared where the table shows dollars."""
    priced = make_runs(tmp_path, 12, {"vanilla": ALIKE["vanilla"], "ircot": ALIKE["ircot"]})
    spent = call(model="scripted/answerer", prompt_tokens=5, cost_usd=None)
    ledger = {"calls": [spent], "path": {"calls": 1, "latency_s": 0.5}}
    records = [
        answered(f"q{i}", "Norway", question=question(i), extra={"cluster": f"c{i}"}, ledger=ledger)
        for i in range(12)
    ]
    identity = {**CARD["identity"], "program": "react", "set": {"k": 5}}
    unpriced = reopen(make_run(tmp_path / "react", records, identity=identity))
    advice = advise([*priced, unpriced])
    assert advice.cost == "cost_usd"
    words = {arm.label: arm.why for arm in advice.arms}
    for word in ("cheaper", "dearer", "more expensive"):
        assert word not in words["react"]


def test_recommend_if_undecided_first_says_what_is_known(tmp_path: Path) -> None:
    right = {"vanilla": 20, "react": 58, "ircot": 58, "lookahead": 58}
    tokens = {"vanilla": 90, "react": 1490, "ircot": 490, "lookahead": 990}
    runs = make_runs(tmp_path / "runs", 60, fixed(right), tokens)
    advice = advise(runs, "em", labels=["V", "R", "A, ircot", "L"], keys=["D", "C", "A", "B"])
    sentence = advice.headline()
    assert sentence == (
        "A, ircot, scores highest (as do B and C) at the lowest cost of the 3 best; D is "
        "significantly worse; undecided: B and C may still gain 0.05 or more over A (about 100 "
        "questions would tell)"
    )
    assert len(sentence.split()) <= 40
    assert advice.rivals == [arm for arm in advice.arms if arm.key in "BC"]
