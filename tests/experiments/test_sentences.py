"""The sentences of a comparison: run folders in, what is printed out."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import compare_all
from ragbench.experiments.runs import reopen
from ragbench.metrics import mean_interval, paired_interval
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run


def right(folder: Path, correct: Sequence[object], **fields: Any) -> Path:
    """A run that is right on the questions where `correct` is true; each has its own passages."""

    def of(name: str, n: int) -> Any:
        value = fields[name]
        return value(n) if callable(value) else value

    rows = [
        answered(
            f"q{n:03}",
            "Norway" if ok else "Chad",
            **{"extra": {"cluster": f"c{n}"}, **{name: of(name, n) for name in fields}},
        )
        for n, ok in enumerate(correct)
    ]
    return make_run(folder, rows)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code, out, err = command(capsys, "compare", *map(str, arguments))
    assert code == 0, err
    return out


def row(out: str, name: str) -> list[str]:
    line = next(line for line in out.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def draws(share: float, n: int, seed: int = 0) -> list[bool]:
    return [bool(ok) for ok in np.random.default_rng(seed).random(n) < share]


def test_the_sentence_comes_first_and_each_number_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = draws(0.3, 60), [True] * 60
    one, other = right(tmp_path / "a", a), right(tmp_path / "b", b)
    out = printed(capsys, one, other, "--metric", "em")
    assert out.index("em: B is better") < out.index("| metric")
    assert "±" not in out
    ends = paired_interval(a, b)
    own = mean_interval(b, (0.0, 1.0))
    assert ends is not None
    assert own is not None
    cells = row(out, "em")
    assert cells[3] == f"1.000 [{own.low:.3f}, {own.high:.3f}]"
    difference = np.mean(b) - np.mean(a)
    assert cells[4] == f"{difference:+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"
    assert out.count(f"{difference:+.3f}") == 1
    assert re.search(rf"exactly right only in A: 0, only in .*: {60 - sum(a)}\n", out)


def test_questions_that_share_passages_count_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = [False] * 60, [n % 20 < 6 for n in range(60)]  # three clusters of twenty gain alike
    apart = right(tmp_path / "a", a), right(tmp_path / "b", b)
    shared = {"extra": lambda n: {"cluster": f"c{n % 20}"}}
    together = right(tmp_path / "c", a, **shared), right(tmp_path / "d", b, **shared)
    alone = printed(capsys, *apart, "--metric", "em")
    grouped = printed(capsys, *together, "--metric", "em")
    assert "questions count by 20 clusters" in grouped
    assert "clusters" not in alone

    def width(out: str) -> float:
        low, high = re.findall(r"\[([+-][\d.]+), ([+-][\d.]+)\]", "".join(row(out, "em")))[0]
        return float(high) - float(low)

    assert width(grouped) > 1.3 * width(alone)


def test_one_gold_passage_for_all_means_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        right(tmp_path / name, [ok] * 30, extra={"cluster": "one"})
        for name, ok in (("a", False), ("b", True))
    ]
    out = printed(capsys, *runs, "--metric", "em")
    assert "all questions share a gold passage, so no interval can be given" in out
    assert "[" not in "".join(row(out, "em"))
    found = compare_all([reopen(run) for run in runs])[0].costs["calls"]
    assert found is not None
    assert found.interval is None


def test_needed_counts_by_clusters(tmp_path: Path) -> None:
    a, b = [False] * 60, [n % 20 < 3 for n in range(60)]
    found = []
    for name, each in (("alone", lambda n: f"c{n}"), ("shared", lambda n: f"c{n % 20}")):
        extra = {"extra": lambda n, each=each: {"cluster": each(n)}}
        runs = [right(tmp_path / f"{name}{k}", ok, **extra) for k, ok in enumerate((a, b))]
        found.append(compare_all([reopen(run) for run in runs], metrics=["em"])[0].scores["em"])
    alone, shared = found
    assert shared.estimate is not None
    assert shared.estimate.design_effect > 1.5
    assert (shared.minimum_detectable or 0) > 1.2 * (alone.minimum_detectable or 1)


def test_several_runs_are_compared_with_the_first_in_one_family(tmp_path: Path) -> None:
    runs = [
        reopen(right(tmp_path / str(k), draws(share, 80, k)))
        for k, share in enumerate((0.4, 0.6, 0.45))
    ]
    found = compare_all(runs, metrics=["em", "f1"])
    assert [pair.a.folder for pair in found] == [runs[0].folder] * 2
    every = [c for pair in found for c in pair.scores.values()]
    smallest = min(c.p for c in every)
    assert min(c.p_adjusted or 1 for c in every) == pytest.approx(min(1.0, 4 * smallest))
    with pytest.raises(CompareError, match="two runs or more"):
        compare_all(runs[:1])


def test_json_has_the_verdict_and_nothing_rounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = right(tmp_path / "a", draws(0.3, 30)), right(tmp_path / "b", draws(0.4, 30, 3))
    code, out, _ = command(capsys, "compare", str(a), str(b), "--format", "json")
    assert code == 0
    scores = next(t for t in json.loads(out) if t["table"] == "scores")["rows"][0]
    ends = paired_interval(draws(0.3, 30), draws(0.4, 30, 3))
    assert ends is not None
    assert (scores["difference_low"], scores["difference_high"]) == (ends.low, ends.high)
    assert scores["verdict"].startswith("no difference shown")
    assert scores["n_needed"] > scores["n_least"] > 30


@pytest.mark.parametrize(
    ("share", "gate", "margin", "code"),
    [
        (0.1, "worse", None, 4),
        (0.1, "not-better", None, 4),
        (0.5, "worse", None, 0),
        (0.5, "not-better", None, 4),
        (0.95, "not-better", None, 0),
        (0.1, "worse", 0.9, 0),
    ],
)
def test_a_gate_ends_with_4_and_says_why(
    share: float, gate: str, margin: float | None, code: int,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    a, b = right(tmp_path / "a", draws(0.5, 80)), right(tmp_path / "b", draws(share, 80, 1))
    more = ("--margin", str(margin)) if margin else ()
    given = ("compare", str(a), str(b), "--metric", "em", "--gate", gate, *more)
    ended, _, err = command(capsys, *given)
    assert ended == code
    if code:
        assert err.count("\n") == 1
        assert re.search(rf"gate {gate}: em of .*b against .*a, [+-]\.?\d", err)
    else:
        assert f"gate {gate}: passed" in err


def test_evidence_stands_beside_em_and_known_questions_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = right(tmp_path / "a", draws(0.5, 40))
    lost = right(tmp_path / "b", [True] * 40, pids=lambda n: ("p1", "p2") if n % 4 else ("p1",))
    blind = right(tmp_path / "c", [True] * 40, pids=lambda n: ("p1",) if n % 2 else ("p1", "p2"))
    out = printed(capsys, found, lost, "--metric", "em")
    assert row(out, "all_recall")[3].startswith("0.750 [")
    assert "right without its evidence: 10 of 40" in out
    assert "--dataset synthetic" not in out
    assert "--dataset synthetic --setting pooled" in printed(capsys, found, blind)


@pytest.mark.parametrize(
    ("n", "digest", "said"),
    [(3, "1", "different data: digest '0' and '1'"), (4, "0", "0 only in .*a, 1 only in .*b;")],
)
def test_other_data_and_other_questions_are_refused(
    n: int, digest: str, said: str, tmp_path: Path
) -> None:
    data = {"name": "hotpotqa", "setting": "distractor", "digest": digest}
    rows = [answered(f"q{k:03}", "Norway") for k in range(n)]
    runs = right(tmp_path / "a", [True] * 3), make_run(tmp_path / "b", rows, data=data)
    with pytest.raises(CompareError, match=said):
        compare_all([reopen(run) for run in runs])


def test_evidence_that_is_asked_for_is_shown_once_and_no_cost_that_one_run_lacks(
    tmp_path: Path,
) -> None:
    rows = [answered(f"q{k}", "Norway") for k in range(12)]
    a, b = make_run(tmp_path / "a", rows), make_run(tmp_path / "b", rows, unknown=["tokens"])
    (found,) = compare_all([reopen(a), reopen(b)], metrics=["all_recall"])
    assert (found.evidence, "tokens" in found.costs, "calls" in found.costs) == (None, False, True)
