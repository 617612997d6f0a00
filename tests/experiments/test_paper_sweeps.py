"""The sweep files of published tables: every cell has known names and the protocol's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragbench.experiments.score.protocols import PROTOCOLS
from ragbench.experiments.sweep.spec import load_sweep

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", ["arag", "hipporag2"])
def test_every_system_runs_on_three_data_sets_with_two_lms(name: str) -> None:
    sweep = load_sweep(BENCHMARKS / f"paper_{name}.yaml")
    configs = [cell.config for cell in sweep.cells]
    systems = {(c.program, str(c.set.get("variant", ""))) for c in configs}
    assert len(configs) == len(systems) * 3 * 2
    assert {
        "graph_rag",
        "linear_rag",
        "hippo_rag",
        "faithful_rag",
        "ma_rag",
        "rag_enta",
        "a_rag",
    } <= {program for program, _ in systems}
    protocol = PROTOCOLS[name]
    for config in configs:
        assert config.data.dataset in protocol.datasets
        assert (config.data.view, config.data.setting) == (protocol.view, protocol.setting)
        assert config.set["k"] in protocol.k
        assert config.lm.temperature == protocol.temperature
        assert config.set["answer_style"] == ("free" if name == "arag" else "brief")
    assert len(sweep.pairs) == len(configs) - 3 * 2  # the baseline itself is compared with nothing
