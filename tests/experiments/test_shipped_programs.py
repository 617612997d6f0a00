"""Compiled programs that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragbench.data import load_dataset
from ragbench.errors import ConfigError
from ragbench.experiments.artifacts import load_artefact, question_hash, read_sidecar
from ragbench.experiments.config import (
    SHIPPED_FOLDER,
    compiled_folder,
    make_config,
    shipped_programs,
)
from ragbench.experiments.runs import build


@pytest.mark.parametrize("name", shipped_programs())
def test_it_loads_into_the_program_as_it_is_now(name: str) -> None:
    config = make_config({"program": name, "compiled": "shipped", "lm": "openai/none"})
    assert config.compiled == SHIPPED_FOLDER / name
    run_context = build(config)
    sidecar = load_artefact(SHIPPED_FOLDER / name, run_context.program)
    shown = sum(len(p.demos) for _, p in run_context.program.named_predictors())
    assert shown > 0, "no demonstrations: nothing was compiled"
    assert sidecar.data.name == "synthetic"


@pytest.mark.parametrize("name", shipped_programs())
def test_its_demonstrations_are_of_the_embedded_training_questions(name: str) -> None:
    learned = set(read_sidecar(SHIPPED_FOLDER / name).data.train.hashes)
    ours = {question_hash(e.question) for e in load_dataset("synthetic").splits["train"]}
    assert learned
    assert learned <= ours


def test_a_program_without_one_is_told_which_have() -> None:
    with pytest.raises(ConfigError, match="no compiled direct comes with ragbench, only "):
        compiled_folder(Path("shipped"), "direct")


def test_a_folder_is_itself() -> None:
    assert compiled_folder(Path("compiled/mine"), "direct") == Path("compiled/mine")
