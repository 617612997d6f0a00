"""One word in many writings, and which questions are the same."""

import pytest

from ragbench.retrievers import make_retriever
from ragbench.retrievers.lm_index.linear import by_pattern
from ragbench.text_normalization import clean, question_key, words
from tests.retrievers.conftest import make_corpus


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Mu\u0308nchen", ["münchen"]),  # an accent by itself
        ("\ufb02oating o\ufb03cer", ["floating", "officer"]),  # ligatures
        ("mul\u00adti\u00adhop", ["multihop"]),  # soft hyphens
        ("inter\u00ad\n  esting", ["interesting"]),  # at the end of a line
        ("light\u200bhouse", ["lighthouse"]),  # without width
        ("\ufeffStart \u2060end", ["start", "end"]),
        ("right\u200f to \u202aleft\u202c", ["right", "to", "left"]),  # marks of direction
        ("\uff32\uff21\uff27 \uff12\uff10", ["rag", "20"]),  # full width
        ("\uff76\uff9e", ["ガ"]),  # half width
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowels are marks
        ("தமிழ்", ["தமிழ்"]),
        ("ที่นี่", ["ที่นี่"]),
        ("שָׁלוֹם", ["שָׁלוֹם".replace("שׁ", "שׁ")]),
        ("Stra\u00dfe ΣΟΦΟΣ", ["strasse", "σοφοσ"]),
        ("snake_case 3.5 it's", ["snake_case", "3", "5", "it", "s"]),
        ("\ud800 ok", ["ok"]),  # half of a pair
        ("— … ?", []),
    ],
)
def test_words_are_those_that_a_reader_sees(written: str, read: list[str]) -> None:
    assert words(written) == [clean(word) for word in read]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Cafe\u0301 Zentral", "café"),
        ("The de\ufb01nition", "definition"),
        ("founded in \uff11\uff18\uff19\uff18", "1898"),
        ("a micro\u00adscope", "microscope"),
        ("दिल्ली भारत की राजधानी है", "दिल्ली"),
    ],
)
def test_bm25_finds_words_in_both_writings(text: str, query: str) -> None:
    retriever = make_retriever("bm25", make_corpus(["another text", text]))
    assert [p.pid for p in retriever.search(query, k=1)] == ["p1"]
    swapped = make_retriever("bm25", make_corpus(["another text", query]))
    assert [p.pid for p in swapped.search(text, k=1)] == ["p1"]


def test_marks_of_one_letter_tell_words_apart() -> None:
    retriever = make_retriever("bm25", make_corpus(["रोमा", "रीमा"]))
    assert [p.pid for p in retriever.search("रीमा", k=2)] == ["p1"]


def test_names_found_by_pattern_keep_their_accents() -> None:
    assert by_pattern(clean("In Zu\u0308rich lives A\u030asa Na\u0308f.")) == ["Zürich", "Åsa Näf"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Who made  C++ ?", "who made C++", True),
        ("Who made C++?", "Who made C#?", False),
        ("Who made C?", "Who made C++?", False),
        ("What is 7 + 3?", "What is 7 - 3?", False),
        ("Is 5 > 3?", "Is 5 < 3?", False),
        ("What is $5?", "What is €5?", False),
        ("What is 1.5?", "What is 15?", False),
        ("Who is it...", "who is it?!", True),
        ("他是谁\uff1f", "他是谁?", True),
        ("Who is Zoe\u0308?", "Who is Zoë?", True),
        ("रोमा कौन है?", "रीमा कौन है?", False),
        ("रोमा कौन है।", "रोमा कौन है", True),
        ("What is f(x)?", "What is f?", False),
        ("What is @home?", "What is #home?", False),
        ("What is -1?", "What is 1?", False),
    ],
)
def test_questions_are_the_same_but_for_case_blanks_and_their_end(
    one: str, other: str, same: bool
) -> None:
    assert (question_key(one) == question_key(other)) is same
