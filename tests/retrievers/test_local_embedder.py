"""The local sentence model, where its bytes are."""

from pathlib import Path

import numpy as np
import pytest

from ragbench.errors import ConfigError, LMSetupError, ModelError
from ragbench.lms.local import find, is_installed
from ragbench.retrievers.embedders import make_embedder
from ragbench.retrievers.embedders.local import LocalEmbedder

needs_model = pytest.mark.skipif(
    not is_installed("minilm-int8"), reason="needs `ragbench models pull minilm-int8`"
)


@needs_model
def test_vectors_do_not_depend_on_neighbours_or_order() -> None:
    embedder = make_embedder("local")
    texts = ["short", "a much longer text about Bergen and rain " * 5, "", "x \ud800", "東京"]
    together = embedder.embed(texts)
    assert together.shape == (5, 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)
    assert embedder.embed(texts[::-1])[::-1] == pytest.approx(together, abs=1e-5)


@needs_model
def test_known_cosines() -> None:
    """The order of similarity that the model is known for."""
    a, b, c = make_embedder("local").embed(
        ["A man is eating food.", "A man eats a piece of bread.", "A plane is taking off."]
    )
    assert a @ b > 0.6 > 0.2 > a @ c


@needs_model
def test_long_texts_are_read_in_windows() -> None:
    embedder = make_embedder("local")
    start, end = "Rain fell on the harbour. " * 60, "The pianist played a sonata by Brahms. " * 60
    whole, head, question = embedder.embed([start + end, start, "Who played Brahms?"])
    assert whole @ question > head @ question + 0.1
    assert len(embedder.token_vectors([start + end])[0]) > 600


@needs_model
def test_a_folder_holds_a_model_of_ones_own(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(find("minilm-int8").paths()["model"].parent / name)
    own = LocalEmbedder(str(tmp_path))
    assert np.array_equal(own.embed(["x"]), make_embedder("local").embed(["x"]))


def test_specs_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(LMSetupError, match=r"OPENAI_API_KEY.*embedder=local"):
        make_embedder("openai/text-embedding-3-small")
    with pytest.raises(ConfigError, match="give local"):
        make_embedder("minilm")
    with pytest.raises(ModelError, match=r"must hold model\.onnx"):
        make_embedder(f"local:{tmp_path}/none")
