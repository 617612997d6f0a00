"""The fictional world: every question has one answer, re-derived here from the facts."""

import re
from collections import Counter
from typing import Any

import pytest

from ragbench.data import Dataset, DataSettings, load_dataset
from ragbench.data.synthetic import stream_passages
from ragbench.data.synthetic.render import render
from ragbench.data.synthetic.world import Entity, SeededRandom, build_cell

SEED = 42


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_dataset(DataSettings())


@pytest.fixture(scope="module")
def world() -> list[Entity]:
    return [e for i in range(40) for e in build_cell(SEED, i)]


def all_examples(data: Dataset) -> list[Any]:
    return [e for part in data.splits.values() for e in part]


class Oracle:
    """Answers a question's logic from a flat list of all facts of the whole world."""

    def __init__(self, world: list[Entity]) -> None:
        self.by_title = {e.title: e for e in world}
        self.known: dict[tuple[int, str], list[Any]] = {}  # by entity and relation, or "~relation"
        for entity in world:
            for relation, value in entity.facts.items():
                self.known.setdefault((id(entity), relation), []).append(value)
                if isinstance(value, Entity):
                    self.known.setdefault((id(value), f"~{relation}"), []).append(entity)

    def follow(self, title: str, path: list[str]) -> list[Any]:
        """All ends of a path: one, if the question is sound."""
        at: list[Any] = [self.by_title[title]]
        for step in path:
            relation, _, wanted = step.partition(":")
            kind, _, sex = wanted.partition(":")
            at = [found for here in at for found in self.known.get((id(here), relation), [])]
            at = [
                e
                for e in at
                if not kind or (e.kind == kind and (not sex or e.details["sex"] == sex))
            ]
        return at

    def answers(self, logic: dict[str, Any]) -> list[str]:
        if logic["form"] == "chain":
            ends = self.follow(logic["start"], logic["path"])
            return [end if isinstance(end, str) else end.name for end in ends]
        ends = [self.follow(title, logic["path"]) for title in logic["items"]]
        assert [len(end) for end in ends] == [1, 1]
        (first,), (second,) = ends
        if logic["form"] == "same":
            return ["yes" if first is second else "no"]
        values = [int(re.sub(r"\D", "", end.split(" ")[-1])) for end in (first, second)]
        assert values[0] != values[1]
        best = min(values) if logic["pick"] == "min" else max(values)
        return [self.by_title[logic["items"][values.index(best)]].name]


def test_every_question_has_exactly_the_answer_that_the_facts_give(data, world):
    oracle = Oracle(world)
    for example in all_examples(data):
        assert oracle.answers(example.logic) == [example.answers[0]], example.question


def test_no_alias_names_anything_else(world):
    owners: dict[str, set[str]] = {}
    for entity in world:
        for name in {entity.name, entity.title, *entity.aliases}:
            owners.setdefault(name, set()).add(entity.name)
    assert all(len(named) == 1 for named in owners.values())


def test_support_states_each_answer_of_the_decomposition(data):
    by_pid = {p.pid: p for p in data.corpus}
    for example in all_examples(data):
        titles = {by_pid[pid].title: by_pid[pid] for pid in example.gold_pids}
        assert {title for title, _ in example.support} == set(titles)
        told = " ".join(titles[title].sentences[i] for title, i in example.support)
        for part in example.decomposition:
            # A step back is told by the passage of what it finds, whose title is the answer.
            assert part["answer"] in told or any(part["answer"] in t for t in titles)


def test_every_fact_of_the_world_is_stated_in_the_sentence_it_is_said_to_be(world):
    for entity in world:
        passage, stated = render(entity, SeededRandom("any"))
        assert stated.keys() == entity.facts.keys()
        for relation, value in entity.facts.items():
            mention = value.mention if isinstance(value, Entity) else value
            assert mention.lower() in passage.sentences[stated[relation]].lower()


def test_distractor_contexts_hold_the_gold_and_near_passages(data):
    assert data.setting == "distractor"
    place_of_gold = Counter()
    for example in all_examples(data):
        context = [data.corpus[i] for i in data.corpus.contexts[example.qid]]
        assert len(context) == len({p.pid for p in context}) == 10
        pids = [p.pid for p in context]
        assert set(example.gold_pids) <= set(pids)
        place_of_gold[pids.index(example.gold_pids[0])] += 1
        assert example.hops == len(example.gold_pids)
    assert len(place_of_gold) == 10  # gold has no favourite place
    assert max(place_of_gold.values()) < 100


def test_same_seed_same_bytes(data):
    assert data.corpus.digest == CORPUS
    assert data.digest == DIGEST
    assert load_dataset(DataSettings(split_seed=43)).corpus.digest != CORPUS


def test_a_smaller_world_is_a_prefix_of_a_larger():
    large = list(stream_passages(1000, 5))
    assert list(stream_passages(137, 5)) == large[:137]
    assert load_dataset(DataSettings(size=137, split_seed=5)).corpus.passages == tuple(large[:137])


#: Of the default world; they change only when the generator does, and then on purpose.
CORPUS = "bb953455eefb3598d47a017bfd42e5e3c090e2b8fc76e696c29958d0e9576dd7"
DIGEST = "b174a24cfbe069b9a2da5f853496dfb7c88c65987b63bf79dc209e84e55fe2ed"
