"""Each layout, from a small file to examples and corpus."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.context import current, use
from ragbench.data import (
    Dataset,
    DataSettings,
    data_set,
    detect_layout,
    for_optimizer,
    load as loading,
    load_dataset,
)
from ragbench.data.base import HubSource
from ragbench.data.clusters import find_clusters
from ragbench.data.hub import source_of
from ragbench.data.load import default_setting, without_defaults
from ragbench.errors import ConfigError, DataError, UnknownNameError
from ragbench.retrievers import make_retriever
from tests.data.samples import MUSIQUE


def load(dataset: str, data_file: Path, **options: Any) -> Dataset:
    return load_dataset(DataSettings(dataset=dataset, data_file=data_file, **options))


def examples(data: Dataset) -> dict[str, Any]:
    return {e.qid: e for part in data.splits.values() for e in part}


def test_hotpotqa_distractor(write, hotpot):
    data = load("hotpotqa", write(hotpot))
    assert (data.setting, data.corpus.view) == ("distractor", "paragraph")
    assert len(data.corpus) == 21  # two of their own, and one that all share
    example = examples(data)["h3"]
    assert example.inputs().keys() == ["question"]
    assert (example.answers, example.qtype, example.hops) == (["Town 3"], "bridge", 2)
    assert example.support == [("Thing 3", 0), ("Maker 3", 1)]
    own = [data.corpus[i] for i in data.corpus.contexts[example.qid]]
    assert [p.title for p in own] == ["Thing 3", "Maker 3", "Shared"]
    assert example.gold_pids == [p.pid for p in own[:2]]
    assert own[1].sentences == ("He was a maker.", "Maker 3 lived in Town 3.")
    assert own[1].text == "He was a maker. Maker 3 lived in Town 3."
    assert own[2].sentences == ("This paragraph is in every question.", "")
    assert own[2].text == "This paragraph is in every question."


def test_supporting_facts_without_a_sentence_are_kept(write, hotpot):
    hotpot[0]["supporting_facts"] += [["Thing 0", 9], ["Nowhere", 0]]
    data = load("hotpotqa", write(hotpot))
    assert ("Thing 0", 9) in examples(data)["h0"].support
    assert examples(data)["h0"].gold_pids == []  # one gold passage is unknown


def test_a_corpus_file_keeps_the_sentences_of_equal_contexts(write, hotpot):
    corpus = [{"title": t, "text": " ".join(x.strip() for x in s if x.strip())}
              for r in hotpot for t, s in r["context"]]  # fmt: skip
    corpus.append({"title": "More", "text": "One here. Two here."})
    spec = DataSettings(
        dataset="hotpotqa", data_file=write(hotpot), corpus_file=write(corpus, "corpus.json")
    )
    data = load_dataset(spec)
    assert (data.setting, len(data.corpus)) == ("pooled", 22)
    plain = load("hotpotqa", spec.data_file, setting="pooled")
    assert list(data.corpus)[:21] == list(plain.corpus)
    assert data.corpus[21].sentences == ("One here.", "Two here.")
    assert examples(data)["h1"].gold_pids == examples(plain)["h1"].gold_pids


PASSAGES = {
    "Film X (film)": "Film X is directed by Ann Bo.",
    "Film X (song)": "Film X is sung by Cy.",
    "Ann bo": "Ann Bo was born in Q.",
    "Dup": "One Dup.",
    "dup": "Other dup.",
    "Edsel Ford": "Edsel Ford was the son of Henry Ford.",
    "Edsel Ford (poet)": "Edsel Ford was a poet.",
    "Henry Ford": "Henry Ford died in Dearborn.",
    "Karl": "Karl died in S, where George II was born.",
}
#: Question, triples, and the titles of the passages that are its gold.
WIKI = [
    ("Where was the director of Film X born?",
     [["Film X", "director", "Ann Bo"], ["Ann Bo", "place of birth", "Q"]],
     ["Film X (film)", "Ann bo"]),
    ("Where was DUP?", [["DUP", "place", "Q"]], []),
    # The question names it, its text the value.
    ("Where did Edsel Ford's father die?",
     [["Edsel Bryant Ford", "father", "Henry Ford"], ["Henry Ford", "death", "Dearborn"]],
     ["Edsel Ford", "Henry Ford"]),
    # The only title that the question names is of another subject.
    ("Where did Henry Ford's son die?",
     [["Henry Ford", "child", "E"], ["Edsel B. Ford", "death", "Dearborn"]], []),
    # One passage cannot be of two subjects.
    ("Which Karl had Karl?",
     [["King Karl", "son", "George II"], ["Karl Q", "son", "George II"]], []),
]  # fmt: skip


def test_2wiki_in_the_layout_of_hipporag(write):
    kept = {"answer": "Q", "question_type": "compositional"}
    asked = [{"id": i, "question": q, "evidence": t, **kept} for i, (q, t, _) in enumerate(WIKI)]
    passages = write([{"title": title, "text": text} for title, text in PASSAGES.items()], "c.json")
    data = load("2wikimultihopqa", write(asked), corpus_file=passages)
    titles = {p.pid: p.title for p in data.corpus}
    for i, (_, triples, gold) in enumerate(WIKI):
        found = examples(data)[str(i)]
        assert [titles[pid] for pid in found.gold_pids] == gold
        assert (found.support, found.evidences) == ([], triples)
    names = ("questions_with_gold", "gold_exact", "gold_matched_with_care")
    assert [data.card[name] for name in names] == [2, 0, 2]


def test_2wiki_with_its_alias_file(write):
    context = [["Red Sky", ["Red Sky is by Ann Lee."]], ["Ann Lee", ["She was born in Oslo."]]]
    triples = [["Red Sky", "author", "Ann Lee"], ["Ann Lee", "place of birth", "Oslo"]]
    ids = [["Q1", "author", "Q2"], ["Q2", "place of birth", "Q3"]]
    base = {
        "_id": "a", "question": "Where was the author of Red Sky born?", "answer": "Oslo",
        "type": "compositional", "supporting_facts": [["Red Sky", 0]], "context": context,
        "evidences": triples,
    }  # fmt: skip
    whole = {**base, "answer_id": "Q3", "evidences_id": ids}
    part = {**base, "_id": "b", "question": "And the hero?", "answer_id": None,
            "evidences": triples[:1], "evidences_id": []}  # fmt: skip
    lines = [
        {"Q_id": "Q2", "aliases": ["A. Lee"], "demonyms": []},
        {"Q_id": "Q3", "aliases": ["Kristiania", "Oslo"], "demonyms": ["Osloer"]},
    ]
    aliases = write("\n".join(map(json.dumps, lines)).encode(), "id_aliases.json")
    spec = DataSettings(
        dataset="2wikimultihopqa", data_file=write([whole, part]), alias_file=aliases
    )
    found = examples(load_dataset(spec))
    assert found["a"].answers == ["Oslo", "Kristiania", "Osloer"]
    assert found["b"].answers == ["Oslo"]
    assert found["a"].evidence_forms == [
        [["Red Sky"], ["author"], ["Ann Lee", "A. Lee"]],
        [["Ann Lee", "A. Lee"], ["place of birth"], ["Oslo", "Kristiania", "Osloer"]],
    ]
    assert found["b"].evidence_forms == [[["Red Sky"], ["author"], ["Ann Lee"]]]
    with pytest.raises(ConfigError, match="answer_id"):
        load_dataset(spec.but(data_file=write([base], "bare.json")))
    with pytest.raises(ConfigError, match=r"alias_file=.* has no effect"):
        load_dataset(spec.but(dataset="hotpotqa"))


def test_musique_titles_repeat_and_pids_do_not(write):
    data = load("musique", write(MUSIQUE, "m.jsonl"))
    assert len(data.corpus) == len({p.pid for p in data.corpus}) == 21
    example = examples(data)["2hop__4_104"]
    assert example.answers == ["Writer 4", "W. 4"]
    assert (example.qtype, example.hops, example.answerable) == ("2hop", 2, True)
    assert len(example.gold_pids) == 2
    assert example.decomposition[1] == {"question": "#1 >> name", "answer": "Writer 4"}


def test_arag_layout(write):
    path = write([{"qid": 7, "question": "What is here?", "answer": "text"}])
    texts = ["first: text here.", "second text."]
    lines = [f"{i}:{text}" for i, text in enumerate(texts)]
    data = load("arag", path, corpus_file=write(lines, "c.json"))
    assert (data.corpus.view, data.setting) == ("chunk", "pooled")
    assert [p.text for p in data.corpus] == texts
    assert [p.pid[:7] for p in data.corpus] == ["000000-", "000001-"]
    objects = [{"id": i, "text": text} for i, text in enumerate(texts)]
    same = load("arag", path, corpus_file=write(objects, "d.json"))
    assert same.digest == data.digest


def test_graphrag_bench_layout(write, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_TOKENS", 100)
    text = " ".join(f"Sentence number {i} is about cells." for i in range(100))
    question = {"id": "M-1", "source": "Medical", "question": "What is a cell?",
                "answer": "A thing.", "question_type": "Fact Retrieval"}  # fmt: skip
    corpus = write([{"corpus_name": "Medical", "context": text}], "c.json")
    files = {"data_file": write([question]), "corpus_file": corpus}
    data = load_dataset(DataSettings(dataset="graphrag_bench", **files))
    assert data.corpus.view == "chunk"
    assert " ".join(p.text for p in data.corpus) == text
    assert all(len(p.text) <= 400 for p in data.corpus)
    pairs = [pair for p in data.corpus for pair in data.corpus.alignment[p.pid]]
    assert pairs == [("Medical", i) for i in range(100)]
    assert examples(data)["M-1"].qtype == "Fact Retrieval"
    assert examples(data)["M-1"].document == ["Medical"]
    assert {chunk.document for chunk in data.corpus} == {"Medical"}


def test_chunk_view_moves_the_gold_to_chunks(write, hotpot, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_TOKENS", 40)
    spec = DataSettings(dataset="hotpotqa", data_file=write(hotpot), view="chunk")
    data = load_dataset(spec)
    assert (data.setting, data.corpus.view, data.corpus.contexts) == ("pooled", "chunk", {})
    for example in examples(data).values():
        held = {pair for pid in example.gold_pids for pair in data.corpus.alignment[pid]}
        assert set(example.support) <= held


def test_digest_depends_on_every_field_and_not_on_the_path(write, hotpot):
    first = load("hotpotqa", write(hotpot, "a.json"))
    again = load("hotpotqa", write(hotpot, "b.json"))
    assert first.digest == again.digest
    other = DataSettings(dataset="hotpotqa", data_file=write(hotpot, "a.json"), split_seed=1)
    seed = load_dataset(other)
    hotpot[0]["answer"] = "Another"
    answer = load("hotpotqa", write(hotpot, "c.json"))
    assert len({first.digest, seed.digest, answer.digest}) == 3


HOTPOT = {"dataset": "hotpotqa", "data_file": "data"}
ARAG = {**HOTPOT, "dataset": "arag"}
CORPUS = {"corpus_file": "corpus"}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"dataset": "hotpot"}, UnknownNameError, "hotpotqa"),
        ({"view": "chunk", "setting": "distractor"}, ConfigError, "--setting pooled"),
        ({"hub": True}, ConfigError, "remove files and hub"),
        ({"dataset": "hotpotqa", "hub": True, "hub_config": "x"}, ConfigError, "fullwiki"),
        ({**HOTPOT, **CORPUS, "setting": "distractor"}, ConfigError, "whole"),
        ({**ARAG, **CORPUS, "view": "paragraph"}, ConfigError, "--view chunk"),
        ({**HOTPOT, "hub": True}, ConfigError, "choose one"),
        ({**HOTPOT, "data_file": "without"}, DataError, "--corpus-file"),
    ],
)
def test_options_that_do_not_go_together(options, error, says, write, hotpot):
    files = {"data": write(hotpot), "corpus": write([{"title": "T", "text": "X."}], "c.json")}
    for row in hotpot:
        del row["context"]
    files["without"] = write(hotpot, "without.json")
    given = {k: files[v] if k.endswith("_file") else v for k, v in options.items()}
    with pytest.raises(error, match=says) as caught:
        load_dataset(DataSettings(**given))
    assert "\n" not in str(caught.value)


# -- counts on real excerpts of the public data sets


@pytest.mark.parametrize(
    ("name", "questions", "corpus", "counts"),
    [
        ("hotpotqa", "hotpotqa/hotpot_train_v1.1_100.json", None, (100, 994, 100, None)),
        ("musique", "musique/musique_ans_v1.0_train_100.jsonl", None, (100, 1890, 100, None)),
        ("2wikimultihopqa", "2wikimultihopqa/questions_500.json", "2wikimultihopqa/corpus.json",
         (500, 6119, 489, 113)),
    ],
)  # fmt: skip
def test_counts_of_real_files(name, questions, corpus, counts, shared_data):
    path = shared_data / questions
    assert detect_layout(path) == name
    data = load(name, path, corpus_file=corpus and shared_data / corpus)
    gold = (data.card["questions_with_gold"], data.card.get("gold_matched_with_care"))
    assert (len(data.questions), len(data.corpus), *gold) == counts


def test_a_data_set_of_another_package_is_known_as_the_built_in_ones_are(write):
    hub = HubSource("owner/strategies", ("plain", "hard"))

    @data_set("strategies", "facts question", listed=False, view="chunk", hub=hub)
    def load_strategies(spec: DataSettings) -> Dataset:
        raise DataError("no facts")

    spec = DataSettings(dataset="strategies", hub=True)
    assert source_of(spec) == (hub, "plain")
    assert default_setting("strategies", None, has_corpus=False) == "pooled"
    defaults = {"view": "chunk", "setting": "pooled", "hub_repo": hub.repo, "hub_config": "plain"}
    assert without_defaults({"dataset": "strategies", **defaults}) == {"dataset": "strategies"}
    with pytest.raises(ConfigError, match="choose from plain, hard"):
        source_of(spec.but(hub_config="soft"))
    with pytest.raises(ConfigError, match=r"alias_file=.* has no effect"):
        load_dataset(spec.but(alias_file=write([])))


def asked_of(name: str, **more: Any) -> dict[str, Any]:
    context = [{"id": f"{name}-{n}", "title": name, "text": f"{name} {n}."} for n in range(2)]
    return {"question": "When does it end?", "answer": name, "context": context, **more}


def test_questions_with_one_text_search_their_own_passages(write):
    rows = [asked_of("Alder", id="a"), asked_of("Birch", id="b"), asked_of("Alder", id="c")]
    data = load("jsonl", write(rows))
    assert data.card["duplicates_dropped"] == 1  # c asks a's question of a's passages
    splits = [{e.qid for e in part} for part in data.splits.values() if part]
    assert splits == [{"a", "b"}]  # in one split
    assert len(set(find_clusters(data.questions))) == 1
    retriever = make_retriever("bm25", data.corpus, setting=data.setting)
    text = "When does it end?"
    assert len(data.corpus.contexts_of(text)) == 3
    for qid, title in (("a", "Alder"), ("b", "Birch"), (None, "Alder")):
        found = retriever.for_question(text, qid)
        assert {passage.title for passage in found.corpus} == {title}
    with use(replace(current(), qid="b")):
        assert retriever.for_question(text).corpus[0].title == "Birch"
    assert [e.answer for e in for_optimizer(data.questions)] == ["Alder"]


def test_the_full_set_of_musique_has_both_of_each_question(write):
    silent = json.loads(json.dumps(MUSIQUE[0])) | {"answerable": False}
    silent["paragraphs"].pop()
    data = load("musique", write([*MUSIQUE, silent], "full.jsonl"))
    first = MUSIQUE[0]["id"]
    made = {e.qid: e for e in data.questions}
    twin = made[f"{first}::unanswerable"]
    assert (twin.answerable, twin.gold_pids, twin.twin_of) == (False, [], first)
    assert made[first].answerable
    assert len(data.corpus.contexts[twin.qid]) == len(data.corpus.contexts[first]) - 1
    both = [name for name, part in data.splits.items() for e in part if e.question == twin.question]
    assert len(both) == 2
    assert len(set(both)) == 1
    with pytest.raises(DataError, match="is the id of"):  # twice the same is a damaged file
        load("musique", write([*MUSIQUE, MUSIQUE[0]], "twice.jsonl"))


@pytest.mark.parametrize(
    ("dataset", "layout", "record"),
    [
        ("hotpotqa", "musique", {"id": "1", "question": "Who?", "answer": "Ann",
                                 "paragraphs": [], "question_decomposition": []}),
        ("graphrag_bench", "hotpotqa", {"_id": "1", "question": "Who?", "answer": "Ann",
                                        "supporting_facts": [], "context": []}),
    ],
)  # fmt: skip
def test_load_dataset_of_another_layout_is_refused(
    tmp_path: Path, dataset: str, layout: str, record: dict[str, Any]
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(record) + "\n")
    corpus = None
    if dataset == "graphrag_bench":  # It reads its corpus before its questions.
        corpus = tmp_path / "corpus.json"
        corpus.write_text(json.dumps([{"corpus_name": "Novel", "context": "Ann lives in Bo."}]))
    with pytest.raises(DataError, match=f"has the layout of {layout}.*give --dataset {layout}"):
        load(dataset, path, corpus_file=corpus)
