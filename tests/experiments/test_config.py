"""Configs: layering, both forms of a key, and one clear line for each mistake."""

from pathlib import Path

import pytest

from ragbench.errors import ConfigError, KnobError
from ragbench.experiments.config import load_config, make_config


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"retreiver": "bm25"}, "did you mean retriever"),
        ({"data": {"splt": "test"}}, "did you mean data.split"),
        ({"limit": 0}, "limit=0 .*>= 1"),
        ({"limit": "many"}, "limit='many'"),
        ({"split": "dev"}, r"split='dev' .*train \| validation \| test"),
        ({"temperature": 3}, "temperature=3 .*<= 2"),
        ({"workers": -1}, "workers=-1 .*>= 1"),
        *(({"timeout": v}, "timeout") for v in ("nan", "-inf", float("nan"), float("inf"))),
        *(({field: "inf"}, field) for field in ("temperature", "rpm", "patience")),
    ],
)
def test_a_mistake_is_one_line_with_the_cure(given: dict[str, object], expected: str) -> None:
    with pytest.raises(KnobError, match=expected) as error:
        make_config(given)
    assert "\n" not in str(error.value)


def test_inherits_merges_mappings_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("program: ircot\nset: {max_steps: 3, k: 2}\nlimit: 7\n")
    (tmp_path / "b.yaml").write_text("inherits: a.yaml\nset: {max_steps: 6}\n")
    config = make_config({"seed": 1}, base=load_config(tmp_path / "b.yaml"))
    assert config.set == {"max_steps": 6, "k": 2}
    assert (config.data.limit, config.seed, config.program) == (7, 1, "ircot")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("inherits: a.yaml\n", "inherits itself"),
        ("inherits: 3\n", "must name one config"),
        ("inherits: nowhere\n", "no config 'nowhere'"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ("set: &a {k: 3}\nlm: *a\n", "aliases are not allowed"),
        ("seed: 1\nseed: 2\n", "key 'seed' comes twice"),
        ("set: {k: 1, k: 2}\n", "key 'k' comes twice"),
        ("set: " + "[" * 30 + "]" * 30, "nested more than 20 levels deep"),
        ("lm: " + "x" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_malformed_or_hostile_file_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem) as error:
        load_config(tmp_path / "a.yaml")
    assert "\n" not in str(error.value)


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


def test_yaml_guesses_no_base_60_octal_or_boolean_words(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "set: {a: 2:10, b: 010, c: on, d: 1e3, e: true, f: 2020-01-01}"
    )
    found = load_config(tmp_path / "a.yaml")["set"]
    assert found == {"a": "2:10", "b": 10, "c": "on", "d": 1000.0, "e": True, "f": "2020-01-01"}


def test_folder_name_cannot_leave_runs() -> None:
    folder = make_config({"lm": "local:/models/../../x.gguf"}).folder()
    assert folder.parent == Path("runs")
    assert ".." not in folder.parts
