"""The examples: notebooks and the script run whole over a server on loopback; sweep files load."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.sweep import load_sweep
from tests.fake_server import FakeServer

FOLDER = Path(__file__).parents[1] / "examples"
MODEL = '{"lm": "openai/gpt-4o-mini"}'


def code_of(path: Path) -> list[str]:
    """The code of a script, or of each cell of a notebook."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return [text]
    book = json.loads(text)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert all(cell.get("outputs", []) == [] for cell in book["cells"])
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    "name", ["ten_lines.py", "evaluate_and_compare.ipynb", "own_program.ipynb"]
)
def test_it_runs_from_the_first_cell_to_the_last(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {"__name__": "example"}
    cells = code_of(FOLDER / name)
    assert sum(MODEL in cell for cell in cells) == 1
    with FakeServer() as server:
        model = f'{{"lm": "openai/fake", "api_base": {server.url!r}}}'
        for number, cell in enumerate(cells, 1):
            exec(compile(cell.replace(MODEL, model), f"{name}, cell {number}", "exec"), names)
    assert len(server.hits) > 10
    assert len([*tmp_path.glob("runs/*/run.db")]) >= 2
    if name == "ten_lines.py":
        assert "f1: +0.000" in capsys.readouterr().out
        assert len((tmp_path / "ircot.csv").read_text("utf-8").splitlines()) > 20
    elif name == "own_program.ipynb":
        assert "8 demonstrations" in capsys.readouterr().out
        assert names["compiled"].evaluation.card.compiled
        sidecar = json.loads((names["folder"] / "sidecar.json").read_text("utf-8"))
        assert sidecar["cost"]["as_if"]["zero_shot"]["calls"] == 2 * 8


@pytest.mark.parametrize("program", ["self_rag", "react"])
def test_a_sweep_file_takes_a_program_over_three_retrievers(program: str) -> None:
    path = FOLDER / f"{program}_retrievers.yaml"
    subset, whole = load_sweep(path), load_sweep(path, over={"limit": None})
    for sweep, limit in ((subset, 500), (whole, None)):
        assert [cell.config.retriever.name for cell in sweep.cells] == ["bm25", "dense", "hybrid"]
        assert {cell.config.program for cell in sweep.cells} == {program}
        assert {cell.config.data.limit for cell in sweep.cells} == {limit}
        assert len(sweep.pairs) == 2
    # The whole continues the subset: what was asked is not asked again.
    assert [c.folder for c in subset.cells] == [c.folder for c in whole.cells]
