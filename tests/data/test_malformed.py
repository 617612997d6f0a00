"""Whatever is wrong with a file is one line that names the file, the record and the field.

`tests/test_fuzz.py` and `tests/hostile` try many more files.
"""

import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import DataError

FILES = {"hotpotqa": "d.json", "2wikimultihopqa": "d.json", "musique": "d.jsonl", "jsonl": "d.json"}


def refusal(spec: DataSpec) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(spec)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n ", "is empty"),
        (b"\xff\xfe[]", "not UTF-8"),
        (b"[{\x00}]", "NUL"),
        (b"hello", "not JSON"),
        (b"[1, 2", "ends in the middle"),
        (b'[{"question": "a', "ends in the middle"),
        (b"[]", "empty"),
        (b'{"data": []}', "list of records"),
        (b'"text"', "list of records"),
        (b"[1]", "must be an object, not a number"),
        (b"[null]", "must be an object, not null"),
        (b"[[]]", "must be an object, not a list"),
        (b"[{}]", "is missing"),
        (b"[" * 100_000, "nested"),
        (b"[" + b"9" * 5000 + b"]", "not JSON"),
    ],
)
def test_broken_files(tmp_path, name, content, says):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    message = refusal(DataSpec(name, data_file=path))
    assert says in message
    assert "broken.json" in message


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("question", None, "field 'question': Input should be a valid string, not null"),
        ("question", 7, "not a number"),
        ("question", "  ", "field 'question': is empty"),
        ("question", "a\x00b", "field 'question': holds a NUL"),
        ("question", "a\ud800b", "field 'question'"),
        ("question", "?!", "has no word"),
        ("answer", "", "field 'answer': is empty"),
        ("answer", ["x"], "field 'answer': Input should be a valid string, not a list"),
        ("context", "x", "field 'context': Input should be a valid list, not text"),
        ("context", [["T", "not a list"]], "field 'context.0.1'"),
        ("context", [["T"]], "field 'context.0"),
        ("context", [["T", ["a", 5]]], "field 'context.0.1.1'"),
        ("context", [], "has no passages of its own"),
        ("supporting_facts", [["T", "0"]], "field 'supporting_facts.0.1'"),
        ("supporting_facts", [["T", True]], "field 'supporting_facts.0.1'"),
        ("supporting_facts", {"title": ["T"], "sent_id": []}, "field 'supporting_facts'"),
        ("_id", "h0", "'h0' is the id of"),
    ],
)
def test_broken_fields_of_hotpotqa(write, hotpot, field, value, says):
    hotpot[4][field] = value
    message = refusal(DataSpec("hotpotqa", data_file=write(hotpot)))
    assert says in message
    assert "data.json: record 5" in message


@pytest.mark.parametrize("field", ["_id", "question", "answer"])
def test_a_missing_field_is_named(write, hotpot, field):
    del hotpot[4][field]
    message = refusal(DataSpec("hotpotqa", data_file=write(hotpot)))
    assert f"field '{field}': is missing; there are " in message
    assert "record 5" in message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answers": [], "answer": None}, "field 'answers': is missing or empty"),
        ({"gold": ["nothing"]}, "'nothing' is neither the id nor the title"),
        ({"context": [{"title": "T"}]}, "field 'text': is missing"),
        ({"decomposition": [{"question": "x"}]}, "field 'decomposition'"),
        ({"context": [{"id": "p", "text": "a"}, {"id": "p", "text": "b"}]}, "another passage"),
    ],
)
def test_broken_fields_of_custom_questions(write, custom, change, says):
    custom[1].update(change)
    assert says in refusal(DataSpec("jsonl", data_file=write(custom)))


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        (["no index"], "must be 'index:text'"),
        (["0:"], ""),
        ([{"id": 0}], "field 'text': is missing"),
        ([5], "must be an object"),
        ({"a": 1}, "list of records"),
    ],
)
def test_broken_chunk_files(write, chunks, says):
    questions = write([{"id": "a", "question": "Who?", "answer": "x"}])
    spec = DataSpec("arag", data_file=questions, corpus_file=write(chunks, "chunks.json"))
    if says:
        assert says in refusal(spec)
    else:
        assert load_dataset(spec).corpus[0].text == ""  # an empty chunk is odd, not wrong


@pytest.mark.parametrize(
    ("corpus", "says"),
    [
        ([{"title": "T"}], "field 'text': is missing"),
        ([{"title": 5, "text": "x"}], "field 'title'"),
        ({"T": 5}, "field 'text'"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "the id of another passage"),
    ],
)
def test_broken_corpus_files(write, custom, corpus, says):
    for record in custom:
        record.pop("context")
        record.pop("gold", None)
    spec = DataSpec("jsonl", data_file=write(custom), corpus_file=write(corpus, "corpus.json"))
    message = refusal(spec)
    assert says in message
    assert "corpus.json: record" in message
