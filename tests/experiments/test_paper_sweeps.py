"""The shipped sweeps: one embedder a table, prompts that hold what is found, Table 5."""

from typing import Any

import pytest

from ragbench.experiments.config import shipped_sweeps
from ragbench.experiments.score.protocols import get_protocol
from ragbench.experiments.sweep.spec import load_sweep
from ragbench.programs import PROGRAMS

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


@pytest.mark.parametrize("name", ["arag", "hipporag2"])
def test_every_system_runs_on_every_data_set_with_two_lms(name: str) -> None:
    sweep = load_sweep(f"paper_{name}")
    configs = [cell.config for cell in sweep.cells]
    systems = {(c.program, str(c.set.get("variant", ""))) for c in configs}
    sets = {str(c.data.data_file) for c in configs}
    assert len(sets) == (5 if name == "arag" else 3)
    assert len(configs) == len(systems) * len(sets) * 2
    assert len(systems) == 20
    protocol = get_protocol(name)
    for config in configs:
        assert config.data.dataset in protocol.datasets
        assert (config.data.view, config.data.setting) == (protocol.view, protocol.setting)
        assert config.lm.temperature == protocol.temperature
        assert config.set["answer_style"] == ("free" if name == "arag" else "brief")
        if config.program != "graph_rag":
            assert config.set["k"] in protocol.k


@pytest.mark.parametrize("name", [n for n in shipped_sweeps() if n.startswith("paper_")])
def test_all_systems_of_a_table_embed_with_one_model(name: str) -> None:
    for cell in load_sweep(name).cells:
        config = cell.config
        used = {str(config.retriever.settings.get("embedder", ""))}
        if config.retriever.name == "hybrid":
            used = {str(config.retriever.settings["dense"]).partition("=")[2].rstrip(")")}
        knobs = knobs_of(config)
        used |= {knobs["embedder"]} if "embedder" in knobs else set()
        assert used == {EMBEDDER}, cell.label


def test_what_is_found_fits_into_the_prompt() -> None:
    for cell in load_sweep("paper_arag").cells:
        knobs = knobs_of(cell.config)
        if cell.config.program not in ("direct", "graph_rag", "light_rag", "memo_rag"):
            shown = knobs.get("max_passages", knobs["k"])
            assert knobs["context_tokens"] >= CHUNK * shown, cell.label


def test_settings_are_those_of_table_5() -> None:
    for cell in load_sweep("paper_arag").cells:
        config, knobs = cell.config, knobs_of(cell.config)
        where = str(config.data.data_file).split("/")[1]
        if config.program == "graph_rag":
            assert knobs["k"] == 10
        elif config.program == "rag_enta":
            assert config.retriever.name == "hybrid"
            assert config.retriever.settings["dense_weight"] == 0.65
        elif config.program == "linear_rag":
            names = ("max_iterations", "top_k_sentence", "passage_ratio", "threshold")
            assert tuple(knobs[name] for name in names) == LINEAR[where]
        if config.program not in ("graph_rag", "direct"):
            assert config.set["k"] == 5


def test_strong_models_are_asked_about_a_fictional_world() -> None:
    sweep = load_sweep("fictional")
    assert len({cell.config.program for cell in sweep.cells}) == len(sweep.cells) == 16
    for cell in sweep.cells:
        data = cell.config.data
        assert (data.dataset, data.setting, data.hub) == ("synthetic", "pooled", False)
