"""Counts on real excerpts of the public data sets."""

from collections import Counter
from pathlib import Path

import pytest

from ragbench.data import Dataset, DataSpec, load_dataset


def all_examples(data: Dataset):
    return [example for part in data.splits.values() for example in part]


@pytest.fixture(scope="module")
def files(shared_data: Path) -> dict[str, Path]:
    return {
        "hotpotqa": shared_data / "hotpotqa/hotpot_train_v1.1_100.json",
        "musique": shared_data / "musique/musique_ans_v1.0_train_100.jsonl",
        "2wiki": shared_data / "2wikimultihopqa/questions_500.json",
        "2wiki_corpus": shared_data / "2wikimultihopqa/corpus.json",
        "2wiki_chunks": shared_data / "2wikimultihopqa/chunks.json",
        "medical": shared_data / "graphrag_bench/medical_questions_300.json",
        "medical_corpus": shared_data / "graphrag_bench/medical_corpus.json",
    }


def test_hotpotqa(files):
    data = load_dataset(DataSpec("hotpotqa", data_file=files["hotpotqa"]))
    found = all_examples(data)
    assert Counter(e.qtype for e in found) == {"bridge": 78, "comparison": 22}
    assert len(data.corpus) == len({p.pid for p in data.corpus}) == 994
    assert Counter(len(c) for c in data.corpus.contexts.values()) == {10: 99, 4: 1}
    assert data.card["support_missing"] == 0
    by_pid = {p.pid: p for p in data.corpus}
    for example in found:
        assert {by_pid[pid].title for pid in example.gold_pids} == {t for t, _ in example.support}
        assert len(example.gold_pids) == 2


def test_2wiki_over_its_pooled_corpus(files):
    data = load_dataset(
        DataSpec("2wikimultihopqa", data_file=files["2wiki"], corpus_file=files["2wiki_corpus"])
    )
    assert len(all_examples(data)) == 500
    assert len(data.corpus) == 6119
    assert data.card["gold_exact"] == 376
    assert data.card["gold_matched_with_care"] == 113
    assert data.card["questions_with_gold"] == 489


def test_graphrag_bench(files):
    data = load_dataset(
        DataSpec("graphrag_bench", data_file=files["medical"], corpus_file=files["medical_corpus"])
    )
    assert data.card["duplicates_dropped"] == 5
    assert len(all_examples(data)) == 295
    assert 250 < len(data.corpus) < 300  # a megabyte in chunks of about 4,000 characters
    assert max(len(p.text) for p in data.corpus) < 4_400
