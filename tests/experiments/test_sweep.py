"""A sweep file becomes cells that run as the single command would, none touching another."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.cli.printing import show
from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiments.cells.scheduler import Contexts
from ragbench.experiments.cells.sweep import run_sweep
from ragbench.experiments.cells.sweep_file import Sweep, load_sweep
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.config import shipped_sweeps
from ragbench.experiments.progress import ProgressListener
from ragbench.experiments.report.page import make_board
from ragbench.experiments.report.sweep import sweep_report
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.protocols import get_protocol
from ragbench.experiments.store import read_records
from ragbench.metrics.stats.comparison import holm
from ragbench.programs import PROGRAMS
from tests.fake_server import FakeServer, Fault
from tests.kills import script


def labels(sweep: Sweep) -> list[str]:
    return [cell.label for cell in sweep.cells]


def test_the_cells_are_the_product_and_what_is_included(load: Any, tmp_path: Path) -> None:
    other = {"retriever": "hybrid", "retriever_set": {"rrf_k": 30}}  # a value may set several
    sweep = load(
        matrix={"program": ["vanilla", "ircot"], "retriever": ["bm25", other]},
        include=[{"program": "a_rag", "set": {"max_steps": [2, 4]}}],
    )
    assert labels(sweep) == [
        "vanilla, bm25", "vanilla, hybrid", "ircot, bm25", "ircot, hybrid",
        "a_rag, max_steps=2", "a_rag, max_steps=4",
    ]  # fmt: skip
    assert [c.config.retriever_set.get("rrf_k") for c in sweep.cells[:2]] == [None, 30]
    assert [c.config.set for c in sweep.cells[-2:]] == [
        {"k": 1, "max_steps": 2}, {"k": 1, "max_steps": 4}
    ]  # fmt: skip
    assert len({cell.folder for cell in sweep.cells}) == 6
    same = load(
        matrix={"program": "vanilla"}, include=[{"set": {"k": 1}}, {"k": 1, "retriever": "bm25"}]
    )
    assert labels(same) == ["vanilla"]
    child = tmp_path / "child.yaml"
    child.write_text("inherits: sweep.yaml\nmatrix: {seed: [1, 2]}\nset: {k: 3}\ninclude: []\n")
    inherited = load_sweep(child)
    assert labels(inherited) == ["vanilla, seed=1", "vanilla, seed=2"]
    assert all(cell.config.set == {"k": 3} for cell in inherited.cells)
    assert inherited.folder == Path("sweeps/child")


def test_the_example_of_the_docs_is_a_sweep(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "compiling.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "which.yaml").write_text(found[1])
    sweep = load_sweep(tmp_path / "which.yaml")
    assert len(sweep.cells) == 2 * 3 * 2 + 6
    assert set(sweep.pairs.values()) == {"vanilla, bm25", "vanilla, hybrid"}


COMPILED = {"optimizer": "bootstrap"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrx": {}}, "did you mean matrix"),
        ({"matrix": {"progam": ["ircot"]}}, "did you mean program"),
        ({"matrix": {"program": "ircot", "set": {"max_stepz": [3]}}}, "did you mean max_steps"),
        ({"matrix": {"program": ["vanilla", "ircott"]}}, "cell program=ircott: no program"),
        ({"matrix": {"program": "ircot", "set": {"max_steps": [0]}}}, "give int >= 1 and <= 50"),
        ({"matrix": {"seed": [*range(2001)]}}, "2,001 combinations, and a sweep at most 2,000"),
        ({"matrix": {"limit": [2, 4]}}, "cells limit=2 and limit=4 would be one run"),
        ({**COMPILED, "opt_set": {"round": 2}}, "did you mean rounds"),
        ({**COMPILED, "split": "validation"}, "ask those of split: test"),
        ({"matrix": {"set.max_steps": [3]}}, "has no field 'set.max_steps'"),
        ({"matrix": {"variant": ["paper"]}}, "write set: {variant:"),
        ({"baseline": {"program": "react"}}, "is not a cell; choose from: vanilla"),
        ({"metrics": ["f2"]}, "no metric named 'f2'"),
    ],
)
def test_a_mistake_at_any_level_is_named_before_anything_runs(
    fields: dict[str, Any], message: str, load: Any, server: FakeServer
) -> None:
    with pytest.raises(RagbenchError) as error:
        load(**fields)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not server.hits


# -- run -------------------------------------------------------------------------------------------


class Heard(ProgressListener):
    """Keeps what it is told in words."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"lm_for": {"plan": ["openai/fake"]}}, "no role of vanilla named 'plan'"),
        ({"optimizer": ["bootstrap"], "teacher": ["nonsense"]}, "malformed LM spec"),
    ],
)
def test_the_last_cell_is_checked_before_the_first_runs(
    choice: dict[str, Any], message: str, load: Any, server: FakeServer
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        run_sweep(load(matrix={"seed": [1, 2]}, include=[choice]))
    assert str(error.value).startswith("cell ")
    assert not server.hits


def test_seeds_and_repeats_ask_the_same_questions_and_are_one_row(
    load: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    matrix = {"seed": [5, 6], "repeat": [1, 2], "set": {"k": [1, 2]}}
    swept = run_sweep(load(matrix=matrix, limit=4))
    runs = [outcome.run for outcome in swept.outcomes]
    assert len(runs) == 8
    assert len({frozenset(run.records) for run in runs}) == 1
    assert {run.card.identity["split_seed"] for run in runs} == {5}
    show(sweep_report(swept))
    out = capsys.readouterr().out
    for k in (1, 2):
        rows = [line for line in out.splitlines() if line.startswith(f"| vanilla, k={k} ")]
        assert [cell.strip() for cell in rows[0].split("|")[2:4]] == ["4", "4"]  # repeats, n
        assert len(rows) == 1


def test_seeds_are_one_arm_in_contrasts_and_on_the_page(load: Any) -> None:
    matrix = {"seed": [5, 6], "set": {"k": [1, 2]}}
    swept = run_sweep(load(matrix=matrix, limit=4, baseline={"k": 1}))
    assert [(c.cell, c.baseline) for c in swept.contrasts] == [("vanilla, k=2", "vanilla, k=1")]
    arms = [[o.run for o in swept.outcomes if o.cell.config.set["k"] == k] for k in (1, 2)]
    alone = compare_all(arms)[0].scores
    found = swept.contrasts[0].scores
    assert {m: (c.difference, c.p) for m, c in found.items()} == {
        m: (c.difference, c.p) for m, c in alone.items()
    }
    board = make_board([swept.sweep.folder])
    assert sorted(map(len, (program.runs for program in board.programs))) == [2, 2]
    [artefact] = board.artefacts
    assert artefact["columns"] == ["k=1", "k=2"]
    # A baseline that names a seed: cells of its own arm are compared with it one by one.
    of_seed = load(matrix=matrix, baseline={"k": 1, "seed": 5}, limit=4)
    assert sorted((c.cell, c.baseline) for c in run_sweep(of_seed).contrasts) == [
        ("vanilla, k=1, seed=6", "vanilla, k=1, seed=5"),
        ("vanilla, k=2", "vanilla, k=1"),
    ]


def test_a_cell_comes_to_what_its_own_command_does(load: Any, tmp_path: Path) -> None:
    sweep = load(matrix={"program": ["vanilla", "ircot"]})
    swept = run_sweep(sweep)
    assert swept.exit_code == 0
    for number, outcome in enumerate(swept.outcomes):
        alone = evaluate(outcome.cell.config.but(out=tmp_path / f"alone-{number}")).summary
        found = outcome.run.summary
        assert (found.n, found.scores, found.as_if) == (8, alone.scores, alone.as_if)


def test_a_compile_is_shared_and_what_it_made_is_a_choice(load: Any) -> None:
    sweep = load(
        matrix={"optimizer": "bootstrap", "votes": [1, 3]},
        include=[{"optimizer": "bootstrap", "optimizer_seed": 1}],
        train_limit=6,
        val_limit=4,
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
        ({"matrix": {"compiled": folder, "set": {"k": 3}}}, "compiled with k=1, not 3"),
        ({"matrix": {"compiled": folder}, "split": "train"}, "used to compile"),
        ({"matrix": {"compiled": folder, "optimizer": "bootstrap"}}, "not compiled again"),
    ):
        with pytest.raises(ConfigError, match=words):
            list(Contexts().check(load(**fields).cells))


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
    show(sweep_report(swept))
    shown = capsys.readouterr().out
    assert "openai/dead: failed: cannot reach" in shown
    assert "2 of 3 cells done" in shown
    kept = json.loads((sweep.folder / "experiment.json").read_text())["cells"]
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
    reason = "0 of 2 answered, 2 cut off"  # two refusals in unknown words may be an outage
    assert [(o.state, o.reason) for o in swept.outcomes] == [("failed", reason)]
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
        alone = compare_all([a, b])[0].scores
        assert {m: c.p for m, c in alone.items()} == {m: c.p for m, c in contrast.scores.items()}


def test_a_baseline_is_alike_in_the_further_fields_of_a_value_too(load: Any) -> None:
    retrievers = ["bm25", {"retriever": "bm25", "retriever_set": {"b": 0.75}}]
    sweep = load(
        matrix={"program": ["vanilla", "direct"], "retriever": retrievers},
        baseline={"program": "vanilla"},
    )
    assert sweep.pairs == {"direct": "vanilla", "direct, b=0.75": "vanilla, b=0.75"}


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
    low, high = (int(number.replace(",", "")) for number in found.groups())
    assert 8 * 4 <= low < high
    assert not server.hits
    assert not (tmp_path / "out").exists()


PAIR = {"program": ["vanilla", "direct"]}


def test_one_budget_is_for_all_cells(load: Any, tmp_path: Path, server: FakeServer) -> None:
    fields = {"matrix": {"program": ["vanilla", "direct"], "lm": ["openai/a", "openai/b"]}}
    done = command(load, tmp_path, "--max-calls", "13", **fields)
    assert done.exit_code == 3, done.output
    assert len(server.hits) == 13
    assert "stopped by --max-calls 13" in done.stdout
    cells = json.loads((tmp_path / "out" / "experiment.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["done", "stopped", "stopped", "stopped"]
    done = command(load, tmp_path, "--max-calls", "13", **fields)  # what was spent counts
    assert (done.exit_code, len(server.hits)) == (3, 13)
    assert "1 of 4 cells done" in done.stdout
    done = command(load, tmp_path, "--max-calls", "20", **fields)
    assert (done.exit_code, len(server.hits)) == (3, 20)
    done = command(load, tmp_path, **fields)
    assert (done.exit_code, len(server.hits)) == (0, 32)
    found = [read_records(path) for path in (tmp_path / "out" / "cells").iterdir()]
    assert [len(each.finished) for each in found] == [8] * 4


def test_sweep_with_missing_data_runs_the_rest_and_names_the_file(
    load: Any, tmp_path: Path, server: FakeServer
) -> None:
    here = load().cells[0].config.data_file
    gone = {"data_file": str(tmp_path / "musique" / "gone.json")}
    matrix = {"data_file": [str(here), gone]}
    done = command(load, tmp_path, "--dry-run", matrix=matrix)
    assert done.exit_code == 0, done.output
    assert f"1 cells are not run: {gone['data_file']} is missing" in done.stdout
    done = command(load, tmp_path, matrix=matrix)
    assert done.exit_code == 1, done.output
    assert "1 of 2 cells done" in done.stdout
    cells = json.loads((tmp_path / "out" / "experiment.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["done", "not run"]
    done = command(load, tmp_path, "--only", "dataset=musique", matrix=matrix)
    assert isinstance(done.exception, ConfigError)
    assert "gone.json" in str(done.exception)


def test_only_selects_cells_by_value_and_names_them_if_none_is_left(load: Any) -> None:
    sweep = load(matrix={"program": ["vanilla", "direct"], "lm": ["openai/a", "openai/b"]})
    file = sweep.folder.parent / "sweep.yaml"
    chosen = load_sweep(file, only={"program": "direct"})
    assert labels(chosen) == ["direct, openai/a", "direct, openai/b"]
    with pytest.raises(ConfigError, match="--only program=ircot leaves no cell; the cells: van"):
        load_sweep(file, only={"program": "ircot"})


def test_published_figures_are_printed_next_to_ours(load: Any, tmp_path: Path) -> None:
    figures = {"cell": {"program": "direct"}, "source": "a paper", "figures": {"em": 0.5, "p50": 9}}
    done = command(load, tmp_path, "--format", "json", published=[figures], matrix=PAIR)
    assert done.exit_code == 0, done.output
    tables = json.loads(done.stdout)
    [table] = [each for each in tables if each.get("table") == "published"]
    rows = {row["figure"]: row for row in table["rows"]}
    assert (rows["em"]["published"], rows["em"]["cell"]) == (0.5, "direct")
    assert 0 <= rows["em"]["ours"] <= 1
    assert rows["p50"]["ours"] < 9


# -- the sweeps that come with the package ---------------------------------------------------------

EMBEDDER = "fastembed/Qwen/Qwen3-Embedding-0.6B"
#: Tokens of one chunk, rounded up: 1,000 and what the tokeniser of the makers counts otherwise.
CHUNK = 1_100
#: LinearRAG in Table 5: rounds, sentences of an entity, passage ratio, threshold.
LINEAR = {
    "musique": (5, 4, 2, 0.1),
    "hotpotqa": (3, 1, 0.05, 0.4),
    "2wikimultihop": (3, 1, 0.05, 0.4),
    "medical": (3, 1, 1.5, 0.5),
    "novel": (3, 1, 1.5, 0.5),
}


@cache
def shipped(name: str) -> Sweep:
    return load_sweep(name)


def knobs_of(config: Any) -> dict[str, Any]:
    return dict(PROGRAMS.get(config.program).resolve_knobs(config.set).model_dump())


@pytest.mark.parametrize(("name", "n", "style"), [("arag", 5, "free"), ("hipporag2", 3, "brief")])
def test_every_system_runs_on_every_data_set_with_two_lms(name: str, n: int, style: str) -> None:
    configs = [cell.config for cell in shipped(f"paper_{name}").cells]
    systems = {(c.program, str(c.set.get("variant", ""))) for c in configs}
    sets = {str(c.data_file) for c in configs}
    assert (len(sets), len(systems), len(configs)) == (n, 20, 20 * n * 2)
    protocol = get_protocol(name)
    for config in configs:
        assert config.dataset in protocol.datasets
        assert (config.view, config.setting) == (protocol.view, protocol.setting)
        assert config.temperature == protocol.temperature
        assert config.set["answer_style"] == style
        assert config.program == "graph_rag" or config.set["k"] in protocol.k


TABLES = [n for n in shipped_sweeps() if n.startswith(("paper_arag", "paper_hippo"))]


@pytest.mark.parametrize("name", TABLES)
def test_all_systems_of_a_table_embed_with_one_model(name: str) -> None:
    for cell in shipped(name).cells:
        config, knobs = cell.config, knobs_of(cell.config)
        used = {str(config.retriever_set.get("embedder", ""))}
        if config.retriever == "hybrid":
            used = {str(config.retriever_set["dense"]).partition("=")[2].rstrip(")")}
        used |= {knobs["embedder"]} if "embedder" in knobs else set()
        assert used == {EMBEDDER}, cell.label


def test_settings_are_those_of_table_5_and_what_is_found_fits_into_the_prompt() -> None:
    for cell in shipped("paper_arag").cells:
        config, knobs = cell.config, knobs_of(cell.config)
        if config.program not in ("direct", "graph_rag", "light_rag", "memo_rag"):
            shown = knobs.get("max_passages", knobs["k"])
            assert knobs["context_tokens"] >= CHUNK * shown, cell.label
        if config.program == "graph_rag":
            assert knobs["k"] == 10
        elif config.program != "direct":
            assert config.set["k"] == 5
        if config.program == "rag_enta":
            assert config.retriever == "hybrid"
            assert config.retriever_set["dense_weight"] == 0.65
        elif config.program == "linear_rag":
            names = ("max_iterations", "top_k_sentence", "passage_ratio", "threshold")
            where = str(config.data_file).split("/")[1]
            assert tuple(knobs[name] for name in names) == LINEAR[where]


def test_strong_models_are_asked_about_a_fictional_world() -> None:
    sweep = shipped("fictional")
    assert len({cell.config.program for cell in sweep.cells}) == len(sweep.cells) == 18
    for cell in sweep.cells:
        config = cell.config
        assert (config.dataset, config.setting, config.hub) == ("synthetic", "pooled", False)
