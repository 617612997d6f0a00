"""Vectors without a model, for programs that make an index of their own."""

from pathlib import Path

import pytest

from ragbench.programs.workflow import faithful_rag
from ragbench.retrievers import dense
from ragbench.retrievers.lm_index import base as graph
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """What dense indexes, summary trees, graphs and alignment use in these tests."""
    made = WordEmbedder()
    for module in (dense, graph, faithful_rag):
        monkeypatch.setattr(module, "make_embedder", lambda spec, api_base="": made)
    return made


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that an earlier test's LM said of the same passages is kept."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ragbench.retrievers.store._OPEN", {})
