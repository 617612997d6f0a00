"""Clusters of questions that share gold passages, and splits that share none."""

import pytest
from hypothesis import given, settings, strategies as st

from ragbench.data import DataSpec, load_dataset
from ragbench.data.base import make_example
from ragbench.data.splits import Splits, find_clusters, linked, links, split_examples
from ragbench.errors import ConfigError

SHARES = (0.4, 0.2, 0.4)


def needing(*pids: str, extra: int = 0):
    """An example per string, whose characters are its gold passages."""
    return [
        make_example(qid=f"q{i}", question=f"question {i}", answers=["x"], gold_pids=list(some))
        for i, some in enumerate((*pids, *[""] * extra))
    ]


def shared_between_splits(made: Splits) -> set[object]:
    sides = [{key for e in part for key in links(e)} for part in made.examples.values()]
    return (sides[0] & sides[1]) | (sides[0] & sides[2]) | (sides[1] & sides[2])


def test_a_set_of_everything_is_taken_apart_by_the_commonest_key() -> None:
    chain = [(f"p{i // 5}", f"p{i // 5 + 1}") for i in range(60)]
    assert len(set(linked(chain))) == 1
    found = find_clusters(chain)
    assert 10 <= len(set(found)) <= 13
    for i, at in enumerate(found):
        assert set(chain[i]) & set(chain[at])
    assert find_clusters([("a",)] * 6) == [0] * 6
    assert find_clusters([]) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("abcdefgh", max_size=2), min_size=6, max_size=30), st.integers(0, 3))
def test_splits_by_passage_share_none(pids: list[str], seed: int) -> None:
    examples = needing(*pids, extra=60)
    made = split_examples(examples, seed=seed, fractions=SHARES)
    kept = [e.qid for part in made.examples.values() for e in part]
    assert sorted(kept) == sorted(e.qid for e in examples)
    if made.disjoint == "passages":
        assert not shared_between_splits(made)
        sizes = [len(part) for part in made.examples.values()]
        whole = len(examples)
        assert sizes[0] == pytest.approx(0.4 * whole, abs=max(2, 0.03 * whole))
    again = split_examples(examples, seed=seed, fractions=SHARES)
    assert again == made


def test_where_the_data_do_not_allow_it_questions_are_split_alone() -> None:
    examples = needing(*["a"] * 20)
    made = split_examples(examples, seed=0, fractions=SHARES)
    assert made.disjoint == "questions"
    assert [len(part) for part in made.examples.values()] == [8, 4, 8]
    with pytest.raises(ConfigError, match="too many questions are linked"):
        split_examples(examples, seed=0, fractions=SHARES, disjoint="passages")
    apart = needing("a", "a", *"bcdefghijklmnopqrs")
    asked = split_examples(apart, seed=0, fractions=SHARES, disjoint="questions")
    assert asked.disjoint == "questions"
    assert split_examples(apart, seed=0, fractions=SHARES).disjoint == "passages"


def test_what_shares_a_passage_with_the_official_part_is_dropped() -> None:
    examples = needing("a", "b", "a", "c", "d", "e", "f")
    made = split_examples(examples, seed=0, fractions=SHARES, assigned={"q0": "test", "q1": "test"})
    assert made.overlapping == 1
    kept = {name: {e.qid for e in part} for name, part in made.examples.items()}
    assert kept["test"] == {"q0", "q1"}
    assert kept["train"] | kept["validation"] == {"q3", "q4", "q5", "q6"}
    most = needing("a", *"aaaa", "b")
    assert split_examples(most, seed=0, fractions=SHARES, assigned={"q0": "test"}).overlapping == 0
    with pytest.raises(ConfigError, match="4 of 5 questions outside the official part"):
        split_examples(most, seed=0, fractions=SHARES, assigned={"q0": "test"}, disjoint="passages")


def test_the_synthetic_world_is_split_by_passage() -> None:
    data = load_dataset(DataSpec(size=1000))
    sides = {name: {key for e in part for key in links(e)} for name, part in data.splits.items()}
    assert not sides["train"] & sides["test"]
    assert not sides["validation"] & sides["test"]
    assert data.card["splits_disjoint_by"] == "passages"
    sizes = [len(data.splits[name]) for name in ("train", "validation", "test")]
    assert sizes == pytest.approx([100, 50, 100], abs=2)
    test = data.splits["test"]
    names = {example.cluster for example in test}
    assert 20 < len(names) < len(test)
    assert names.isdisjoint(e.cluster for e in data.splits["train"])


def test_clusters_do_not_change_what_the_data_are() -> None:
    data = load_dataset(DataSpec(size=100))
    before = data.digest
    for part in data.splits.values():
        for example in part:
            example.cluster = "all"
    del data.__dict__["digest"]
    assert data.digest == before
