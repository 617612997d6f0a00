"""Splits and clusters, sentences, pids and chunks: properties."""

import random
import string

import pytest

from ragbench.data.base import make_example
from ragbench.data.clusters import find_clusters, linked, links
from ragbench.data.passages import content_pid, cut_chunks, from_sentences, from_text
from ragbench.data.splits import parse_fractions, split_examples
from ragbench.errors import ConfigError
from ragbench.sentences import split_sentences
from ragbench.text_normalization import estimate_tokens, question_key

THIRDS, SHARES = (0.5, 0.25, 0.25), (0.4, 0.2, 0.4)
PARTS = ("train", "validation", "test")


def asked(*questions: str):
    return [make_example(qid=f"q{i}", question=q, answers=["x"]) for i, q in enumerate(questions)]


def needing(*pids: str, extra: int = 0):
    """An example per string, whose characters are its gold passages."""
    return [
        make_example(qid=f"q{i}", question=f"question {i}", answers=["x"], gold_pids=list(some))
        for i, some in enumerate((*pids, *[""] * extra))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_splits_share_neither_id_nor_question(seed):
    rng = random.Random(seed)
    questions = rng.choices([*"abcdefghijklmnop", "a", "A", "a ?", "B!", " b", "?"], k=3 * seed)
    held = set(rng.choices(range(20), k=seed % 4))
    examples = asked(*(f"{q}w" for q in questions))
    held_out = {f"q{i}" for i in held}
    assigned = dict.fromkeys(held_out, "test")
    made = split_examples(examples, seed=seed, fractions=THIRDS, assigned=assigned)
    parts = [[e.qid for e in made.examples[name]] for name in PARTS]
    flat = [qid for part in parts for qid in part]
    keys = [question_key(e.question) for part in made.examples.values() for e in part]
    assert len(set(flat)) == len(flat) == len(examples) - made.duplicates
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
    assert [len(splits[name]) for name in PARTS] == [10, 5, 5]
    assert split_examples(examples, seed=7, fractions=THIRDS) == made
    assert split_examples(examples, seed=8, fractions=THIRDS).examples != splits
    assert [e.qid for e in splits["train"]] != sorted(e.qid for e in splits["train"])
    everything = split_examples(examples, seed=7, fractions=(0.0, 0.0, 1.0))
    assert len(everything.examples["test"]) == 20


def test_questions_that_share_a_sub_question_alone_are_in_one_split():
    shared = {"question": "Who wrote Red Sky?", "answer": "Ann Lee"}
    examples = []
    for n in range(60):
        step = shared if n < 8 else {"question": f"Who wrote book {n}?", "answer": f"Writer {n}"}
        examples.append(
            make_example(
                qid=f"q{n}", question=f"question {n}", answers=["x"], decomposition=[step],
                gold_pids=[f"p{n}"],
            )
        )  # fmt: skip
    for seed in range(3):
        made = split_examples(examples, seed=seed, fractions=SHARES)
        places = {e.qid: name for name, part in made.examples.items() for e in part}
        assert len({places[f"q{n}"] for n in range(8)}) == 1
    made = split_examples(examples, seed=0, fractions=SHARES, assigned={"q0": "test"})
    assert made.overlapping == 7  # linked with a question of the test split
    kept = {e.qid for part in made.examples.values() for e in part}
    assert kept & {f"q{n}" for n in range(8)} == {"q0"}


def test_find_clusters_if_a_chain_links_all_questions_returns_one_cluster():
    chain = needing(*(f"p{i} p{i + 1}".split() for i in range(200)))
    assert set(find_clusters(chain)) == {0}
    assert find_clusters([]) == []


def test_find_clusters_if_passages_are_of_one_document_links_their_questions():
    examples = needing("a", "b", "c", "d", "e")
    documents = ["one.md", "two.md", ["two.md", "three.md"], "three.md", None]
    for example, document in zip(examples, documents, strict=True):
        example.document = document
    assert find_clusters(examples) == [0, 1, 1, 1, 4]
    assert linked(list(map(links, examples))) == [0, 1, 2, 3, 4]  # splits are by passage


@pytest.mark.parametrize("seed", range(20))
def test_splits_by_passage_share_none(seed):
    rng = random.Random(seed)
    names = ["", *"abcdefgh", *(f"{a}{b}" for a in "abcdefgh" for b in "abcd")]
    pids = rng.choices(names[: 9 + 2 * seed], k=6 + seed)
    examples = needing(*pids, extra=60)
    made = split_examples(examples, seed=seed, fractions=SHARES)
    kept = [e.qid for part in made.examples.values() for e in part]
    assert sorted(kept) == sorted(e.qid for e in examples)
    if made.disjoint == "passages":
        sides = [{key for e in part for key in links(e)} for part in made.examples.values()]
        assert not (sides[0] & sides[1]) | (sides[0] & sides[2]) | (sides[1] & sides[2])
        whole = len(examples)
        assert len(made.examples["train"]) == pytest.approx(0.4 * whole, abs=max(2, 0.03 * whole))


def test_where_the_data_do_not_allow_it_questions_are_split_alone():
    examples = needing(*["a"] * 20)
    made = split_examples(examples, seed=0, fractions=SHARES)
    assert made.disjoint == "questions"
    assert [len(part) for part in made.examples.values()] == [8, 4, 8]
    apart = needing("a", "a", *"bcdefghijklmnopqrs")
    assert split_examples(apart, seed=0, fractions=SHARES).disjoint == "passages"


def test_what_shares_a_passage_with_the_official_part_is_dropped():
    given_ = {"seed": 0, "fractions": SHARES}
    examples = needing("a", "b", "a", "c", "d", "e", "f")
    made = split_examples(examples, **given_, assigned={"q0": "test", "q1": "test"})
    assert made.overlapping == 1
    kept = {name: {e.qid for e in part} for name, part in made.examples.items()}
    assert kept["test"] == {"q0", "q1"}
    assert kept["train"] | kept["validation"] == {"q3", "q4", "q5", "q6"}
    most = needing("a", *"aaaa", "b")
    assert split_examples(most, **given_, assigned={"q0": "test"}).overlapping == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He met J. R. R. Tolkien in St. Louis. They talked.", 2),
        ("The U.S. Army left at 5 p.m. on Jan. 3. It rained.", 2),
        ("Dr. Smith et al. wrote it. No. 5 was best.", 2),
        ("One.\n\nTwo.\tThree.", 3),
        ("", 0),
        ("no full stop", 1),
        ("\u201ca " * 20_000, 16),  # quotes that never close take no quadratic time
    ],
)
def test_abbreviations_and_initials_end_no_sentence(text, count):
    assert len(split_sentences(text)) == count


@pytest.mark.parametrize("seed", range(20))
def test_no_character_is_lost_by_splitting(seed):
    separators = "\x00\x85\u2028\u200b\ufeff😀.\r a"
    characters = ["aA.!? \n\"'()é中", string.printable, separators][seed % 3]
    text = "".join(random.Random(seed).choices(characters, k=15 * seed))
    sentences = split_sentences(text)
    assert "".join(" ".join(sentences).split()) == "".join(text.split())
    assert all(s == s.strip() != "" for s in sentences)


def test_pids_tell_content_and_nothing_else():
    assert content_pid("Zoë's Café!", "x").startswith("zoe-s-cafe-")
    assert content_pid("中文", "x") == content_pid("中文", "x") != content_pid("中", "文x")
    assert content_pid("A", "x") != content_pid("A", "y")
    assert from_text("T", "One. Two.") == from_sentences(" T ", [" One.", "Two. "])


@pytest.mark.parametrize("limit", range(10, 60, 5))
def test_chunks_hold_every_sentence_once_and_in_order(limit):
    rng = random.Random(limit)
    lengths = [rng.choices(range(120), k=rng.randrange(6)) for _ in range(8)]
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


@pytest.mark.parametrize("text", ["0.5,0.5,0.5", "nan,0.5,0.5", "0.5,0.5", "1,-1,1", "a,b,c"])
def test_fractions_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="sum to 1"):
        parse_fractions(text)
