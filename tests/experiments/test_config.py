"""Configs: layering, identity, and one clear line for each mistake."""

from pathlib import Path

import pytest

from ragbench.errors import ConfigError, KnobError
from ragbench.experiments.config import load_config, make_config


def test_unknown_field_names_the_near_one() -> None:
    with pytest.raises(KnobError, match="did you mean retriever"):
        make_config({"retreiver": "bm25"})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("limit", 0, ">= 1"),
        ("limit", "many", "limit='many'"),
        ("split", "dev", "train | validation | test"),
        ("temperature", 3, "<= 2"),
        ("workers", -1, ">= 1"),
    ],
)
def test_value_out_of_bounds_names_value_and_bound(
    field: str, value: object, expected: str
) -> None:
    with pytest.raises(KnobError) as error:
        make_config({field: value})
    assert expected in str(error.value)
    assert field in str(error.value)
    assert "\n" not in str(error.value)


def test_inherits_merges_mappings_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("program: ircot\nset: {max_steps: 3, k: 2}\nlimit: 7\n")
    (tmp_path / "b.yaml").write_text("inherits: a.yaml\nset: {max_steps: 6}\n")
    config = make_config({"seed": 1}, base=load_config(tmp_path / "b.yaml"))
    assert config.set == {"max_steps": 6, "k": 2}
    assert (config.limit, config.seed, config.program) == (7, 1, "ircot")


def test_circle_of_inherits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("inherits: b.yaml\n")
    (tmp_path / "b.yaml").write_text("inherits: a.yaml\n")
    with pytest.raises(ConfigError, match="inherits itself"):
        load_config(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1\n", "inherits: 3\n", "inherits: nowhere\n"])
def test_malformed_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "a.yaml")
    assert "\n" not in str(error.value)


def test_missing_file_lists_the_shipped_names() -> None:
    with pytest.raises(ConfigError, match="no config 'nowhere'"):
        load_config("nowhere")


def test_folder_depends_on_what_decides_the_records_only() -> None:
    plain = make_config({})
    assert plain.folder() == make_config({"limit": 3, "workers": 1, "cache": False}).folder()
    assert plain.folder() != make_config({"seed": 7}).folder()
    assert plain.folder() != make_config({"set": {"max_steps": 2}}).folder()


def test_folder_name_cannot_leave_runs() -> None:
    folder = make_config({"lm": "local:/models/../../x.gguf", "set": {"variant": "../up"}}).folder()
    assert folder.parent == Path("runs")
    assert ".." not in folder.parts
