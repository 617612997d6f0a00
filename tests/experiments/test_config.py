"""Configs: layers, both forms of a key, mistakes, the shipped ones, and the identity of a run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ragbench.data.base import DATASETS
from ragbench.errors import ConfigError, KnobError
from ragbench.experiments.config import (
    CompileConfig,
    RunConfig,
    load_config,
    make_config,
    shipped_configs,
)
from ragbench.experiments.plans import folder_name
from ragbench.experiments.report.names import name_of_system
from ragbench.experiments.store import DataId, RunCard
from ragbench.knobs import resolve
from ragbench.programs import PROGRAMS, RAGProgram
from ragbench.retrievers.base import RETRIEVERS
from tests.programs.shelf import shelf


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"retreiver": "bm25"}, "did you mean retriever"),
        ({"lm": {"model": "openai/x"}}, "lm=.* is not allowed; give str"),
        ({"set.k": 3}, r"has no field 'set\.k'"),
        ({"variant": "paper"}, "write set: {variant: paper}"),
        ({"limit": 0}, "limit=0 .*>= 1"),
        ({"split": "dev"}, r"split='dev' .*train \| validation \| test"),
        ({"workers": True}, "workers=True is not allowed; give a number"),
        ({"temperature": True}, "temperature=True is not allowed; give a number"),
        ({"temperature": 3}, "temperature=3 .*give float >= 0 and <= 2, or none"),
        ({"reply_tokens": 0}, "reply_tokens=0 .*give int >= 1 and <= 1000000, or none"),
        *(({"cache": v}, f"cache={v!r} is not allowed; give true or false") for v in ("yes", 1)),
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
    assert (config.limit, config.seed, config.program) == (7, 1, "ircot")
    (tmp_path / "c.yaml").write_text("set: {a: 2:10, b: 010, c: on, d: 1e3, e: true}")
    guessed = {"a": "2:10", "b": 10, "c": "on", "d": 1000.0, "e": True}  # no base 60, no octal
    assert load_config(tmp_path / "c.yaml")["set"] == guessed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("inherits: a.yaml\n", "inherits itself"),
        ("a: [1\n", "is not YAML"),
        ("set: &a {k: 3}\nlm: *a\n", "aliases are not allowed"),
        ("seed: 1\nseed: 2\n", "key 'seed' comes twice"),
        ("set: " + "[" * 9000 + "]" * 9000, "is not YAML: unreadable"),
    ],
)
def test_a_malformed_or_hostile_file_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem) as error:
        load_config(tmp_path / "a.yaml")
    assert "\n" not in str(error.value)


def test_a_config_is_made_again_from_its_fields() -> None:
    fields = {"lm": "openai/x", "lm_for": {"plan": "local"}, "split": "train", "retriever": "dense"}
    config = make_config(fields)
    assert make_config({}, base=config.model_dump()) == config
    assert make_config(config.model_dump(mode="json")) == config
    with pytest.raises(ConfigError, match=r"set.k is given twice, as 3 and as 4"):
        make_config({"k": 3, "set": {"k": 4}})
    assert make_config({"k": 3, "set": {"k": "3"}}).set == {"k": "3"}


# -- what comes with the package -------------------------------------------------------------------


def load(name: str) -> RunConfig:
    return make_config({}, base=load_config(name))


@pytest.mark.parametrize("name", shipped_configs())
def test_a_shipped_config_holds(name: str) -> None:
    config = load(name)
    resolve(RETRIEVERS.get(config.retriever).Settings, config.retriever, config.retriever_set)
    assert config.dataset in DATASETS.names()
    assert set(config.set) <= {"variant"}, "a variant is the whole of a published setting"
    if name not in ("base", "specification"):
        assert config.program == name
        PROGRAMS.get(name)(shelf(), **config.set)


def test_shipped_base_is_what_eval_does_by_default() -> None:
    assert load("base") == make_config({})


def test_a_variant_is_one_system_however_it_is_asked_for() -> None:
    """Of every config and variant: the same knobs by name and by config; a label has one set."""
    by_label: dict[str, Any] = {}
    for name, program in PROGRAMS:
        for variant in program.variants:
            over = {"set": {"variant": variant}}
            knobs = program.resolve_knobs(over["set"])
            config = make_config(over, base=load_config(name))
            assert program.resolve_knobs(config.set) == knobs, (name, variant)
            for changed in ({}, {"k": 1}, {"k": knobs.k}, {"context_tokens": 777}):
                made = program(shelf(), variant=variant, **changed)
                card = make_card_of(made)
                label = name_of_system(card)
                assert by_label.setdefault(label, card.knobs) == card.knobs, label
                assert ("context_tokens=777" in label) == ("context_tokens" in changed)
    assert "ircot (paper, k=1)" in by_label
    assert "vanilla (k=1)" in by_label


def make_card_of(program: RAGProgram) -> RunCard:
    return RunCard(
        identity={"program": program.name},
        label=program.label,
        knobs=program.knobs.model_dump(mode="json"),
        changed_knobs=program.changed_knobs,
        model="m",
        data=DataId(name="d"),
    )


def test_every_program_has_a_config_that_inherits_the_specification() -> None:
    assert {*PROGRAMS.names(), "base", "specification"} <= set(shipped_configs())
    wanted = {
        "dataset": "hotpotqa", "setting": "distractor", "split": "test", "limit": 500,
        "lm": "openai/gpt-4o-mini", "temperature": 0.0, "reply_tokens": 1024,
        "retriever": "hybrid", "set": {}, "workers": 5, "seed": 42, "cache": True,
    }  # fmt: skip
    config = load("specification")
    assert config.model_dump(mode="json", include=set(wanted)) == wanted
    assert config.retriever_set["dense_weight"] == 0.5
    assert "openai/text-embedding-3-small" in config.retriever_set["dense"]


def test_what_is_given_takes_the_place_of_what_a_config_has() -> None:
    base = load_config("ircot")
    config = make_config({"retriever": "bm25", "k": 7}, base=base)
    assert (config.retriever, config.set["k"], config.limit) == ("bm25", 7, 500)
    assert config.retriever_set == {}
    assert make_config({"limit": 3}, base=base).retriever_set["fusion"] == "rrf"
    for given, hub in (
        ({"limit": 3}, True), ({"data_file": "mine.json"}, False),
        ({"dataset": "synthetic"}, False), ({"dataset": "musique", "hub": True}, True),
    ):  # fmt: skip
        assert make_config(given, base=base).hub == hub


# -- identity --------------------------------------------------------------------------------------

SAME: list[dict[str, Any]] = [
    {}, {"k": 3}, {"set": {"k": "3", "variant": "spec"}}, {"lm": "local:qwen2.5-coder-0.5b"},
    {"adapter": "json"}, {"retriever": "bm25(k1=0.9)"}, {"retriever_set": {"b": "0.4"}},
    {"setting": "distractor", "view": "paragraph", "fractions": "0.40,.2,0.4"},
    {"limit": 3, "workers": 1, "cache": False, "price": "in=1,out=2", "rpm": 5, "timeout": 9},
]  # fmt: skip
OTHER: list[dict[str, Any]] = [
    {"k": 4}, {"set": {"max_steps": 2}}, {"set": {"variant": "paper"}}, {"seed": 7},
    {"lm": "openai/gpt-4o-mini"}, {"api_base": "http://127.0.0.1:9/v1"},
    {"lm_for": {"answer": "openai/gpt-4o-mini"}}, {"retriever": "distracting"},
    {"retriever_set": {"b": 0.5}}, {"adapter": "chat"}, {"split": "train"}, {"votes": 3},
    {"form": True}, {"temperature": 0.5}, {"reply_tokens": 100}, {"setting": "pooled"},
]  # fmt: skip


def test_what_resolves_the_same_is_one_run_and_otherwise_another() -> None:
    usual = make_config({"program": "ircot"})
    assert usual.folder().name.startswith("ircot-spec-synthetic-test-bm25-qwen2.5_coder_0.5b-")
    odd = make_config({"lm": "local:/models/../../x.gguf"}).folder()
    assert (odd.parent, ".." in odd.parts) == (Path("runs"), False)
    for given in SAME:
        assert make_config(given).identity() == usual.identity(), given
    assert len({make_config(given).folder() for given in [{}, *OTHER]}) == 1 + len(OTHER)
    for given in [*SAME, *OTHER]:
        identity = make_config(given).identity()
        assert make_config(json.loads(json.dumps(identity))).identity() == identity
    lm = {"lm": "anthropic/claude-3-5-haiku-latest"}  # the adapter of `auto` is the LM's
    adapters = [make_config({**lm, **more}).folder() for more in ({}, {"adapter": "chat"})]
    assert adapters[0] == adapters[1] != make_config({**lm, "adapter": "json"}).folder()


A, B = "http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1"


def test_the_address_of_a_server_counts_wherever_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def identity(**given: Any) -> dict[str, Any]:
        return make_config({"program": "lookahead", "lm": "openai/m", **given}).identity()

    def places(address: str) -> list[dict[str, Any]]:
        """Every place for the address of a server."""
        dense = {"retriever": "dense", "retriever_set": {"embedder": "openai/e"}}
        hybrid = f"dense(embedder=openai/e,api_base={address})"
        return [
            {"lm_for": {"plan": f"openai/m@{address}"}},
            {"set": {"rerank": address}},
            {**dense, "retriever_set": {"embedder": "openai/e", "api_base": address}},
            {"retriever": "hybrid", "retriever_set": {"dense": hybrid}},
            {"retriever": "http", "retriever_set": {"url": address}},
            {"retriever": "rerank", "retriever_set": {"reranker": address}},
            {"program": "a_rag", "set": {"embedder": "openai/e", "embedder_base": address}},
        ]

    for at_a, at_b, odd in zip(places(A), places(B), places(A.upper()[:4] + A[4:]), strict=True):
        assert identity(**at_a) != identity(**at_b), at_a
        assert identity(**at_a) == identity(**odd), odd
    asked = identity(lm=f"openai/m@{A}")
    for lm, api_base in (("openai/m", A), ("openai/m", f"{A}/"), (f"openai/m@{A}/", None)):
        assert identity(lm=lm, api_base=api_base) == asked
    host = "http://models.example"
    assert identity(api_base=f"{host}/v1") == identity(api_base="HTTP://Models.Example:80/v1/")
    assert identity(api_base=f"{host}/v1") != identity(api_base=f"{host}/v2")
    assert len({json.dumps(i) for i in (asked, identity(), identity(lm=f"openai/m@{B}"))}) == 3
    assert make_config(json.loads(json.dumps(asked))).identity() == asked
    monkeypatch.setenv("OPENAI_BASE_URL", A)
    assert identity() == asked
    settings = [CompileConfig(teacher=f"openai/t@{at}") for at in (A, f"{A}/", B)]
    names = [folder_name(make_config({"lm": "openai/m"}), each) for each in settings]
    assert names[0] == names[1] != names[2]


def test_a_file_counts_by_its_content_and_must_be_readable(tmp_path: Path) -> None:
    def identity(path: object) -> dict[str, Any]:
        return make_config({"dataset": "jsonl", "data_file": path}).identity()

    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("other" if name == "c" else "same")
    a, b, c = (identity(tmp_path / name) for name in "abc")
    assert a == b != c
    os.mkfifo(tmp_path / "pipe")  # not waited for; what reads the data says that it is no file
    assert identity(tmp_path / "pipe")
