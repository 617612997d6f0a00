"""Counts on real excerpts of the public data sets."""

from collections import Counter

from ragbench.data import Dataset, DataSpec, load_dataset


def all_examples(data: Dataset):
    return [example for part in data.splits.values() for example in part]


def test_hotpotqa(shared_data):
    file = shared_data / "hotpotqa/hotpot_train_v1.1_100.json"
    data = load_dataset(DataSpec("hotpotqa", data_file=file))
    found = all_examples(data)
    assert Counter(e.qtype for e in found) == {"bridge": 78, "comparison": 22}
    assert len(data.corpus) == len({p.pid for p in data.corpus}) == 994
    assert Counter(len(c) for c in data.corpus.contexts.values()) == {10: 99, 4: 1}
    assert data.card["support_missing"] == 0
    by_pid = {p.pid: p for p in data.corpus}
    for example in found:
        assert {by_pid[pid].title for pid in example.gold_pids} == {t for t, _ in example.support}
        assert len(example.gold_pids) == 2


def test_2wiki_over_its_pooled_corpus(shared_data):
    folder = shared_data / "2wikimultihopqa"
    files = {"data_file": folder / "questions_500.json", "corpus_file": folder / "corpus.json"}
    data = load_dataset(DataSpec("2wikimultihopqa", **files))
    assert len(all_examples(data)) == 500
    assert len(data.corpus) == 6119
    assert data.card["gold_exact"] == 376
    assert data.card["gold_matched_with_care"] == 113
    assert data.card["questions_with_gold"] == 489


def test_graphrag_bench(shared_data):
    folder = shared_data / "graphrag_bench"
    questions, corpus = folder / "medical_questions_300.json", folder / "medical_corpus.json"
    data = load_dataset(DataSpec("graphrag_bench", data_file=questions, corpus_file=corpus))
    assert data.card["duplicates_dropped"] == 5
    assert len(all_examples(data)) == 295
    assert 250 < len(data.corpus) < 300  # a megabyte in chunks of about 4,000 characters
    assert max(len(p.text) for p in data.corpus) < 4_400
