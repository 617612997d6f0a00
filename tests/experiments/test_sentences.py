"""The sentences of a comparison: run folders in, what is printed out."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import CompareError
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.report.page.data import page_data
from ragbench.experiments.report.page.report_data import make_board
from ragbench.experiments.report.page.texts import difference_from
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score import SUMMARY
from ragbench.experiments.store import write_json
from ragbench.metrics import GROUNDED, mean_interval, paired_interval
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import call


def right(folder: Path, correct: Sequence[object], **fields: Any) -> Path:
    """A run that is right on the questions where `correct` is true; each has its own passages."""
    rows = []
    for n, ok in enumerate(correct):
        given = {name: of(n) if callable(of) else of for name, of in fields.items()}
        more = {"extra": {"cluster": f"c{n}"}, **given}
        rows.append(answered(f"q{n:03}", "Norway" if ok else "Chad", **more))
    return make_run(folder, rows)


@pytest.fixture
def printed(command: Any) -> Any:
    def of(*arguments: object) -> str:
        code, out, err = command("compare", *arguments)
        assert code == 0, err
        return str(out)

    return of


def row(out: str, name: str) -> list[str]:
    line = next(line for line in out.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def draws(share: float, n: int, seed: int = 0) -> list[bool]:
    return [bool(ok) for ok in np.random.default_rng(seed).random(n) < share]


def compared(*runs: Path, metrics: Sequence[str] = ("em",)) -> list[Any]:
    return compare_all([reopen(run) for run in runs], metrics=metrics)


def test_the_sentence_comes_first(tmp_path: Path, printed: Any) -> None:
    a, b = draws(0.3, 60), [True] * 60
    one, other = right(tmp_path / "a", a), right(tmp_path / "b", b)
    out = printed(one, other, "--metric", "em")
    assert out.index("em: B is better") < out.index("| metric")
    assert "±" not in out
    ends, own = paired_interval(a, b), mean_interval(b, (0.0, 1.0))
    cells = row(out, "em")
    assert cells[3] == f"1.000 [{own.low:.3f}, {own.high:.3f}]"
    difference = np.mean(b) - np.mean(a)
    assert cells[4] == f"{difference:+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"
    assert out.count(f"{difference:+.3f}") == 2  # in the first line and in the table
    assert out.startswith(f"vanilla, b against vanilla, a: em {difference:+.3f} [")
    assert re.search(rf"exactly right only in A: 0, only in .*: {60 - sum(a)}\n", out)


def test_clusters_count_as_one(tmp_path: Path, printed: Any) -> None:
    a, b = [False] * 60, [n % 20 < 4 for n in range(60)]  # clusters of three gain alike
    cluster = {"extra": lambda n: {"cluster": f"c{n % 20}"}}
    apart = right(tmp_path / "a", a), right(tmp_path / "b", b)
    together = right(tmp_path / "c", a, **cluster), right(tmp_path / "d", b, **cluster)
    said = "20 clusters of linked questions, the largest of 3"
    assert said in printed(*together, "--metric", "em")
    assert "clusters of linked questions" not in printed(*apart, "--metric", "em")
    alone, shared = (compared(*runs)[0].scores["em"] for runs in (apart, together))
    wide = [found.interval.high - found.interval.low for found in (alone, shared)]
    assert wide[1] > 1.3 * wide[0]
    assert shared.estimate.design_effect > 1.5
    assert shared.minimum_detectable > 1.2 * alone.minimum_detectable


def test_few_documents_mark_every_word_and_interval(tmp_path: Path, printed: Any) -> None:
    cluster = {"extra": lambda k: {"cluster": f"c{k // 20}"}}
    a = right(tmp_path / "a", draws(0.5, 200), **cluster)
    b = right(tmp_path / "b", [ok or k % 10 < 4 for k, ok in enumerate(draws(0.5, 200))], **cluster)
    assert "em: B is better (for these documents only)" in printed(a, b, "--metric", "em")
    assert "10 clusters of linked questions, the largest of 20" in printed(a, b, "--metric", "em")
    rows = json.loads(printed(a, b, "--metric", "em", "--format", "json"))[0]["rows"]
    assert (rows[0]["outcome"], rows[0]["scope"]) == ("better", "for these documents only")


def test_a_repeated_question_is_no_second_question(tmp_path: Path, printed: Any) -> None:
    """20 questions, each in three wordings and without gold passages."""
    wordings = (
        "Who is the mayor of Town{}?", "Name the current mayor of Town{}.", "Town{}: who's mayor?"
    )  # fmt: skip
    runs = []
    for name, share in (("a", 0), ("b", 5)):
        rows = []
        for n in range(60):
            question = wordings[n // 20].format(n % 20)
            answer = "Norway" if n % 20 < share else "Chad"
            rows.append(answered(f"q{n:03}", answer, question=question, gold_pids=[], support=[]))
        runs.append(make_run(tmp_path / name, rows))
    c = compared(*runs)[0].scores["em"]
    assert (c.n, c.estimate.clusters) == (60, 20)
    assert "20 clusters of linked questions, the largest of 3" in printed(*runs, "--metric", "em")


def spent_runs(
    folder: Path, n: int, program: str, knobs: dict[str, Any], share: float, votes: int = 1
) -> Any:
    """Two runs of four calls a question; B takes `share` of the tokens of A."""
    runs = []
    for name, tokens in (("a", 1000), ("b", round(1000 * share))):
        rows = []
        for k in range(n):
            calls = [call(prompt_tokens=tokens + k % 7, completion_tokens=0)] * 4
            ledger = {"calls": calls, "path": {"calls": 4, "latency_s": 0.5}}
            rows.append(answered(f"q{k:03}", "Norway", ledger=ledger, extra={"cluster": f"c{k}"}))
        identity = {**CARD["identity"], "program": program, "votes": votes}
        runs.append(make_run(folder / name, rows, identity=identity, knobs=knobs))
    return runs


@pytest.mark.parametrize("n", [8, 50])
def test_costs_are_compared_without_a_test(n: int, tmp_path: Path, command: Any) -> None:
    runs = spent_runs(tmp_path, n, "no_such_program", {}, 0.5)
    c = compared(*runs)[0].costs["tokens"]
    assert (c.difference, c.p, c.verdict) == (pytest.approx(-2000), None, "")
    assert (c.interval is None) == (n < 10)
    assert c.most_expensive == (4 * 1006, 4 * 506)
    code, out, _ = command("compare", *runs, "--metric", "em", "--metric", "tokens")
    assert code == 0
    assert "of the questions asked, B / A 0.50; not tested, since it has no bounds" in out
    assert not re.search(r"tokens: B is", out)
    cells = row(out.partition("per question")[2], "tokens")
    assert cells[-2:] == ["4024", "2024"]
    code, _, err = command("compare", *runs, "--metric", "tokens", "--gate", "not-better")
    assert code == 2
    assert "--gate cannot judge tokens" in err


def test_compare_recommend_and_page_say_one_word_of_a_pair(runs: list[Path], command: Any) -> None:
    """Five runs, each of them the first in turn."""

    def table(*arguments: object) -> Any:
        tables = json.loads(command(*arguments, "--format", "json")[1])
        return tables[0]["rows"]

    data = page_data(make_board(runs))
    [family] = data["families"]["f1"]
    best = family["best"]
    names = [program["name"] for program in data["programs"]]
    advised = {row["program"]: row for row in table("recommend", *runs)}
    for at, name in enumerate(names):
        if at != best:
            shown = difference_from(at, best, family)
            assert advised[name]["below_best"] == pytest.approx(shown["difference"])
    for first in range(len(runs)):
        order = [runs[first], *(run for run in runs if run != runs[first])]
        rows = {row["run"]: row for row in table("compare", *order, "--metric", "f1")}
        for at, name in enumerate(names):
            shown = difference_from(at, first, family)
            if shown is not None and name in rows:
                assert rows[name]["difference"] == pytest.approx(shown["difference"])
                assert rows[name]["outcome"] == shown["word"]
    in_csv = command("compare", *order, "--metric", "f1", "--format", "csv")[1]
    for row in csv.DictReader(io.StringIO(in_csv.partition("\n\n")[0])):
        assert row["verdict"] == rows[row["run"]]["verdict"]
    with pytest.raises(CompareError, match="two runs or more"):
        compared(runs[0])


@pytest.mark.parametrize(
    ("share", "gate", "margin", "code"),
    [
        (0.1, "worse", None, 4),
        (0.5, "worse", None, 0),
        (0.5, "not-better", None, 4),
        (0.95, "not-better", None, 0),
        (0.1, "worse", 0.9, 0),
    ],
)
def test_a_gate_ends_with_4_and_says_why(
    share: float, gate: str, margin: float | None, code: int,
    tmp_path: Path, command: Any,
) -> None:  # fmt: skip
    a, b = right(tmp_path / "a", draws(0.5, 80)), right(tmp_path / "b", draws(share, 80, 1))
    more = ("--margin", margin) if margin else ()
    ended, _, err = command("compare", a, b, "--metric", "em", "--gate", gate, *more)
    assert ended == code
    why = rf"gate {gate}: em of .*b against .*a, [+-]\.?\d" if code else f"gate {gate}: passed"
    assert re.search(why, err)
    assert err.count("\n") == 1


def test_compare_if_gold_is_known_has_gold_in_context(tmp_path: Path, printed: Any) -> None:
    found = right(tmp_path / "a", draws(0.5, 40))
    lost = right(tmp_path / "b", [True] * 40, pids=lambda n: ("p1", "p2") if n % 4 else ("p1",))
    out = printed(found, lost, "--metric", "em")
    assert row(out, "gold_in_context")[3].startswith("0.750 [")


HALLUCINATION = "hallucination_rate_judged"


@pytest.mark.parametrize(
    ("name", "a", "b", "outcome", "unscored"),
    [
        ("judge", [0.0, 1.0] * 30, [1.0] * 60, "better", 0),
        ("judge", [0.0, 1.0] * 30, [1.0] * 58 + [None] * 2, "better", 2),
        ("judge", [0.0, 1.0] * 30, [1.0] * 30 + [None] * 30, "", 30),
        # The extremes are the worst of one and the best of the other.
        ("judge", [0.0, 1.0] * 22 + [None] * 16, [None] * 16 + [1.0] * 44, "", 32),
        (HALLUCINATION, [0.0, 0.2] * 30, [0.9, 0.6] * 30, "worse", 0),
        # The missing scores of B can only be as good as 0: A is no longer shown better.
        (HALLUCINATION, [0.0, 0.2] * 30, [0.9] * 12 + [None] * 48, "", 48),
    ],
)
def test_missing_scores_are_taken_at_both_extremes(
    name: str, a: list[float | None], b: list[float | None], outcome: str, unscored: int,
    tmp_path: Path, printed: Any,
) -> None:  # fmt: skip
    runs = make_judged(tmp_path / "a", name, a), make_judged(tmp_path / "b", name, b)
    out = printed(*runs, "--metric", name)
    for word in ("better", "worse"):
        assert (f"{name}: B is {word}" in out) == (word == outcome)
    if unscored > 2:
        assert f"{unscored} questions have a score in one run only" in out


def test_scores_of_two_judges_are_not_compared(tmp_path: Path, command: Any) -> None:
    runs = []
    for name, model in (("a", "m/one"), ("b", "m/two"), ("c", "m/one")):
        run = make_judged(tmp_path / name, "judge", [1.0, 0.0] * 20)
        write_json(run / SUMMARY, {"judges": {"judge": {"model": model}}})
        runs.append(run)
    code, _, err = command("compare", *runs[:2], "--metric", "judge")
    assert code == 2
    assert "judge is by m/one and by m/two; score one again with the other's LM" in err
    assert command("compare", runs[0], runs[2], "--metric", "judge")[0] == 0
    assert command("recommend", *runs[:2], "--metric", "judge")[0] == 2


def test_evidence_is_of_what_was_shown_whoever_wrote_down_triples(
    tmp_path: Path, command: Any
) -> None:
    runs = []
    for name, model in (("a", "m/one"), ("b", "m/two")):
        written = {"extra": lambda n: {"cluster": f"c{n}", "evidences": [["a", "b", "c"]]},
                   "attributed_triples": [["a", "b", "c"]]}  # fmt: skip
        run = right(tmp_path / name, draws(0.5, 40), scores={GROUNDED[0]: 0.0}, **written)
        judges = {"evidence": {"model": model}, "grounding": {"model": model}}
        write_json(run / SUMMARY, {"judges": judges})
        runs.append(run)
    code, _, err = command("compare", *runs, "--metric", "gold_in_context")
    assert code == 0, err
    for name in ("evidence_f1", GROUNDED[0]):
        code, _, err = command("compare", *runs, "--metric", name)
        assert (code, "by m/one and by m/two" in err) == (2, True), name


def make_judged(folder: Path, name: str, scores: Sequence[float | None]) -> Path:
    rows = []
    for n, score in enumerate(scores):
        stored = {} if score is None else {name: score}
        extra = {"cluster": f"c{n}"}
        rows.append(answered(f"q{n:03}", "Norway", scores=stored, extra=extra))
    return make_run(folder, rows)


@pytest.mark.parametrize(
    ("n", "digest", "said"),
    [(3, "1", "different data: digest '0' and '1'"), (4, "0", "0 only in .*a, 1 only in .*b;")],
)
def test_other_data_or_questions_end_it(n: int, digest: str, said: str, tmp_path: Path) -> None:
    data = {"name": "hotpotqa", "setting": "distractor", "digest": digest}
    rows = [answered(f"q{k:03}", "Norway") for k in range(n)]
    with pytest.raises(CompareError, match=said):
        compared(right(tmp_path / "a", [True] * 3), make_run(tmp_path / "b", rows, data=data))
