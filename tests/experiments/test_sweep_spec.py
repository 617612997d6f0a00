"""A sweep file becomes cells, each a whole config; a mistake in it is one line."""

import re
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import RagbenchError
from ragbench.experiments.sweep.spec import Sweep, load_sweep
from tests.fake_server import FakeServer


def labels(sweep: Sweep) -> list[str]:
    return [cell.label for cell in sweep.cells]


def test_the_cells_are_the_product_and_what_is_included(load: Any) -> None:
    sweep = load(
        matrix={"program": ["vanilla", "ircot"], "retriever": ["bm25", "distracting"]},
        include=[{"program": "a_rag", "set.max_steps": [2, 4]}],
    )
    assert labels(sweep) == [
        "vanilla, bm25",
        "vanilla, distracting",
        "ircot, bm25",
        "ircot, distracting",
        "a_rag, max_steps=2",
        "a_rag, max_steps=4",
    ]
    assert [c.config.set for c in sweep.cells[-2:]] == [
        {"k": 1, "max_steps": 2},
        {"k": 1, "max_steps": 4},
    ]
    assert len({cell.folder for cell in sweep.cells}) == 6


def test_a_value_may_set_several_fields(load: Any) -> None:
    other = {"retriever": "hybrid", "retriever_set": {"rrf_k": 30}}
    sweep = load(
        matrix={
            "retriever": ["bm25", other],
            "lm": ["openai/fake", {"lm": "openai/b", "price": "in=1,out=2"}],
        }
    )
    found = [(c.config.retriever.name, c.config.lm.model, c.config.lm.price) for c in sweep.cells]
    assert found == [
        ("bm25", "openai/fake", None),
        ("bm25", "openai/b", "in=1,out=2"),
        ("hybrid", "openai/fake", None),
        ("hybrid", "openai/b", "in=1,out=2"),
    ]
    assert sweep.cells[2].config.retriever.settings == {"rrf_k": 30}


def test_a_sweep_inherits_a_config_or_another_sweep(load: Any, tmp_path: Path) -> None:
    load(matrix={"program": ["vanilla", "ircot"], "seed": [1]})
    child = tmp_path / "child.yaml"
    child.write_text("inherits: sweep.yaml\nmatrix: {seed: [1, 2]}\nset: {k: 3}\n")
    sweep = load_sweep(child)
    assert labels(sweep) == ["vanilla, seed=1", "ircot, seed=1", "vanilla, seed=2", "ircot, seed=2"]
    assert all(cell.config.set == {"k": 3} for cell in sweep.cells)
    assert sweep.folder == Path("sweeps/child")


def test_the_example_of_the_docs_is_a_sweep(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert found
    (tmp_path / "which.yaml").write_text(found[1])
    sweep = load_sweep(tmp_path / "which.yaml")
    assert len(sweep.cells) == 2 * 3 * 2 + 6
    assert all(not cell.config.data.hub for cell in sweep.cells)
    assert set(sweep.pairs.values()) == {"vanilla, bm25", "vanilla, hybrid"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrx": {}}, "did you mean matrix"),
        ({"progam": "ircot"}, "did you mean program"),
        ({"matrix": {"progam": ["ircot"]}}, "did you mean program"),
        ({"matrix": {"set": {"max_stepz": 3}, "program": "ircot"}}, "did you mean max_steps"),
        ({"matrix": {"program": "ircot", "set.max_stepz": [3]}}, "did you mean max_steps"),
        ({"matrix": {"program": ["vanilla", "ircott"]}}, "cell program=ircott: no program"),
        ({"matrix": {"program": "ircot", "set.max_steps": [0]}}, "give int >= 1 and <= 50"),
        ({"matrix": {"program": "ircot", "variant": ["spek"]}}, "did you mean spec"),
        ({"matrix": {"retriever": [{"retreiver": "bm25"}]}}, "must set retriever"),
        ({"matrix": {"seed": []}}, "seed has no values"),
        ({"matrix": {"seed": [*range(2001)]}}, "2,001 combinations, and a sweep at most 2,000"),
        ({"compile": 5}, "compile=5 is no mapping"),
        ({"matrix": {"limit": [2, 4]}}, "cells limit=2 and limit=4 would be one run"),
        ({"matrix": {"optimizer": ["bootstrp"]}}, "did you mean bootstrap"),
        ({"optimizer": "bootstrap", "matrix": {"compile.presett": ["light"]}}, "compile.preset"),
        ({"optimizer": "bootstrap", "compile": {"presett": "light"}}, "did you mean preset"),
        ({"optimizer": "bootstrap", "compile": {"preset": "lihgt"}}, "light | medium | heavy"),
        ({"optimizer": "bootstrap", "compile.opt_set.round": 2}, "did you mean rounds"),
        ({"optimizer": "bootstrap", "split": "validation"}, "ask those of split: test"),
        ({"baseline": {"program": "react"}}, "is no cell; the cells: vanilla"),
        ({"metrics": ["f2"]}, "no metric named 'f2'"),
        ({"margin": -1}, "margin=-1"),
        ({"matrix": ["program"]}, "matrix="),
        ({"compiled": "nowhere", "matrix": {"seed": [1]}}, "is no compiled program"),
    ],
)
def test_a_mistake_at_any_level_is_named_before_anything_runs(
    fields: dict[str, Any], message: str, load: Any, server: FakeServer
) -> None:
    with pytest.raises(RagbenchError) as error:
        load(**fields)
    assert message.replace("\\", "") in str(error.value)
    assert "\n" not in str(error.value)
    assert not server.hits


def test_cells_that_come_to_the_same_are_one(load: Any) -> None:
    sweep = load(
        matrix={"program": "vanilla"}, include=[{"set.k": 1}, {"k": 1, "retriever": "bm25"}]
    )
    assert labels(sweep) == ["vanilla"]
