"""Every format and layout of questions and passages gives the same data set."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.data import Dataset, DataSettings, detect_layout, load_dataset
from ragbench.errors import ConfigError
from tests.data.samples import CUSTOM, HOTPOT, MUSIQUE

ROWS = [
    {"id": f"q{i}", "question": f"Where is thing {i}?", "answers": [f"Town {i}", "Town, the"]}
    for i in range(10)
]
CORPUS = [{"id": f"p{i}", "title": f"Thing {i}", "text": f"It is in Town {i}."} for i in range(10)]


def write_rows(folder: Path, kind: str, rows: list[dict[str, Any]], name: str) -> Path:
    """The rows as a file of this kind."""
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(str(path))
    elif kind == "json":
        path.write_text(json.dumps(rows))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    else:
        separator = {"csv": ",", "tsv": "\t"}[kind]
        cells = [[v if isinstance(v, str) else json.dumps(v) for v in r.values()] for r in rows]
        lines = [list(rows[0]), *cells]
        quoted = [['"' + cell.replace('"', '""') + '"' for cell in line] for line in lines]
        path.write_text("\ufeff" + "\n".join(separator.join(line) for line in quoted))
    return path


def load(write, questions: Any, corpus: Any = CORPUS, **settings: Any) -> Dataset:
    """A data set of one's own: its rows or its file, and a corpus or its file."""
    path = questions if isinstance(questions, Path) else write(questions)
    passages = corpus if isinstance(corpus, Path) else write(corpus, "corpus.json")
    return load_dataset(
        DataSettings(dataset="jsonl", data_file=path, corpus_file=passages, **settings)
    )


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_gives_the_same_data_set(kind, write, tmp_path):
    rows = [{**row, "gold": [f"p{i}"]} for i, row in enumerate(ROWS)]
    corpus = write_rows(tmp_path, kind, CORPUS, "passages")
    data = load(write, write_rows(tmp_path, kind, rows, "questions"), corpus)
    assert data.digest == load(write, rows).digest
    assert data.questions[3].gold_pids == ["p3"]


def test_html_entities_are_decoded_once_and_gold_still_matches(write):
    """As HotpotQA has them; ids and what only looks like an entity stay as they are."""
    official = [
        {**HOTPOT[0], "_id": "a&amp;b", "question": "Who &quot;owns&quot; R&amp;D&copy?",
         "answer": "Ann&#39;s &amp;lt; Co", "supporting_facts": [["Bo &amp; Co", 0]],
         "context": [["Bo &amp; Co", ["It is Ann&#39;s.", "x &#x2013; y"]]]}
    ]  # fmt: skip
    data = load_dataset(DataSettings(dataset="hotpotqa", data_file=write(official)))
    [example], [passage] = data.questions, list(data.corpus)
    assert (example.qid, example.question) == ("a&amp;b", 'Who "owns" R&D&copy?')
    assert example.answers == ["Ann's &lt; Co"]
    assert (passage.title, passage.text) == ("Bo & Co", "It is Ann's. x \u2013 y")
    assert example.gold_pids == [passage.pid]
    own = [{"question": "Who?", "answer": "x", "gold": ["Bo &amp; Co", "p&amp;1"]}]
    corpus = [{"title": "Bo & Co", "text": "y"}, {"id": "p&amp;1", "title": "T", "text": "z"}]
    data = load(write, own, corpus)
    assert data.questions[0].gold_pids == [p.pid for p in data.corpus]


def test_a_text_that_looks_like_json_stays_a_text(write):
    """Only where a list or an object belongs is a text read as one."""
    texts = ["[1, 2]", '{"a": 1}', "[[Bo]] is a link."]
    corpus = [{"id": f"[{i}]", "title": "T", "text": text} for i, text in enumerate(texts)]
    own = [{"question": "[1, 2]?", "id": "[7]", "answer": '["x", "y"]', "gold": '["[1]"]'}]
    data = load(write, own, corpus)
    assert [(p.pid, p.text) for p in data.corpus] == [(f"[{i}]", t) for i, t in enumerate(texts)]
    [example] = data.questions
    assert (example.qid, example.answers, example.gold_pids) == ("[7]", ["x", "y"], ["[1]"])


def pdf(pages: list[str]) -> bytes:
    """A PDF file with a line of text on each page; a reader has to look for its objects."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(pages)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    for i, text in enumerate(pages):
        font = "/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
        objects.append(f"<</Type/Page/Parent 2 0 R/Contents {4 + 2 * i} 0 R{font}>>")
        shown = f"BT /F 12 Tf ({text}) Tj ET"
        objects.append(f"<</Length {len(shown)}>>stream\n{shown}\nendstream")
    body = "".join(f"{n} 0 obj{told}endobj\n" for n, told in enumerate(objects, start=1))
    return f"%PDF-1.4\n{body}trailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF".encode()


def test_a_folder_of_documents_is_a_corpus(tmp_path, write):
    folder = tmp_path / "docs"
    (folder / "sub" / ".git").mkdir(parents=True)
    (folder / "notes.txt").write_text(" ".join(f"Ann has {i} cats." for i in range(60)))
    (folder / "sub" / "guide.md").write_text(
        "Preface.\n\n# Setup *now*\n\nInstall it.\n\n```\n# no heading\n```\n\n## Use\n\nRun it.\n"
    )
    (folder / "sub" / ".git" / "hidden.md").write_text("# Hidden")
    (folder / "report.pdf").write_bytes(pdf(["Bo owns the firm.", "It is in Oslo."]))
    (folder / "image.png").write_bytes(b"\x89PNG")
    data = load(write, ROWS, folder, passage_tokens=50)
    texts: dict[str, list[str]] = {}
    for passage in data.corpus:
        texts.setdefault(passage.title, []).append(passage.text)
        assert len(passage.text) <= 4 * 50
    guide = ["sub/guide", "sub/guide: Setup *now*", "sub/guide: Use"]
    assert [*texts] == ["notes", "report, page 1", "report, page 2", *guide]
    assert len(texts["notes"]) > 1  # they are longer than a passage
    assert "Install it." in texts[guide[1]][0]
    assert "# no heading" in texts[guide[1]][0]
    assert texts["report, page 2"] == ["It is in Oslo."]
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    assert "gone.md" in load(write, ROWS, folder, passage_tokens=50).card["documents"]["skipped"]


GRAPH = {"id": "1", "source": "x", "question": "Q?", "answer": "A", "question_type": "t"}


@pytest.mark.parametrize(
    ("rows", "dataset"),
    [
        (MUSIQUE, "musique"),
        (HOTPOT, "hotpotqa"),
        ([{**HOTPOT[0], "evidences": []}], "2wikimultihopqa"),
        (CUSTOM, "jsonl"),
        ([{**GRAPH, "evidence": [["A", "is in", "B"]]}], "2wikimultihopqa"),
        ([{**GRAPH, "evidence": ["A is in B."]}], "graphrag_bench"),
        ([{"question": "Who?", "golden_answers": ["x"]}], "jsonl"),
        ([{"x": 1}], None),
    ],
)
def test_layouts_are_detected(rows, dataset, write):
    assert detect_layout(write(rows)) == dataset


def test_a_test_file_leaves_the_rest_for_training(write):
    asked = [*ROWS[8:], {**ROWS[0], "id": "same", "question": "where is THING 0"}]
    test_file = write(asked, "test.json")
    data = load(write, ROWS[:8], test_file=test_file, fractions=(0.5, 0.5, 0.0))
    assert [e.qid for e in data.splits["test"]] == ["q8", "q9", "same"]
    assert {len(data.splits["train"]), len(data.splits["validation"])} == {3, 4}
    held = {e.qid for name in ("train", "validation") for e in data.splits[name]}
    assert held == {f"q{i}" for i in range(1, 8)}  # q0 is asked in the test file too


def test_a_set_is_asked_whole_and_in_order(write):
    """A question that is asked twice is left out of the splits, not of the set."""
    rows = [*ROWS, {**ROWS[0], "id": "again"}]
    data = load(write, rows)
    assert [e.qid for e in data.select("all")] == [row["id"] for row in rows]
    assert [e.qid for e in data.select("all", 3)] == ["q0", "q1", "q2"]
    whole = [e.qid for e in data.select("test")]
    assert whole == sorted(whole)
    assert {e.qid for e in data.select("test", 2)} < {e.qid for e in data.select("test", 3)}
    assert data.card["duplicates_dropped"] == 1
    with pytest.raises(ConfigError, match="has no validation questions"):
        load(write, rows, fractions=(0.5, 0.0, 0.5)).select("validation")


def test_questions_alone_are_for_programs_that_do_not_search(tmp_path, monkeypatch):
    file = write_rows(tmp_path, "csv", [{"question": "Who?", "answer": "Ann"}], "mine")
    dataset = load_dataset(DataSettings(dataset="jsonl", data_file=file))
    assert (dataset.name, len(dataset.corpus), dataset.setting) == ("mine", 0, "pooled")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["eval", "--program", "vanilla", "--data-file", str(file)])
    assert "mine has no passages, which vanilla would search; give --corpus-file" in str(
        done.exception
    )


@pytest.mark.parametrize(("answer", "is_noted"), [("北京市", True), ("Beijing", False)])
def test_card_notes_answers_in_scripts_without_spaces(answer, is_noted, write):
    rows = [{"question": f"哪里 {n}?", "answer": answer} for n in range(3)]
    data = load_dataset(DataSettings(dataset="jsonl", data_file=write(rows)))
    assert ("f1_chars" in data.card.get("scores", "")) is is_noted
