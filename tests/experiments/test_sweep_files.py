"""A sweep file becomes cells, a mistake is one line; the shipped sweeps are those of the papers."""

import re
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import RagbenchError
from ragbench.experiments.config import shipped_sweeps
from ragbench.experiments.score.protocols import get_protocol
from ragbench.experiments.sweep.spec import Sweep, load_sweep
from ragbench.programs import PROGRAMS
from tests.fake_server import FakeServer


def labels(sweep: Sweep) -> list[str]:
    return [cell.label for cell in sweep.cells]


def test_the_cells_are_the_product_and_what_is_included(load: Any, tmp_path: Path) -> None:
    other = {"retriever": "hybrid", "retriever_set": {"rrf_k": 30}}  # a value may set several
    sweep = load(
        matrix={"program": ["vanilla", "ircot"], "retriever": ["bm25", other]},
        include=[{"program": "a_rag", "set.max_steps": [2, 4]}],
    )
    assert labels(sweep) == [
        "vanilla, bm25", "vanilla, hybrid", "ircot, bm25", "ircot, hybrid",
        "a_rag, max_steps=2", "a_rag, max_steps=4",
    ]  # fmt: skip
    assert [c.config.retriever.settings.get("rrf_k") for c in sweep.cells[:2]] == [None, 30]
    assert [c.config.set for c in sweep.cells[-2:]] == [
        {"k": 1, "max_steps": 2}, {"k": 1, "max_steps": 4}
    ]  # fmt: skip
    assert len({cell.folder for cell in sweep.cells}) == 6
    same = load(
        matrix={"program": "vanilla"}, include=[{"set.k": 1}, {"k": 1, "retriever": "bm25"}]
    )
    assert labels(same) == ["vanilla"]
    child = tmp_path / "child.yaml"
    child.write_text("inherits: sweep.yaml\nmatrix: {seed: [1, 2]}\nset: {k: 3}\ninclude: []\n")
    inherited = load_sweep(child)
    assert labels(inherited) == ["vanilla, seed=1", "vanilla, seed=2"]
    assert all(cell.config.set == {"k": 3} for cell in inherited.cells)
    assert inherited.folder == Path("sweeps/child")


def test_the_example_of_the_docs_is_a_sweep(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert found
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
        ({"matrix": {"program": "ircot", "set.max_stepz": [3]}}, "did you mean max_steps"),
        ({"matrix": {"program": ["vanilla", "ircott"]}}, "cell program=ircott: no program"),
        ({"matrix": {"program": "ircot", "set.max_steps": [0]}}, "give int >= 1 and <= 50"),
        ({"matrix": {"seed": [*range(2001)]}}, "2,001 combinations, and a sweep at most 2,000"),
        ({"matrix": {"limit": [2, 4]}}, "cells limit=2 and limit=4 would be one run"),
        ({"matrix": {"optimizer": ["bootstrp"]}}, "did you mean bootstrap"),
        ({**COMPILED, "compile.opt_set.round": 2}, "did you mean rounds"),
        ({**COMPILED, "split": "validation"}, "ask those of split: test"),
        ({"baseline": {"program": "react"}}, "is no cell; the cells: vanilla"),
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


# -- the sweeps that come with the package ---------------------------------------------------------

EMBEDDER = "openai/text-embedding-3-small"
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


def knobs_of(config: Any) -> dict[str, Any]:
    return dict(PROGRAMS.get(config.program).resolve_knobs(config.set).model_dump())


@pytest.mark.parametrize(("name", "n", "style"), [("arag", 5, "free"), ("hipporag2", 3, "brief")])
def test_every_system_runs_on_every_data_set_with_two_lms(name: str, n: int, style: str) -> None:
    configs = [cell.config for cell in load_sweep(f"paper_{name}").cells]
    systems = {(c.program, str(c.set.get("variant", ""))) for c in configs}
    sets = {str(c.data.data_file) for c in configs}
    assert (len(sets), len(systems), len(configs)) == (n, 20, 20 * n * 2)
    protocol = get_protocol(name)
    for config in configs:
        assert config.data.dataset in protocol.datasets
        assert (config.data.view, config.data.setting) == (protocol.view, protocol.setting)
        assert config.lm.temperature == protocol.temperature
        assert config.set["answer_style"] == style
        assert config.program == "graph_rag" or config.set["k"] in protocol.k


@pytest.mark.parametrize("name", [n for n in shipped_sweeps() if n.startswith("paper_")])
def test_all_systems_of_a_table_embed_with_one_model(name: str) -> None:
    for cell in load_sweep(name).cells:
        config, knobs = cell.config, knobs_of(cell.config)
        used = {str(config.retriever.settings.get("embedder", ""))}
        if config.retriever.name == "hybrid":
            used = {str(config.retriever.settings["dense"]).partition("=")[2].rstrip(")")}
        used |= {knobs["embedder"]} if "embedder" in knobs else set()
        assert used == {EMBEDDER}, cell.label


def test_settings_are_those_of_table_5_and_what_is_found_fits_into_the_prompt() -> None:
    for cell in load_sweep("paper_arag").cells:
        config, knobs = cell.config, knobs_of(cell.config)
        if config.program not in ("direct", "graph_rag", "light_rag", "memo_rag"):
            shown = knobs.get("max_passages", knobs["k"])
            assert knobs["context_tokens"] >= CHUNK * shown, cell.label
        if config.program == "graph_rag":
            assert knobs["k"] == 10
        elif config.program != "direct":
            assert config.set["k"] == 5
        if config.program == "rag_enta":
            assert config.retriever.name == "hybrid"
            assert config.retriever.settings["dense_weight"] == 0.65
        elif config.program == "linear_rag":
            names = ("max_iterations", "top_k_sentence", "passage_ratio", "threshold")
            where = str(config.data.data_file).split("/")[1]
            assert tuple(knobs[name] for name in names) == LINEAR[where]


def test_strong_models_are_asked_about_a_fictional_world() -> None:
    sweep = load_sweep("fictional")
    assert len({cell.config.program for cell in sweep.cells}) == len(sweep.cells) == 16
    for cell in sweep.cells:
        data = cell.config.data
        assert (data.dataset, data.setting, data.hub) == ("synthetic", "pooled", False)
