"""Compiled programs that come with the package."""

from functools import cache
from pathlib import Path

import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import ConfigError
from ragbench.experiments.artifacts import load_artefact, question_hash
from ragbench.experiments.config import (
    SHIPPED_FOLDER,
    compiled_folder,
    make_config,
    shipped_programs,
)
from ragbench.programs import PROGRAMS
from tests.programs.shelf import shelf


@cache
def training_questions() -> set[str]:
    questions = load_dataset(DataSpec("synthetic")).splits["train"]
    return {question_hash(example.question) for example in questions}


def test_there_are_some() -> None:
    assert {"vanilla", "multi_query", "tree_rag"} <= set(shipped_programs())


@pytest.mark.parametrize("name", shipped_programs())
def test_it_is_of_the_program_as_it_is_now(name: str) -> None:
    program = PROGRAMS.get(name)(shelf())
    sidecar = load_artefact(SHIPPED_FOLDER / name, program)
    assert sum(len(predictor.demos) for _, predictor in program.named_predictors()) > 0
    assert sidecar.data.name == "synthetic"
    assert sidecar.data.train.hashes
    assert set(sidecar.data.train.hashes) <= training_questions()


@pytest.mark.parametrize("name", shipped_programs())
def test_it_names_no_address(name: str) -> None:
    assert "://" not in (SHIPPED_FOLDER / name / "sidecar.json").read_text(encoding="utf-8")


def test_it_is_named_by_shipped() -> None:
    config = make_config({"program": "vanilla", "compiled": "shipped"})
    assert config.compiled == SHIPPED_FOLDER / "vanilla"


def test_a_program_without_one_is_told_which_have() -> None:
    with pytest.raises(ConfigError, match="no compiled direct comes with ragbench, only "):
        compiled_folder(Path("shipped"), "direct")


def test_a_folder_is_itself() -> None:
    assert compiled_folder(Path("compiled/mine"), "direct") == Path("compiled/mine")
