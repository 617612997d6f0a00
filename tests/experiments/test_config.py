"""Configs: layering, both forms of a key, and one clear line for each mistake."""

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
    assert (config.data.limit, config.seed, config.program) == (7, 1, "ircot")


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


def test_flat_and_nested_keys_are_the_same() -> None:
    flat = {"lm": "openai/x", "lm_for": {"plan": "local"}, "split": "train", "retriever": "dense"}
    nested = {
        "lm": {"model": "openai/x", "roles": {"plan": "local"}},
        "data": {"split": "train"},
        "retriever": {"name": "dense"},
    }
    assert make_config(flat) == make_config(nested)
    assert make_config({}, base=make_config(flat).model_dump()) == make_config(nested)
    assert make_config(make_config(nested).flat()) == make_config(nested)


def test_a_key_given_in_both_forms_is_refused_where_they_differ() -> None:
    with pytest.raises(ConfigError, match=r"set.k is given twice, as 3 and as 4"):
        make_config({"k": 3, "set": {"k": 4}})
    assert make_config({"k": 3, "set": {"k": "3"}}).set == {"k": "3"}
    with pytest.raises(KnobError, match=r"did you mean data.split"):
        make_config({"data": {"splt": "test"}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("set: &a {k: 3}\nlm: *a\n", "aliases are not allowed"),
        ("seed: 1\nseed: 2\n", "key 'seed' comes twice"),
        ("set: {k: 1, k: 2}\n", "key 'k' comes twice"),
        ("set: " + "[" * 30 + "]" * 30, "nested more than 20 levels deep"),
        ("lm: " + "x" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_hostile_yaml_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "a.yaml")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_yaml_guesses_no_base_60_octal_or_boolean_words(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "set: {a: 2:10, b: 010, c: on, d: 1e3, e: true, f: 2020-01-01}"
    )
    found = load_config(tmp_path / "a.yaml")["set"]
    assert found == {"a": "2:10", "b": 10, "c": "on", "d": 1000.0, "e": True, "f": "2020-01-01"}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["temperature", "timeout", "rpm", "patience"])
def test_numbers_are_finite(field: str, value: object) -> None:
    with pytest.raises(KnobError, match=field):
        make_config({field: value})


def test_folder_name_cannot_leave_runs() -> None:
    folder = make_config({"lm": "local:/models/../../x.gguf"}).folder()
    assert folder.parent == Path("runs")
    assert ".." not in folder.parts
