"""Vectors without a model, for programs that make an index of their own, kept from no test."""

import pytest

from ragbench.programs.workflow import faithful_rag
from tests.retrievers.conftest import WordEmbedder, embedder, words

__all__ = ["embedder", "words"]


@pytest.fixture(autouse=True)
def aligned(words: WordEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alignment uses them too."""
    monkeypatch.setattr(faithful_rag, "make_embedder", lambda spec, api_base="": words)
