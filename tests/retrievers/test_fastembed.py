"""Models of fastembed: tiny ONNX models in a folder, through the embedder and the cross-encoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import ModelError, UnknownNameError
from ragbench.ledger import open_ledger
from ragbench.retrievers import make_retriever
from ragbench.retrievers.embedders import make_embedder
from ragbench.retrievers.embedders.fast import open_model
from ragbench.retrievers.rerank import make_reranker
from tests.retrievers.conftest import make_corpus

pytest.importorskip("fastembed", reason="needs the extra dense")
onnx = pytest.importorskip("onnx", reason="onnx writes the tiny models")

WORDS = ["[PAD]", "[UNK]", "red", "blue", "harbour", "piano"]
EMBEDDER = "fastembed/sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "fastembed/Xenova/ms-marco-MiniLM-L-6-v2"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"pad_token": "[PAD]", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))


def write_model(path: Path, table: Any, nodes: list[Any], output: Any) -> None:
    """Write a model that looks up `table` by input_ids and applies `nodes`."""
    helper = onnx.helper
    integers = onnx.TensorProto.INT64
    inputs = [helper.make_tensor_value_info(n, integers, ["batch", "length"]) for n in INPUTS]
    rows = onnx.numpy_helper.from_array(table.astype(np.float32), "table")
    gather = helper.make_node("Gather", ["table", "input_ids"], ["states"])
    graph = helper.make_graph([gather, *nodes], "tiny", inputs, [output], [rows])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.parent.mkdir(exist_ok=True)
    onnx.save(model, str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An embedder whose tokens are the axes, and a reranker that sums the tokens' weights."""
    write_tokenizer(tmp_path)
    helper = onnx.helper
    floats = onnx.TensorProto.FLOAT
    states = helper.make_tensor_value_info("states", floats, ["batch", "length", len(WORDS)])
    write_model(tmp_path / "model.onnx", np.eye(len(WORDS)), [], states)
    weights = np.array([[0.0], [0.0], [1.0], [-1.0], [2.0], [0.5]])
    total = helper.make_node("ReduceSum", ["states", "axes"], ["logits"], keepdims=0)
    axes = helper.make_node(
        "Constant", [], ["axes"], value=onnx.numpy_helper.from_array(np.array([1]))
    )
    logits = helper.make_tensor_value_info("logits", floats, ["batch", 1])
    write_model(tmp_path / "onnx" / "model.onnx", weights, [axes, total], logits)
    return tmp_path


def test_embedder_from_folder_gives_unit_vectors_and_files_its_tokens(folder: Path) -> None:
    embedder = make_embedder(f"{EMBEDDER}@{folder}")
    with open_ledger() as ledger:
        vectors = embedder.embed(["red blue", "blue", "red blue"])
    assert vectors.shape == (3, len(WORDS))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1])
    assert vectors[0] @ vectors[1] == pytest.approx(1 / np.sqrt(2), abs=1e-6)
    [call] = ledger.calls
    assert (call.kind, call.cost_usd, call.prompt_tokens) == ("embed", 0.0, 3)
    assert str(folder) not in embedder.identity


def test_dense_search_with_a_fastembed_model_ranks_by_its_vectors(folder: Path) -> None:
    corpus = make_corpus(["red piano", "blue harbour", "piano"])
    retriever = make_retriever("dense", corpus, embedder=f"{EMBEDDER}@{folder}", title=False)
    assert retriever.search("harbour", k=1)[0].text == "blue harbour"


def test_reranker_from_folder_orders_by_its_logits(folder: Path) -> None:
    reranker = make_reranker(f"{RERANKER}@{folder}")
    passages = list(make_corpus(["blue", "harbour red", "piano"]))
    with open_ledger() as ledger:
        scores = reranker.score("red", passages)
    assert sorted(range(3), key=lambda at: -scores[at]) == [1, 2, 0]
    assert scores[1] - scores[0] == pytest.approx(4.0)
    assert ledger.calls[0].kind == "rerank"


def test_unknown_model_or_unreadable_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no fastembed embedder named 'MiniLM'"):
        make_embedder("fastembed/MiniLM").embed(["red"])
    with pytest.raises(ModelError, match=r"cannot load .*; give fastembed/.*@FOLDER") as error:
        open_model("embedder", f"sentence-transformers/all-MiniLM-L6-v2@{tmp_path}")
    assert "\n" not in str(error.value)
