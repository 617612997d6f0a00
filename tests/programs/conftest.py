"""Vectors without a model, for programs that make an index of their own."""

from __future__ import annotations

import pytest

from ragbench.retrievers import dense
from ragbench.retrievers.tree import index as tree
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """What dense indexes and summary trees use in these tests."""
    made = WordEmbedder()
    for module in (dense, tree):
        monkeypatch.setattr(module, "make_embedder", lambda spec, api_base="": made)
    return made
