"""One run, one folder: identity is of what a config resolves to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError
from ragbench.experiments.config import make_config

SAME: list[dict[str, Any]] = [
    {},
    {"k": 3},
    {"set": {"k": 3}},
    {"set": {"k": "3", "variant": "spec"}},
    {"lm": "local:qwen2.5-coder-0.5b"},
    {"adapter": "json"},
    {"retriever": "bm25(k1=0.9)"},
    {"retriever_set": {"b": "0.4"}},
    {"limit": 3, "workers": 1, "cache": False, "price": "in=1,out=2", "rpm": 5, "timeout": 9},
]
OTHER: list[dict[str, Any]] = [
    {"k": 4},
    {"set": {"max_steps": 2}},
    {"set": {"variant": "paper"}},
    {"seed": 7},
    {"lm": "openai/gpt-4o-mini"},
    {"api_base": "http://127.0.0.1:9/v1"},
    {"lm_for": {"answer": "openai/gpt-4o-mini"}},
    {"retriever": "distracting"},
    {"retriever_set": {"b": 0.5}},
    {"adapter": "chat"},
    {"split": "train"},
    {"votes": 3},
    {"form": True},
    {"temperature": 0.5},
    {"reply_tokens": 100},
]


@pytest.mark.parametrize("given", SAME)
def test_what_resolves_the_same_is_one_run(given: dict[str, Any]) -> None:
    assert make_config(given).identity() == make_config({"program": "ircot"}).identity()
    assert (
        make_config(given)
        .folder()
        .name.startswith("ircot-spec-synthetic-test-bm25-qwen2.5_coder_0.5b-")
    )


def test_the_adapter_of_auto_is_the_lms() -> None:
    lm = {"lm": "anthropic/claude-3-5-haiku-latest"}
    auto = make_config(lm)
    assert auto.folder() == make_config({**lm, "adapter": "chat"}).folder()
    assert auto.folder() != make_config({**lm, "adapter": "json"}).folder()


def test_what_resolves_otherwise_is_another_run() -> None:
    folders = {make_config(given).folder() for given in [{}, *OTHER]}
    assert len(folders) == 1 + len(OTHER)


def test_an_identity_resolves_to_itself() -> None:
    for given in [*SAME, *OTHER]:
        identity = make_config(given).identity()
        assert make_config(json.loads(json.dumps(identity))).identity() == identity


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("other" if name == "c" else "same")
    a, b, c = (
        make_config({"dataset": "jsonl", "data_file": tmp_path / name}).identity() for name in "abc"
    )
    assert a == b != c
    os.mkfifo(tmp_path / "pipe")  # not waited for; what reads the data says that it is no file
    assert make_config({"dataset": "jsonl", "data_file": tmp_path / "pipe"}).identity()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that gives EIO")
def test_a_file_that_cannot_be_read_gives_no_other_identity(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/proc/self/mem cannot be read: Input/output error"):
        make_config({"dataset": "jsonl", "data_file": "/proc/self/mem"}).identity()
    (tmp_path / "sidecar.json").symlink_to("/proc/self/mem")
    with pytest.raises(ConfigError, match="cannot be read: Input/output error"):
        make_config({"compiled": tmp_path}).identity()
