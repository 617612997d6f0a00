"""Shipped configs: every one loads, and says what the specification says."""

import re
from pathlib import Path

import pytest

from ragbench.data.base import DATASETS
from ragbench.errors import KnobError
from ragbench.experiments.config import RunConfig, load_config, make_config, shipped_configs
from ragbench.knobs import resolve
from ragbench.programs import PROGRAMS
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage
from ragbench.retrievers.factory import make_retriever


def load(name: str) -> RunConfig:
    return make_config({}, base=load_config(name))


SHIPPED = Path(__file__).parents[2] / "ragbench" / "experiments" / "config" / "shipped"


@pytest.mark.parametrize("name", shipped_configs())
def test_every_name_and_setting_exists(name: str) -> None:
    config = load(name)
    program, retriever = PROGRAMS.get(config.program), config.retriever
    program.resolve_knobs(config.set)
    resolve(RETRIEVERS.get(retriever.name).Settings, retriever.name, retriever.settings)
    assert config.data.dataset in DATASETS.names()
    if name.removesuffix("_full") != "base":
        assert config.program == name.removesuffix("_full")
        corpus = Corpus([Passage("1", "t", "x")])
        program(make_retriever("bm25", corpus), **config.set)


def test_every_program_has_a_config_and_a_full_one() -> None:
    names = set(shipped_configs())
    assert {*PROGRAMS.names(), "base"} <= names
    assert {n for n in names if not n.endswith("_full")} == {
        n.removesuffix("_full") for n in names if n.endswith("_full")
    }


def test_base_is_the_specification() -> None:
    config = load("base")
    wanted = {
        "dataset": "hotpotqa",
        "setting": "distractor",
        "split": "test",
        "limit": 500,
        "lm": "openai/gpt-4o-mini",
        "temperature": 0.0,
        "reply_tokens": 1024,
        "retriever": "hybrid",
        "k": 5,
        "workers": 5,
        "seed": 42,
        "cache": True,
    }
    flat = {**config.flat(), "k": config.set["k"]}
    assert {key: flat[key] for key in wanted} == wanted
    assert config.retriever.settings["dense_weight"] == 0.5
    assert "openai/text-embedding-3-small" in config.retriever.settings["dense"]


@pytest.mark.parametrize("name", [n for n in shipped_configs() if n.endswith("_full")])
def test_full_differs_in_the_limit_alone(name: str) -> None:
    whole, part = load(name), load(name.removesuffix("_full"))
    assert whole.data.limit is None
    assert whole.but(limit=part.data.limit) == part


def test_override_takes_the_place_of_a_copy() -> None:
    base = load_config("ircot")
    config = make_config({"retriever": "bm25", "k": 7}, base=base)
    assert (config.retriever.name, config.set["k"], config.data.limit) == ("bm25", 7, 500)
    assert config.retriever.settings == {}
    assert make_config({"limit": 3}, base=base).retriever.settings["fusion"] == "rrf"


def test_data_of_ones_own_take_the_place_of_the_hub() -> None:
    base = load_config("ircot")
    assert make_config({"limit": 3}, base=base).data.hub
    assert not make_config({"data_file": "mine.json"}, base=base).data.hub
    assert not make_config({"dataset": "synthetic"}, base=base).data.hub
    assert make_config({"dataset": "musique", "hub": True}, base=base).data.hub


def test_misspelt_names_are_refused_with_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("inherits: ircot\nreply_token: 5\n")
    with pytest.raises(KnobError, match="did you mean reply_tokens"):
        make_config({}, base=load_config(tmp_path / "mine.yaml"))
    (tmp_path / "mine.yaml").write_text("inherits: ircot\nset: {max_step: 6}\n")
    with pytest.raises(KnobError, match="did you mean max_steps"):
        make_config({}, base=load_config(tmp_path / "mine.yaml")).identity()


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*_full.yaml")), ids=lambda path: path.stem)
def test_full_configs_say_what_a_question_takes(path: Path) -> None:
    assert re.match(
        r"# The whole split\. A question takes \d+( to \d+)? calls? and [\d,]+ to [\d,]+ tokens "
        r"\(estimated by --dry-run\)\.\n",
        path.read_text("utf-8"),
    )
