"""Names and years are changed one to one, everywhere alike, and nothing else is."""

import json
import re
from pathlib import Path

import pytest

from ragbench.data import Dataset, load_dataset
from ragbench.data.renaming import Renaming
from ragbench.experiments.config import make_config
from ragbench.retrievers import make_retriever

TEXTS = (
    "The painter Ada Lovett was born in Paris in 1874. Lovett's house stands in Paris.",
    "In the 1890s ADA LOVETT painted the green hills. Green is a colour; the hills are green.",
    "He played for French clubs of France from 1905-10, and scored 12 goals.",
    "They went to war on the range, a war of words.",
)
TITLES = ("Ada Lovett", "Range War")


def test_a_name_is_the_same_word_in_every_form_and_place() -> None:
    rename = Renaming([*TEXTS, "She wrote Range War."], TITLES, "k")
    ada = rename("Ada")
    assert ada != "Ada"
    assert len(ada) == 3
    assert rename("ADA") == ada.upper()
    assert rename("ada's") == f"{ada.lower()}'s"
    first = rename(TEXTS[0])
    assert first.startswith(f"The painter {ada} ")
    assert first.count(rename("Paris")) == 2
    assert "green hills. Green is a colour" in rename(TEXTS[1])
    assert "12 goals" in rename(TEXTS[2])
    war = rename("Range War")
    assert re.fullmatch("[A-Z][a-z]{4} War", war)  # the word used most by itself stays
    assert war != "Range War"
    assert rename("She wrote Range War.") == f"She wrote {war}."
    assert rename("the war on the range") == "the war on the range"
    assert rename("France") + "ish" == rename("French")


def test_years_move_together_by_decades() -> None:
    rename = Renaming(TEXTS, TITLES, "k")
    moved = rename.years
    assert moved % 10 == 0 != moved
    assert str(1874 + moved) in rename(TEXTS[0])
    assert f"{1890 + moved}s" in rename(TEXTS[1])
    assert f"{1905 + moved}-{(1910 + moved) % 100:02d}" in rename(TEXTS[2])
    assert rename("18745 and 1,874") == "18745 and 1,874"


def test_a_key_decides_the_words_and_no_two_names_share_one() -> None:
    words = Renaming(TEXTS, TITLES, "a").words
    assert words == Renaming(TEXTS, TITLES, "a").words
    assert words["paris"] != Renaming(TEXTS, TITLES, "b").words["paris"]
    assert len(set(words.values())) == len(words)
    assert not set(words.values()) & set(re.findall(r"\w+", " ".join(TEXTS).lower()))
    with pytest.raises(ValueError, match="blank"):
        Renaming(TEXTS, TITLES, " ")


def _normal(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def test_real_answers_keep_their_relation_to_the_gold_passages(shared_data: Path) -> None:
    questions = json.loads((shared_data / "hotpotqa/hotpot_train_v1.1_100.json").read_text())
    texts: list[str] = []
    titles: list[str] = []
    for question in questions:
        texts += [question["question"], question["answer"]]
        for title, sentences in question["context"]:
            titles.append(title)
            texts += [title, *sentences]
    rename = Renaming(texts, titles, "k")
    changed = 0
    for question in questions:
        gold = {title for title, _ in question["supporting_facts"]}
        passages = []
        for title, sentences in question["context"]:
            if title in gold:
                passages.append(f"{title} {' '.join(sentences)}")
        before = " ".join(passages)
        answer = question["answer"]
        held = _normal(answer) in _normal(before)
        assert held == (_normal(rename(answer)) in _normal(rename(before))), answer
        changed += answer != rename(answer)
    assert changed >= 69  # of 76 names and dates; 15 others are numbers and common words


def test_a_renamed_text_is_read_back_and_a_name_known_by_heart_is_no_name_there() -> None:
    rename = Renaming([*TEXTS, "She wrote Range War."], TITLES, "k")
    for text in (*TEXTS, "She wrote Range War.", "Lovett's McKay, 1905-10"):
        assert rename.undo(rename(text)) == text
    assert rename.undo("the green hills of McKay") == "the green hills of McKay"
    assert rename.undo("Who is Ada Lovett?") == rename("Who is Ada Lovett?")


def test_renamed_real_data_are_retrieved_as_the_plain_ones(shared_data: Path) -> None:
    path = shared_data / "hotpotqa/hotpot_train_v1.1_100.json"
    sets: list[Dataset] = []
    recalls = []
    for key in (None, "k"):
        fields = {"dataset": "hotpotqa", "setting": "pooled", "rename_entities": key}
        dataset = load_dataset(make_config({**fields, "data_file": path}).data_settings())
        sets.append(dataset)
        retriever = make_retriever("bm25", dataset.corpus, setting="pooled")
        rankings = retriever.search_many([e.question for e in dataset.questions], k=5)
        recall = 0.0
        for example, passages in zip(dataset.questions, rankings, strict=True):
            gold = set(example.gold_pids)
            recall += len(gold & {passage.pid for passage in passages}) / len(gold)
        recalls.append(recall / len(rankings))
    assert recalls == pytest.approx([0.75, 0.75], abs=0.005)
    # An embedder reads the plain texts, but for capitals within a word and years before 1000.
    plain, renamed = sets
    assert renamed.corpus.plain is not None
    pairs = list(zip(map(str, plain.corpus), map(str, renamed.corpus), strict=True))
    for example, twin in zip(plain.questions, renamed.questions, strict=True):
        pairs.append((example.question, twin.question))
    equal = sum(renamed.corpus.plain(twin).lower() == text.lower() for text, twin in pairs)
    assert equal / len(pairs) > 0.98
    assert renamed.corpus.subset([3, 1]).plain == renamed.corpus.plain
