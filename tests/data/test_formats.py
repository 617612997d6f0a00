"""Each layout, from a small file to examples and corpus."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ragbench.data import Dataset, DataSpec, load_dataset
from ragbench.errors import ConfigError, DataError, UnknownNameError


def examples(data: Dataset) -> dict[str, Any]:
    return {e.qid: e for part in data.splits.values() for e in part}


def test_hotpotqa_distractor(write, hotpot):
    data = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot)))
    assert data.setting == "distractor"
    assert data.corpus.view == "paragraph"
    assert len(data.corpus) == 21  # two of their own, and one that all share
    example = examples(data)["h3"]
    assert example.inputs().keys() == ["question"]
    assert (example.answers, example.qtype, example.hops) == (["Town 3"], "bridge", 2)
    assert example.support == [("Thing 3", 0), ("Maker 3", 1)]
    own = [data.corpus[i] for i in data.corpus.contexts[example.question]]
    assert [p.title for p in own] == ["Thing 3", "Maker 3", "Shared"]
    assert example.gold_pids == [p.pid for p in own[:2]]
    assert own[1].sentences == ("He was a maker.", "Maker 3 lived in Town 3.")
    assert own[1].text == "He was a maker. Maker 3 lived in Town 3."
    assert own[2].sentences == ("This paragraph is in every question.", "")
    assert own[2].text == "This paragraph is in every question."


def test_supporting_facts_without_a_sentence_are_kept_and_counted(write, hotpot):
    hotpot[0]["supporting_facts"] += [["Thing 0", 9], ["Nowhere", 0]]
    data = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot)))
    assert data.card["support_missing"] == 2
    assert ("Thing 0", 9) in examples(data)["h0"].support
    assert examples(data)["h0"].gold_pids == []  # one gold passage is unknown
    assert data.card["questions_with_gold"] == 9


def test_a_corpus_file_keeps_the_sentences_of_equal_contexts(write, hotpot):
    corpus = [{"title": t, "text": " ".join(x.strip() for x in s if x.strip())}
              for r in hotpot for t, s in r["context"]]  # fmt: skip
    corpus.append({"title": "More", "text": "One here. Two here."})
    spec = DataSpec("hotpotqa", data_file=write(hotpot), corpus_file=write(corpus, "corpus.json"))
    data = load_dataset(spec)
    assert (data.setting, len(data.corpus)) == ("pooled", 22)
    plain = load_dataset(DataSpec("hotpotqa", data_file=spec.data_file, setting="pooled"))
    assert list(data.corpus)[:21] == list(plain.corpus)
    assert data.corpus[21].sentences == ("One here.", "Two here.")
    assert examples(data)["h1"].gold_pids == examples(plain)["h1"].gold_pids


def test_2wiki_in_the_layout_of_hipporag(write):
    corpus = [
        {"title": "Film X (film)", "text": "Film X is directed by Ann Bo."},
        {"title": "Film X (song)", "text": "Film X is sung by Cy."},
        {"title": "Ann bo", "text": "Ann Bo was born in Q."},
        {"title": "Dup", "text": "One Dup."},
        {"title": "dup", "text": "Other dup."},
    ]
    triples = [["Film X", "director", "Ann Bo"], ["Ann Bo", "place of birth", "Q"]]
    base = {"question_type": "compositional", "answer": "Q"}
    questions = [
        {**base, "id": 1, "question": "Where was the director of Film X born?",
         "evidence": triples},
        {**base, "id": 2, "question": "Where was Ann Bo born?", "evidence": triples[1:]},
        {**base, "id": 3, "question": "Where was Nobody born?",
         "evidence": [["Nobody", "place of birth", "Q"]]},
        {**base, "id": 4, "question": "Where was DUP?", "evidence": [["DUP", "place", "Q"]]},
    ]  # fmt: skip
    data = load_dataset(
        DataSpec("2wikimultihopqa", data_file=write(questions), corpus_file=write(corpus, "c.json"))
    )
    found = examples(data)
    titles = {p.pid: p.title for p in data.corpus}
    assert [titles[pid] for pid in found["1"].gold_pids] == ["Film X (film)", "Ann bo"]
    assert [titles[pid] for pid in found["2"].gold_pids] == ["Ann bo"]
    assert found["3"].gold_pids == found["4"].gold_pids == []
    assert found["1"].support == []
    assert found["1"].evidences == triples
    assert (data.card["gold_exact"], data.card["gold_matched_with_care"]) == (1, 1)
    assert data.card["questions_with_gold"] == 2


def test_2wiki_subjects_that_have_another_name_in_the_title(write):
    corpus = [
        {"title": "Edsel Ford", "text": "Edsel Ford was the son of Henry Ford."},
        {"title": "Edsel Ford (poet)", "text": "Edsel Ford was a poet."},
        {"title": "Henry Ford", "text": "Henry Ford died in Dearborn."},
        {"title": "George II, Prince of Q", "text": "George II was the son of Karl."},
        {"title": "George II, Count of R", "text": "George II was nobody's son."},
        {"title": "Karl", "text": "Karl died in S, where George II was born."},
    ]
    base = {"question_type": "compositional", "answer": "?"}
    edsel = [["Edsel Bryant Ford", "father", "Henry Ford"], ["Henry Ford", "death", "Dearborn"]]
    george = [["Karl's son", "child", "George II"], ["George II", "father", "Karl"]]
    questions = [
        {**base, "id": 1, "question": "Where did Edsel Ford's father die?", "evidence": edsel},
        {**base, "id": 2, "question": "Who is the father of Karl's son?", "evidence": george[1:]},
        {**base, "id": 3, "question": "Where did Henry Ford's son die?",
         "evidence": [["Henry Ford", "child", "E"], ["Edsel B. Ford", "death", "Dearborn"]]},
        {**base, "id": 4, "question": "Which Karl had Karl?", "evidence": [
            ["King Karl", "son", "George II"], ["Karl Q", "son", "George II"]]},
    ]  # fmt: skip
    data = load_dataset(
        DataSpec("2wikimultihopqa", data_file=write(questions), corpus_file=write(corpus, "c.json"))
    )
    titles = {p.pid: p.title for p in data.corpus}
    gold = {qid: [titles[p] for p in e.gold_pids] for qid, e in examples(data).items()}
    assert gold["1"] == ["Edsel Ford", "Henry Ford"]  # the question names it, its text the value
    assert gold["2"] == ["George II, Prince of Q"]  # a rank after the name, and the value
    assert gold["3"] == []  # the only title that the question names is of another subject
    assert gold["4"] == []  # one passage cannot be of two subjects


def test_2wiki_with_its_alias_file(write):
    context = [["Red Sky", ["Red Sky is by Ann Lee."]], ["Ann Lee", ["She was born in Oslo."]]]
    base = {
        "question": "Where was the author of Red Sky born?",
        "answer": "Oslo",
        "type": "compositional",
        "supporting_facts": [["Red Sky", 0]],
        "context": context,
    }
    triples = [["Red Sky", "author", "Ann Lee"], ["Ann Lee", "place of birth", "Oslo"]]
    ids = [["Q1", "author", "Q2"], ["Q2", "place of birth", "Q3"]]
    questions = [
        {**base, "_id": "a", "answer_id": "Q3", "evidences": triples, "evidences_id": ids},
        {**base, "_id": "b", "question": "And the hero?", "answer_id": None,
         "evidences": triples[:1], "evidences_id": []},
    ]  # fmt: skip
    lines = [
        {"Q_id": "Q2", "aliases": ["A. Lee"], "demonyms": []},
        {"Q_id": "Q3", "aliases": ["Kristiania", "Oslo"], "demonyms": ["Osloer"]},
    ]
    path = write(questions)
    aliases = path.with_name("id_aliases.json")
    aliases.write_text("\n".join(map(json.dumps, lines)))
    spec = DataSpec("2wikimultihopqa", data_file=path, alias_file=aliases)
    found = examples(load_dataset(spec))
    assert found["a"].answers == ["Oslo", "Kristiania", "Osloer"]
    assert found["b"].answers == ["Oslo"]
    assert found["a"].evidences == triples
    assert found["a"].evidence_forms == [
        [["Red Sky"], ["author"], ["Ann Lee", "A. Lee"]],
        [["Ann Lee", "A. Lee"], ["place of birth"], ["Oslo", "Kristiania", "Osloer"]],
    ]
    assert found["b"].evidence_forms == [[["Red Sky"], ["author"], ["Ann Lee"]]]
    bare = [{**base, "_id": "a", "evidences": triples}]
    with pytest.raises(ConfigError, match="answer_id"):
        load_dataset(replace(spec, data_file=write(bare, "bare.json")))
    short = [{**questions[0], "evidences_id": ids[:1]}]
    with pytest.raises(DataError, match="evidences_id"):
        load_dataset(replace(spec, data_file=write(short, "short.json")))
    with pytest.raises(ConfigError, match="2wikimultihopqa alone"):
        load_dataset(replace(spec, dataset="hotpotqa"))


def test_musique_titles_repeat_and_pids_do_not(write, musique):
    data = load_dataset(DataSpec("musique", data_file=write(musique, "m.jsonl")))
    assert len(data.corpus) == len({p.pid for p in data.corpus}) == 21
    example = examples(data)["2hop__4_104"]
    assert example.answers == ["Writer 4", "W. 4"]
    assert (example.qtype, example.hops, example.answerable) == ("2hop", 2, True)
    assert len(example.gold_pids) == 2
    assert example.decomposition[1] == {"question": "#1 >> name", "answer": "Writer 4"}


def test_arag_layout(write):
    chunks = ["0:first: text here.", "1:second text."]
    questions = [{"qid": 7, "question": "What is here?", "answer": "text"}]
    path = write(questions)
    data = load_dataset(DataSpec("arag", data_file=path, corpus_file=write(chunks, "c.json")))
    assert (data.corpus.view, data.setting) == ("chunk", "pooled")
    assert [p.text for p in data.corpus] == ["first: text here.", "second text."]
    assert [p.pid[:7] for p in data.corpus] == ["000000-", "000001-"]
    objects = [{"id": 0, "text": "first: text here."}, {"id": 1, "text": "second text."}]
    same = load_dataset(DataSpec("arag", data_file=path, corpus_file=write(objects, "d.json")))
    assert same.digest == data.digest


def test_graphrag_bench_layout(write):
    text = " ".join(f"Sentence number {i} is about cells." for i in range(100))
    questions = [
        {"id": "M-1", "source": "Medical", "question": "What is a cell?", "answer": "A thing.",
         "question_type": "Fact Retrieval"}
    ]  # fmt: skip
    data = load_dataset(
        DataSpec(
            "graphrag_bench",
            data_file=write(questions),
            corpus_file=write([{"corpus_name": "Medical", "context": text}], "c.json"),
            chunk_tokens=100,
        )
    )
    assert data.corpus.view == "chunk"
    assert " ".join(p.text for p in data.corpus) == text
    assert all(len(p.text) <= 400 for p in data.corpus)
    pairs = [pair for p in data.corpus for pair in data.corpus.alignment[p.pid]]
    assert pairs == [("Medical", i) for i in range(100)]
    assert examples(data)["M-1"].qtype == "Fact Retrieval"


def test_chunk_view_moves_the_gold_to_chunks(write, hotpot):
    data = load_dataset(
        DataSpec("hotpotqa", data_file=write(hotpot), view="chunk", chunk_tokens=40)
    )
    assert (data.setting, data.corpus.view, data.corpus.contexts) == ("pooled", "chunk", {})
    for example in examples(data).values():
        held = {pair for pid in example.gold_pids for pair in data.corpus.alignment[pid]}
        assert set(example.support) <= held


def test_digest_depends_on_every_field_and_not_on_the_path(write, hotpot):
    first = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot, "a.json")))
    again = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot, "b.json")))
    assert first.digest == again.digest
    seed = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot, "a.json"), seed=1))
    hotpot[0]["answer"] = "Another"
    answer = load_dataset(DataSpec("hotpotqa", data_file=write(hotpot, "c.json")))
    assert len({first.digest, seed.digest, answer.digest}) == 3


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"dataset": "hotpot"}, UnknownNameError, "hotpotqa"),
        ({"dataset": "hotpotqa"}, DataError, "--data-file"),
        ({"dataset": "jsonl"}, DataError, "--data-file"),
        ({"view": "chunk", "setting": "distractor"}, ConfigError, "--setting pooled"),
        ({"setting": "both"}, ConfigError, "distractor, pooled"),
        ({"view": "page"}, ConfigError, "paragraph, chunk"),
        ({"fractions": (0.5, 0.5, 0.5)}, ConfigError, "sum to 1"),
        ({"fractions": (-0.5, 0.5, 1.0)}, ConfigError, "at least 0"),
        ({"fractions": (float("nan"), 0.5, 0.5)}, ConfigError, "at least 0"),
        ({"size": 99}, ConfigError, "100 to 1,000,000"),
        ({"size": 1_000_001}, ConfigError, "100 to 1,000,000"),
        ({"hub": True}, ConfigError, "leave out files and hub"),
        ({"dataset": "jsonl", "hub": True}, ConfigError, "no repository of its own on the hub"),
        ({"dataset": "hotpotqa", "hub_config": "fullwiki"}, ConfigError, "hub"),
        ({"dataset": "hotpotqa", "hub": True, "hub_config": "x"}, ConfigError, "fullwiki"),
        ({"chunk_tokens": 1}, ConfigError, "10 to 100,000"),
    ],
)
def test_options_that_do_not_go_together(options, error, says):
    with pytest.raises(error, match=says) as caught:
        load_dataset(DataSpec(**options))
    assert "\n" not in str(caught.value)


def test_options_that_a_file_cannot_meet(write, hotpot):
    path, corpus = write(hotpot), write([{"title": "T", "text": "X."}], "c.json")
    cases = [
        (DataSpec("hotpotqa", data_file=path, corpus_file=corpus, setting="distractor"), "whole"),
        (DataSpec("arag", data_file=path, corpus_file=corpus, view="paragraph"), "--view chunk"),
        (DataSpec("arag", data_file=path, corpus_file=corpus, setting="distractor"), "pooled"),
        (DataSpec("hotpotqa", data_file=path, hub=True), "choose one"),
    ]
    for spec, says in cases:
        with pytest.raises(ConfigError, match=says):
            load_dataset(spec)
    for record in hotpot:
        record.pop("context")
    with pytest.raises(DataError, match="--corpus-file"):
        load_dataset(DataSpec("hotpotqa", data_file=write(hotpot)))
    with pytest.raises(DataError, match="--corpus-file"):
        load_dataset(DataSpec("graphrag_bench", data_file=write(hotpot)))
