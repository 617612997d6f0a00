"""Documents of each kind as passages, and an account of every file of a folder."""

import os
import time
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import docx
import openpyxl
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.data.documents import READERS
from ragbench.errors import DataError
from tests.data.test_readers import pdf

PAGE = b"""<!doctype html><html><head><title>T</title><style>p {color: red}</style></head><body>
<nav>Home | About</nav><p>Before <b>all</b>.</p><h1>The <i>Mill</i></h1><p>Ann &amp; Bo built
it.</p><!-- hidden --><ul><li>One</li><li>Two</li></ul><script>alert(1)</script>
<h2>Sale</h2><table><tr><td>1961</td><td>Cy</td></tr></table></body></html>"""


def texts(folder: Path, **more: Any) -> dict[str, str]:
    data = load_dataset(DataSettings(dataset="documents", corpus_file=folder, **more))
    return {passage.title: passage.text for passage in data.corpus}


def word(path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("Before all.")
    document.add_heading("The Mill", 1)
    document.add_paragraph("Ann built it.")
    table = document.add_table(1, 2)
    table.rows[0].cells[0].text = "1961"
    table.rows[0].cells[1].text = "Cy"
    document.save(str(path))


def test_pages_and_word_files_become_sections(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(PAGE)
    word(tmp_path / "report.docx")
    made = texts(tmp_path)
    assert made["page"] == "Before all."
    assert made["page: The Mill"] == "Ann & Bo built it. One Two"
    assert made["page: Sale"] == "1961 Cy"
    assert made["report"] == "Before all."
    assert made["report: The Mill"] == "Ann built it. 1961 | Cy"


@pytest.mark.parametrize("name", ["one.html", "one.docx", "one.md", "one.txt"])
def test_one_document_is_a_corpus(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    word(path) if name.endswith("docx") else path.write_text("Ann built it.")
    (tmp_path / "other.md").write_text("Another.")
    assert "Ann built it." in " ".join(texts(path).values())
    assert "Another." not in texts(path).values()


def test_every_file_is_accounted_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "docs"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "x.md").write_text("Hidden.")
    (folder / "a.md").write_text("Ann built it.")
    (folder / "blank.txt").write_text(" \n")
    (folder / "scan.pdf").write_bytes(pdf([""]))
    (folder / "bad.docx").write_bytes(b"PK\x03\x04")
    for name in ("x.dat", "y.dat", "z.json", "Makefile"):
        (folder / name).write_text("x")
    spec = DataSettings(dataset="documents", corpus_file=folder)
    with caplog.at_level("WARNING"):
        card = load_dataset(spec).card["documents"]
        load_dataset(spec)
    assert card["read"] == 1
    assert card["left_out"] == {".dat": 2, ".json": 1, "without an ending": 1}
    assert sorted(card["skipped"]) == ["bad.docx", "blank.txt", "scan.pdf"]
    said = [line for line in caplog.messages if str(folder) in line]
    assert len(said) == 2  # once, though it was loaded twice
    assert "4 files are left out" in caplog.text
    assert "scan.pdf" in caplog.text


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_a_folder_in_two_codings_is_read_with_the_other_one_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes("Das Büro in Zürich.".encode("latin-1"))
    (tmp_path / "b.txt").write_text("Das Büro in Köln.", encoding="utf-8")
    assert list(texts(tmp_path).values()) == ["Das Büro in Köln."]
    assert f"1 documents are left out: {name} (not UTF-8 text at byte 5" in caplog.text
    assert "--encoding" in caplog.text
    with pytest.raises(DataError, match=rf"{name}: not UTF-8 text at byte 5.*--encoding"):
        texts(tmp_path / name)
    assert sorted(texts(tmp_path, encoding="latin-1").values()) == [
        "Das Büro in Köln.",
        "Das Büro in Zürich.",
    ]


def test_a_page_says_its_coding_itself(tmp_path: Path) -> None:
    page = '<html><head><meta charset="iso-8859-1"></head><body><p>Zürich</p></body></html>'
    (tmp_path / "a.html").write_bytes(page.encode("latin-1"))
    assert list(texts(tmp_path).values()) == ["Zürich"]


def test_tables_in_a_folder_of_documents_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name;age\nAnn Bo;5\n\nCy;\n")
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.title = "People"
    book.active.append(["name", "born"])
    book.active.append(["Ann", date(1961, 5, 31)])
    book.create_sheet("Empty")
    book.create_sheet("Towns").append(["town"])
    book["Towns"].append(["Oslo"])
    book.save(tmp_path / "b.xlsx")
    assert texts(tmp_path) == {
        "a": "name: Ann Bo; age: 5. name: Cy.",
        "b, People": "name: Ann; born: 1961-05-31.",
        "b, Towns": "town: Oslo.",
    }


def test_unreadable_file_of_any_kind_does_not_stop_a_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good.md").write_text("Ann built it.")
    for ending in READERS:
        (tmp_path / f"bad{ending}").write_bytes(b"\xff\x00\x81bad")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere.md")
    (tmp_path / "closed.md").write_text("x")
    (tmp_path / "closed.md").chmod(0)
    assert "Ann built it." in texts(tmp_path).values()
    spec = DataSettings(dataset="documents", corpus_file=tmp_path)
    card = load_dataset(spec).card["documents"]
    damaged = card["skipped"]
    endings = (".txt", ".md", ".pdf", ".docx", ".csv", ".xlsx")
    names = [f"bad{ending}" for ending in endings]
    assert {*names, "pipe.txt", "loop.md", "gone.md"} <= damaged.keys()
    assert all("\n" not in reason and str(tmp_path) not in reason for reason in damaged.values())
    assert "documents are left out" in caplog.text


def test_link_out_of_a_folder_of_documents_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.md").write_text("The secret key.")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("Ann built it.")
    (folder / "file.md").symlink_to(secret / "key.md")
    (folder / "within.md").symlink_to(folder / "a.md")
    (folder / "folder").symlink_to(secret)
    (folder / "relative.md").symlink_to("../secret/key.md")
    assert set(texts(folder).values()) == {"Ann built it."}
    assert "3 documents are left out: file.md (a link out of the folder), folder" in caplog.text
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert "Ann built it." in texts(link).values()


def test_word_file_with_a_span_of_millions_is_read_at_once(tmp_path: Path) -> None:
    word(tmp_path / "plain.docx")
    with ZipFile(tmp_path / "plain.docx") as old, ZipFile(tmp_path / "span.docx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            span = b'<w:tcPr><w:gridSpan w:val="20000000"/>'
            new.writestr(name, content.replace(b"<w:tcPr>", span))
    before = time.monotonic()
    assert texts(tmp_path / "span.docx")["span: The Mill"] == "Ann built it. 1961 | Cy"
    assert time.monotonic() - before < 20
