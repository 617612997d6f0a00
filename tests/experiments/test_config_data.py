"""Which questions a config comes to: own data whole and in order, 20 of the synthetic world."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.cli.options import to_config
from ragbench.data import load_dataset
from ragbench.errors import ConfigError
from ragbench.experiments.config import make_config
from ragbench.experiments.runs.context import choose
from tests.data.samples import HOTPOT, MUSIQUE

OWN = [{"question": f"Question {i}?", "answer": i} for i in range(30)]


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.json").write_text(json.dumps(OWN))
    (tmp_path / "corpus.json").write_text(json.dumps([{"title": "T", "text": "Text."}]))
    return {"data_file": tmp_path / "mine.json", "corpus_file": tmp_path / "corpus.json"}


def test_eval_asks_a_file_whole_and_in_order(own: dict[str, Any]) -> None:
    config = to_config(**own, whole=True)
    assert (config.data.dataset, config.data.split, config.data.limit) == ("jsonl", "all", None)
    asked = choose(load_dataset(config.data_spec()), config)
    assert [example.answers for example in asked] == [[str(i)] for i in range(30)]
    first = to_config(**own, limit=3, whole=True)
    assert len(choose(load_dataset(first.data_spec()), first)) == 3


def test_what_compiles_or_names_a_split_asks_that(own: dict[str, Any]) -> None:
    assert to_config(**own).data.split == "test"
    assert to_config(**own, split="validation", whole=True).data.split == "validation"
    named = to_config(test_file=own["data_file"], corpus_file=own["corpus_file"], whole=True)
    assert named.data.split == "test"
    assert len(choose(load_dataset(named.data_spec()), named)) == 30


def test_only_the_synthetic_world_is_asked_in_part() -> None:
    assert make_config({}).data.limit == 20
    assert make_config({"dataset": "hotpotqa", "hub": True}).data.limit is None
    assert make_config({"dataset": "hotpotqa", "limit": 7}).data.limit == 7
    assert make_config({"limit": None}).data.limit is None


@pytest.mark.parametrize(("rows", "dataset"), [(HOTPOT, "hotpotqa"), (MUSIQUE, "musique")])
def test_the_layout_of_a_file_names_the_data_set(rows: Any, dataset: str, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(rows))
    assert make_config({"data_file": path}).data.dataset == dataset
    assert make_config({"data_file": path, "dataset": "arag"}).data.dataset == "arag"


def test_a_repository_of_ones_own() -> None:
    config = make_config({"hub_repo": "me/mine", "field": {"question": "query"}})
    spec = config.data_spec()
    assert (spec.dataset, spec.hub, spec.hub_repo) == ("jsonl", True, "me/mine")
    assert spec.fields == (("question", "query"),)


def test_shares_are_numbers(own: dict[str, Any]) -> None:
    config = make_config({**own, "fractions": "0.2,0.3,0.5"})
    assert config.data_spec().fractions == (0.2, 0.3, 0.5)
    data = load_dataset(config.data_spec())
    assert [len(data.splits[name]) for name in ("train", "validation", "test")] == [6, 9, 15]
    for wrong in ("0.2,0.3", "a,b,c", "nan,0,1", ""):
        with pytest.raises(ConfigError, match="fractions must"):
            make_config({**own, "fractions": wrong}).data_spec()
    assert make_config({"fractions": [0.2, 0.3, 0.5]}).data.fractions == "0.2,0.3,0.5"


def test_fields_that_are_not_used_change_no_identity(own: dict[str, Any]) -> None:
    identity = make_config({**own, "dataset": "jsonl"}).identity()
    assert not {"fractions", "field", "passage_tokens", "train_file", "hub_repo"} & set(identity)
