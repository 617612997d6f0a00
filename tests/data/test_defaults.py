"""Options whose default is the data set's: what they are, and that one run has one identity."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import default_view, load_dataset
from ragbench.data.load import default_setting
from ragbench.experiments.config import make_config
from tests.data.samples import CUSTOM, HOTPOT, MUSIQUE

PASSAGES = [{"id": f"p{i}", "title": f"T{i}", "text": f"Text number {i}."} for i in range(4)]
QUESTIONS = [{"id": f"q{i}", "question": f"Question {i}?", "answer": "A"} for i in range(8)]

#: The options that some data sets need; `NAME + corpus` is one with a corpus file.
NEEDED: dict[str, dict[str, str]] = {
    "synthetic": {"size": "100"},
    "hotpotqa": {"data_file": "hotpot.json"},
    "musique": {"data_file": "musique.json"},
    "jsonl": {"data_file": "own.json"},
    "jsonl + corpus": {"data_file": "questions.json", "corpus_file": "corpus.json"},
    "documents": {"corpus_file": "corpus.json"},
    "arag": {"data_file": "questions.json", "corpus_file": "chunks.json"},
    "graphrag_bench": {"data_file": "questions.json", "corpus_file": "documents.json"},
}


@pytest.fixture
def data_of(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """The options of `NEEDED`, with files."""
    files: dict[str, Any] = {
        "hotpot.json": HOTPOT,
        "musique.json": MUSIQUE,
        "own.json": CUSTOM,
        "questions.json": QUESTIONS,
        "corpus.json": PASSAGES,
        "documents.json": [{"corpus_name": "c", "context": "Some words. " * 50}],
        "chunks.json": ["0:Some words.", "1:Other words."],
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))

    def options(name: str) -> dict[str, Any]:
        given = {k: v if k == "size" else tmp_path / v for k, v in NEEDED[name].items()}
        return {"dataset": name.partition(" ")[0], **given}

    return options


@pytest.mark.parametrize("name", NEEDED)
def test_a_default_written_down_is_the_run_without_it(
    name: str, data_of: Callable[[str], dict[str, Any]]
) -> None:
    options = data_of(name)
    left_out = make_config(options)
    data = load_dataset(left_out.data_spec())
    assert data.corpus.view == default_view(data.name)
    corpus = "corpus_file" in options
    assert data.setting == default_setting(data.name, None, has_corpus=corpus)
    defaults = {
        "setting": data.setting,
        "view": data.corpus.view,
        "fractions": "0.40,.2,0.4",
        "passage_tokens": 200,
    }
    for given in [{k: v} for k, v in defaults.items()] + [defaults]:
        assert make_config({**options, **given}).folder() == left_out.folder(), given
    same = load_dataset(make_config({**options, **defaults}).data_spec())
    assert same.digest == data.digest
    others = {
        "setting": "pooled" if data.setting == "distractor" else "distractor",
        "view": "chunk" if data.corpus.view == "paragraph" else "paragraph",
        "fractions": "0.5,0.1,0.4",
        "passage_tokens": 201,
    }
    folders = {make_config({**options, k: v}).folder() for k, v in others.items()}
    assert len(folders | {left_out.folder()}) == 1 + len(others)


def test_the_hubs_own_repository_and_first_configuration() -> None:
    hub = {"dataset": "hotpotqa", "hub": True}
    folder = make_config(hub).folder()
    assert make_config({**hub, "hub_config": "distractor"}).folder() == folder
    assert make_config({**hub, "hub_repo": "hotpotqa/hotpot_qa"}).folder() == folder
    assert make_config({**hub, "hub_repo": "me/mine"}).folder() != folder
    assert make_config({**hub, "hub_config": "fullwiki"}).folder() != folder
