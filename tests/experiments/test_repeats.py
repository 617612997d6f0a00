"""`--repeats`: every question asked again, with replies of its own, and pooled by what reads it."""

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragbench as rb
from ragbench.experiments.cells.cell import read_experiment
from ragbench.experiments.report.page import make_board
from ragbench.experiments.report.page.data import page_data
from ragbench.experiments.runs.summary import reopen_arm
from ragbench.experiments.store import RunFolder
from ragbench.metrics import mean_interval
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.fake_server import FakeServer, Hit, plausible
from tests.kills import write_questions
from tests.wire import ask, lm_at

N = 6


def moody(hit: Hit) -> str:
    """Right for the seed of the first time alone: "elsewhere" for every other."""
    number = hit.prompt.rpartition("Which town number ")[2].split(" ")[0]
    right = hit.body.get("seed") == 42
    return plausible(hit).replace("some answer", f"Town {number}" if right else "elsewhere")


@pytest.fixture
def moods() -> Iterator[FakeServer]:
    with FakeServer(moody) as running:
        yield running


def arguments(folder: Path, server: FakeServer, *more: object) -> list[object]:
    questions = write_questions(folder, 3 * N)
    return [
        "eval", "--program", "vanilla", "--dataset", "jsonl", "--data-file", questions,
        "--split", "test", "--limit", N, "--lm", "openai/fake", "--api-base", server.url,
        "--out", folder / "run", *more,
    ]  # fmt: skip


def cells(out: str, first: str) -> dict[str, str]:
    """The cells of the row that begins with `first`, by the headings of its table."""
    lines = out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} "))
    while not lines[at - 1].startswith("|--"):
        at -= 1
    row = next(line for line in lines[at:] if line.startswith(f"| {first} "))
    names, values = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[at - 2], row)
    )
    return dict(zip(names, values, strict=True))


def test_every_repeat_asks_anew_is_kept_apart_and_is_pooled(
    moods: FakeServer, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, out, err = command(*arguments(tmp_path, moods, "--repeats", 3))
    assert code == 0, err
    assert len(moods.hits) == 3 * N
    assert sorted({hit.body["seed"] for hit in moods.hits}) == [42, 1_000_042, 2_000_042]
    arm = reopen_arm(tmp_path / "run")
    assert [run.card.identity.get("repeat") for run in arm] == [None, 2, 3]
    assert [len(run.records) for run in arm] == [N, N, N]
    row = cells(out, "vanilla")
    assert (row["repeats"], row["n"]) == ("3", str(N))
    assert row["EM"].startswith("0.333")
    assert row["pass^R"].startswith("0.000")
    assert row["pass@R"].startswith("1.000")

    experiment = read_experiment(tmp_path / "run", "repeats")
    assert [(cell.folder, cell.state) for cell in experiment.cells] == [
        ("r1", "done"), ("r2", "done"), ("r3", "done")
    ]  # fmt: skip
    assert [each.runs for each in make_board([tmp_path / "run"]).programs] == [(0, 1, 2)]

    again = command(*arguments(tmp_path, moods, "--repeats", 3))  # asks nothing twice
    assert (again[0], len(moods.hits)) == (0, 3 * N)
    plain = arguments(tmp_path, moods)
    plain[plain.index(tmp_path / "run")] = tmp_path / "plain"
    assert command(*plain)[0] == 0  # the first repeat is the plain run
    assert len(moods.hits) == 3 * N


def test_limit_counts_the_calls_of_all_repeats(
    moods: FakeServer, tmp_path: Path, command: Any
) -> None:
    given = arguments(tmp_path, moods, "--repeats", 3, "--workers", 1)
    dry = command(*given, "--dry-run")[1]
    assert ("in all, 3 cells" in dry, moods.hits) == (True, [])
    for limit, states in ((N + 2, ["done", "stopped"]), (2 * N + 1, ["done", "done", "stopped"])):
        code, out, _ = command(*given, "--max-calls", limit)
        assert (code, len(moods.hits)) == (3, limit)
        assert f"stopped by --max-calls {limit}" in out
        experiment = read_experiment(tmp_path / "run")
        assert [cell.state for cell in experiment.cells] == states
        assert experiment.stopped_by == f"--max-calls {limit}"
    assert command(*given, "--max-calls", 3 * N)[0] == 0
    assert len(moods.hits) == 3 * N


def test_repeats_are_not_put_beside_a_single_run(
    moods: FakeServer, tmp_path: Path, command: Any
) -> None:
    assert command(*arguments(tmp_path, moods))[0] == 0
    code, _, err = command(*arguments(tmp_path, moods, "--repeats", 2))
    assert code == 2
    assert "holds a single run; give --repeats another --out" in err


def test_a_repeat_has_a_place_in_the_cache_where_no_seed_is_sent(moods: FakeServer) -> None:
    lms = [lm_at(moods, cache=True, repeat=repeat) for repeat in (1, 2, 2)]
    for lm in lms:
        lm.metered.supported_params = frozenset({"temperature", "max_tokens"})
        ask(lm)
    assert len(moods.hits) == 2
    assert "seed" not in moods.hits[1].body


def arm(folder: Path, share: float, seed: int, *, repeats: int = 3, questions: int = 60) -> Path:
    """Repeats of a system that is right on a `share` of its questions, by chance each time."""
    rng = random.Random(seed)
    for number in range(1, repeats + 1):
        rows = []
        for n in range(questions):
            answer = "Norway" if rng.random() < share else "Chad"
            rows.append(answered(f"q{n:03}", answer, extra={"cluster": f"c{n}"}))
        make_run(folder / f"r{number}", rows)
    return folder


def test_compare_takes_all_repeats(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    a, b = arm(tmp_path / "a", 0.4, 1), arm(tmp_path / "b", 0.6, 2)
    code, out, err = command("compare", a, b, "--metric", "em")
    assert code == 0, err
    means = []
    for folder in (a, b):
        for run in reopen_arm(folder):
            records = RunFolder(run.folder).records.values()
            means.append(sum(record.answer == "Norway" for record in records) / 60)
    row = cells(out, "em")
    difference = sum(means[3:]) / 3 - sum(means[:3]) / 3
    assert row["B - A"].startswith(f"{difference:+.3f}")
    assert f"A: vanilla, a, {a}, 3 repeats" in " ".join(out.split())


def test_a_folder_of_repeats_is_one_run_to_all_that_reads_it(tmp_path: Path, command: Any) -> None:
    a = arm(tmp_path / "a", 0.2, 1, repeats=3)
    b = arm(tmp_path / "b", 0.8, 2, repeats=3)
    right = []
    for number in (1, 2, 3):
        records = RunFolder(b / f"r{number}").records.values()
        right.append([record.answer == "Norway" for record in records])
    mean = sum(map(sum, right)) / 180
    ends = mean_interval(np.mean(right, axis=0), (0.0, 1.0))
    shown = f"{mean:.3f} [{ends.low:.3f}, {ends.high:.3f}]"

    run = rb.open_run(b)
    assert (run.folder, len(run.records), run.scores["em"]) == (b, 180, pytest.approx(mean))
    assert run.interval("em") == ends
    assert shown in str(rb.table(a, b))
    assert rb.compare(a, b).scores["em"].verdict == "better"
    advice = rb.recommend(a, b, metric="em")
    assert (advice.arms[0].mean, advice.arms[0].interval) == (mean, ends)
    assert shown in command("recommend", a, b, "--metric", "em")[1]
    data = page_data(make_board([a, b], "em"))
    assert [program["runs"] for program in data["programs"]] == [(0, 1, 2), (3, 4, 5)]
    assert data["programs"][1]["means"]["em"] == {
        "em": mean, "em_low": ends.low, "em_high": ends.high, "n": 60
    }  # fmt: skip


def test_two_repeats_have_no_interval(tmp_path: Path) -> None:
    a = arm(tmp_path / "a", 0.2, 1, repeats=2)
    b = arm(tmp_path / "b", 0.8, 2, repeats=3)
    assert rb.open_run(a).interval("em") is None
    assert rb.open_run(b).interval("em") is not None
    found = rb.compare(a, b).scores["em"]
    assert (found.interval, found.outcome) == (None, "undecided")
    assert found.verdict == (
        "no significant difference (an interval over repeats needs three: --repeats 3)"
    )


def test_repeats_that_differ_as_wholes_are_named(tmp_path: Path, command: Any) -> None:
    folder = tmp_path / "moved"
    for number, right in enumerate((50, 10, 50), start=1):
        rows = [answered(f"q{n:03}", "Norway" if n < right else "Chad",
                         extra={"cluster": f"c{n}"}) for n in range(60)]  # fmt: skip
        make_run(folder / f"r{number}", rows)
    out = " ".join(command("show", folder)[1].split())
    assert "repeats differ by more than chance" in out


def test_exports_tell_repeats_and_settings_apart(tmp_path: Path, command: Any) -> None:
    folder = tmp_path / "again"
    for number in (1, 2):
        identity = {**CARD["identity"], "seed": 7, **({"repeat": 2} if number == 2 else {})}
        knobs = {"knobs": {"k": 9, "variant": "paper"}, "changed_knobs": {"k": 9}}
        make_run(folder / f"r{number}", [answered("q1", "Norway")], identity=identity, **knobs)
    target = tmp_path / "table.csv"
    assert command("export", folder, "--to", "csv", "-o", target)[0] == 0
    names = ("run", "variant", "knobs", "retriever", "seed", "repeat")
    rows = [
        tuple(row[name] for name in names)
        for row in csv.DictReader(target.read_text().splitlines())
    ]
    assert rows == [
        (f"again/r{number}", "paper", '{"k": 9}', "bm25", "7", str(number)) for number in (1, 2)
    ]
