"""Splits, sentences, pids and chunks: properties."""

import pytest
from hypothesis import given, settings, strategies as st

from ragbench.data.base import make_example, question_key
from ragbench.data.passages import content_pid, cut_chunks, from_sentences, from_text
from ragbench.data.splits import split_examples
from ragbench.retrievers.sentences import split_sentences
from ragbench.tokens import estimate_tokens

THIRDS = (0.5, 0.25, 0.25)


def asked(*questions: str):
    return [make_example(qid=f"q{i}", question=q, answers=["x"]) for i, q in enumerate(questions)]


@settings(max_examples=100, deadline=None)
@given(
    questions=st.lists(st.sampled_from("abcdefghijklmnop") | st.text("aB ?!", min_size=1)),
    seed=st.integers(0, 3),
    held=st.sets(st.integers(0, 20)),
)
def test_splits_share_neither_id_nor_question(questions, seed, held):
    examples = asked(*(f"{q}w" for q in questions))
    held_out = {f"q{i}" for i in held}
    assigned = dict.fromkeys(held_out, "test")
    made = split_examples(examples, seed=seed, fractions=THIRDS, assigned=assigned)
    splits, dropped = made.examples, made.duplicates
    parts = [[e.qid for e in splits[name]] for name in ("train", "validation", "test")]
    flat = [qid for part in parts for qid in part]
    keys = [question_key(e.question) for part in splits.values() for e in part]
    assert len(set(flat)) == len(flat) == len(examples) - dropped
    assert len(set(keys)) == len(keys)
    assert set(keys) == {question_key(e.question) for e in examples}
    if held_out & {e.qid for e in examples}:
        assert set(parts[2]) <= held_out
        assert not held_out & {*parts[0], *parts[1]}


def test_split_sizes_and_order():
    examples = asked(*(f"question {i}" for i in range(20)))
    made = split_examples(examples, seed=7, fractions=THIRDS)
    splits = made.examples
    assert (made.duplicates, made.overlapping, made.disjoint) == (0, 0, "passages")
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [10, 5, 5]
    assert split_examples(examples, seed=7, fractions=THIRDS) == made
    assert split_examples(examples, seed=8, fractions=THIRDS).examples != splits
    assert [e.qid for e in splits["train"]] != sorted(e.qid for e in splits["train"])
    everything = split_examples(examples, seed=7, fractions=(0.0, 0.0, 1.0))
    assert len(everything.examples["test"]) == 20


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He met J. R. R. Tolkien in St. Louis. They talked.", 2),
        ("The U.S. Army left at 5 p.m. on Jan. 3. It rained.", 2),
        ("Dr. Smith et al. wrote it. No. 5 was best.", 2),
        ("One.\n\nTwo.\tThree.", 3),
        ("", 0),
        ("no full stop", 1),
    ],
)
def test_abbreviations_and_initials_end_no_sentence(text, count):
    assert len(split_sentences(text)) == count


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300) | st.text("aA.!? \n\"'()é中", max_size=300))
def test_no_character_is_lost_by_splitting(text):
    sentences = split_sentences(text)
    assert "".join(" ".join(sentences).split()) == "".join(text.split())
    assert all(s == s.strip() != "" for s in sentences)


def test_pids_tell_content_and_nothing_else():
    assert content_pid("Zoë's Café!", "x").startswith("zoe-s-cafe-")
    assert content_pid("中文", "x") == content_pid("中文", "x") != content_pid("中", "文x")
    assert content_pid("A", "x") != content_pid("A", "y")
    assert from_text("T", "One. Two.") == from_sentences(" T ", [" One.", "Two. "])


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 120), max_size=6), max_size=8),
    limit=st.integers(10, 60),
)
def test_chunks_hold_every_sentence_once_and_in_order(lengths, limit):
    paragraphs = [
        from_sentences(f"T{i}", ["x" * n for n in sizes], pid=f"p{i}")
        for i, sizes in enumerate(lengths)
    ]
    chunked, holders = cut_chunks(paragraphs, max_tokens=limit)
    pairs = [pair for c in chunked for pair in chunked.alignment[c.pid]]
    assert pairs == [(p.title, i) for p in paragraphs for i in range(len(p.sentences))]
    for chunk in chunked:
        assert estimate_tokens(chunk.text) <= limit or len(chunk.sentences) == 1
    for paragraph in paragraphs:
        for index, pid in enumerate(holders[paragraph.pid]):
            assert (paragraph.title, index) in chunked.alignment[pid]


def test_marks_of_quotation_that_never_close_take_no_quadratic_time() -> None:
    text = "\u201ca " * 100_000  # minutes, if they did
    assert " ".join(split_sentences(text)) == text.strip()
