"""A sweep runs every cell as the single command would, and no cell touches another."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.errors import ConfigError
from ragbench.experiments.compare.paired import compare_all
from ragbench.experiments.report.sweep import print_swept
from ragbench.experiments.runs import evaluate, reopen
from ragbench.experiments.store import read_records
from ragbench.experiments.sweep.sweeps import checked, run_sweep
from ragbench.experiments.watch import Watch
from ragbench.metrics.stats.comparison import holm
from tests.fake_server import FakeServer, Fault
from tests.kills import script


class Heard(Watch):
    """Keeps what it is told in words."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"data_file": ["nowhere.jsonl"]}, "no such file"),
        ({"lm_for.plan": ["openai/fake"]}, "no role of vanilla named 'plan'"),
        ({"optimizer": ["bootstrap"], "compile.teacher": ["nonsense"]}, "malformed LM spec"),
    ],
)
def test_the_last_cell_is_checked_before_the_first_runs(
    choice: dict[str, Any], message: str, load: Any, server: FakeServer
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        run_sweep(load(matrix={"seed": [1, 2]}, include=[choice]))
    assert str(error.value).startswith("cell ")
    assert not server.hits


def test_a_cell_comes_to_what_its_own_command_does(load: Any, tmp_path: Path) -> None:
    sweep = load(matrix={"program": ["vanilla", "ircot"]})
    swept = run_sweep(sweep)
    assert swept.exit_code == 0
    for number, outcome in enumerate(swept.outcomes):
        alone = evaluate(outcome.cell.config.but(out=tmp_path / f"alone-{number}"))
        assert outcome.run is not None
        assert outcome.run.summary.scores == alone.summary.scores
        assert outcome.run.summary.as_if == alone.summary.as_if
        assert outcome.run.summary.n == 8


def test_a_compile_is_shared_and_what_it_made_is_a_choice(load: Any) -> None:
    sweep = load(
        matrix={"optimizer": "bootstrap", "votes": [1, 3]},
        include=[{"optimizer": "bootstrap", "compile.optimizer_seed": 1}],
        compile={"train_limit": 6, "val_limit": 4},
        limit=2,
    )
    programs = [cell.program for cell in sweep.cells]
    assert programs[0] == programs[1] != programs[2]
    watch = Heard()
    assert run_sweep(sweep, watch).exit_code == 0
    assert sum("zero-shot on validation" in line for line in watch.said) == 2
    cards = [reopen(cell.folder).card for cell in sweep.cells]
    assert cards[0].compiled == cards[1].compiled != ""

    folder = str(programs[0])
    sweep = load(matrix={"compiled": folder}, include=[{"program": "direct"}], limit=2)
    assert [cell.config.program for cell in sweep.cells] == ["vanilla", "direct"]
    assert run_sweep(sweep).exit_code == 0
    assert reopen(sweep.cells[0].folder).card.compiled
    for fields, words in (
        ({"matrix": {"compiled": folder, "set.k": 3}}, "compiled with k=1, not 3"),
        ({"matrix": {"compiled": folder}, "split": "train"}, "used to compile"),
        ({"matrix": {"compiled": folder, "optimizer": "bootstrap"}}, "not compiled again"),
    ):
        with pytest.raises(ConfigError, match=words):
            list(checked(load(**fields)))


def test_a_cell_that_fails_touches_no_other_and_is_tried_again(
    load: Any, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as gone:
        address = gone.url
    dead = {"lm": "openai/dead", "api_base": address}
    sweep = load(
        matrix={"lm": ["openai/fake", dead, "openai/other"]}, baseline={"lm": "openai/fake"}
    )
    swept = run_sweep(sweep)
    assert [o.state for o in swept.outcomes] == ["done", "failed", "done"]
    assert "cannot reach" in swept.outcomes[1].reason
    assert swept.exit_code == 1
    assert [bool(c.scores) for c in swept.contrasts] == [False, True]
    print_swept(swept)
    shown = capsys.readouterr().out
    assert "openai/dead: failed: cannot reach" in shown
    assert "2 of 3 cells done" in shown
    kept = json.loads((sweep.folder / "sweep.json").read_text())["cells"]
    assert [cell["state"] for cell in kept] == ["done", "failed", "done"]
    asked = len(server.hits)
    with FakeServer(script, port=int(address.rpartition(":")[2].partition("/")[0])):
        again = run_sweep(sweep)
    assert [o.state for o in again.outcomes] == ["done"] * 3
    assert len(server.hits) == asked
    assert all(contrast.scores for contrast in again.contrasts)


def test_a_cell_whose_questions_all_failed_has_failed(load: Any, server: FakeServer) -> None:
    server.script = lambda hit: Fault("400")
    swept = run_sweep(load(matrix={"program": ["vanilla"]}, limit=2))
    assert [(o.state, o.reason) for o in swept.outcomes] == [("failed", "all 2 questions failed")]
    assert swept.exit_code == 1


def test_comparisons_are_those_of_compare_corrected_over_all_cells(load: Any) -> None:
    sweep = load(
        matrix={"lm": ["openai/a", "openai/b"], "k": [1, 2]},
        include=[{"program": "direct", "lm": ["openai/a", "openai/b"]}],
        baseline={"program": "vanilla", "k": 1},
    )
    assert sweep.pairs == {
        f"{cell}, openai/{lm}{k}": f"vanilla, openai/{lm}, k=1"
        for lm in "ab"
        for cell, k in (("vanilla", ", k=2"), ("direct", ", k=1"))
    }
    swept = run_sweep(sweep)
    found = [c for contrast in swept.contrasts for c in contrast.scores.values()]
    assert len(found) == 8
    assert [c.p_adjusted for c in found] == pytest.approx(holm([c.p for c in found]))
    runs = {o.cell.label: o.run for o in swept.outcomes}
    for contrast in swept.contrasts:
        a, b = runs[contrast.baseline], runs[contrast.cell]
        assert a is not None
        assert b is not None
        alone = compare_all([a, b])[0].scores
        assert {m: c.p for m, c in alone.items()} == {m: c.p for m, c in contrast.scores.items()}


def command(load: Any, tmp_path: Path, *options: str, **fields: Any) -> Result:
    load(**fields)
    args = ["sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"), *options]
    return CliRunner().invoke(cli, args)


def test_a_dry_run_asks_nothing(load: Any, tmp_path: Path, server: FakeServer) -> None:
    matrix = {"program": ["vanilla", "ircot"], "optimizer": ["none", "bootstrap"]}
    done = command(load, tmp_path, "--dry-run", matrix=matrix)
    assert done.exit_code == 0
    assert "[4/4] ircot, bootstrap" in done.stdout
    assert "vanilla on questions test, openai/fake" in done.stdout
    whole = done.stdout.partition("in all, 4 cells, and 2 compiles")[2]
    found = re.search(r"calls   (\d+) to ([\d,]+)", whole)
    assert found
    low, high = (int(number.replace(",", "")) for number in found.groups())
    # A sentence of ircot is asked for twice at the most: 6 of them, and the answer.
    assert 8 * 4 <= low < high <= 2 * 8 * (1 + 1 + 13 + 13)
    assert not server.hits
    assert not (tmp_path / "out").exists()


def test_one_budget_ends_all_and_a_larger_continues(
    load: Any, tmp_path: Path, server: FakeServer
) -> None:
    fields = {"matrix": {"program": ["vanilla", "direct"], "lm": ["openai/a", "openai/b"]}}
    done = command(load, tmp_path, "--max-calls", "13", **fields)
    assert done.exit_code == 3, done.output
    assert len(server.hits) == 13
    assert "stopped by --max-calls 13" in done.stdout
    states = [
        c["state"] for c in json.loads((tmp_path / "out" / "sweep.json").read_text())["cells"]
    ]
    assert states == ["done", "stopped", "stopped", "stopped"]
    done = command(load, tmp_path, "--max-calls", "13", **fields)  # what was spent counts
    assert (done.exit_code, len(server.hits)) == (3, 13)
    assert "1 of 4 cells done" in done.stdout
    done = command(load, tmp_path, "--max-calls", "20", **fields)
    assert (done.exit_code, len(server.hits)) == (3, 20)
    done = command(load, tmp_path, **fields)
    assert (done.exit_code, len(server.hits)) == (0, 32)
    found = [read_records(path) for path in (tmp_path / "out" / "cells").iterdir()]
    assert [len(each.finished) for each in found] == [8] * 4


def test_a_continued_cell_shows_the_mean_of_its_whole_run(load: Any) -> None:
    run_sweep(load(matrix={"program": ["vanilla"]}, limit=4))
    watch = Heard()
    swept = run_sweep(load(matrix={"program": ["vanilla"]}, limit=8), watch)
    whole = swept.outcomes[0].run
    assert whole is not None
    em = whole.summary.scores["em"]
    assert f"[1/1] vanilla: done, 8 questions, EM {em:.3f}" in watch.said[-1]
