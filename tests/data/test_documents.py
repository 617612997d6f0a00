"""Documents of each kind as passages, and an account of every file of a folder."""

from pathlib import Path
from typing import Any

import docx
import pptx
import pytest
from pptx.util import Inches

from ragbench.data import DataSettings, load_dataset
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


def slides(path: Path) -> None:
    deck = pptx.Presentation()
    for number in (1, 2):
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = f"Slide of {number}"
        box = slide.shapes.add_textbox(Inches(1), Inches(2), Inches(3), Inches(1))
        box.text_frame.text = f"Ann built mill {number}."
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    deck.save(str(path))


def test_pages_word_files_and_slides_become_sections(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(PAGE)
    word(tmp_path / "report.docx")
    slides(tmp_path / "talk.pptx")
    made = texts(tmp_path)
    assert made["page"] == "Before all."
    assert made["page: The Mill"] == "Ann & Bo built it. One Two"
    assert made["page: Sale"] == "1961 Cy"
    assert made["report"] == "Before all."
    assert made["report: The Mill"] == "Ann built it. 1961 | Cy"
    assert "Ann built mill 1." in made["talk, slide 1"]
    assert made["talk, slide 2"].endswith("Say it slowly.")


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
    (folder / "bad.pptx").write_bytes(b"no")
    for name in ("x.csv", "y.csv", "z.json", "Makefile"):
        (folder / name).write_text("x")
    spec = DataSettings(dataset="documents", corpus_file=folder)
    with caplog.at_level("WARNING"):
        card = load_dataset(spec).card["documents"]
        load_dataset(spec)
    assert card["read"] == 1
    assert card["left_out"] == {".csv": 2, ".json": 1, "without an ending": 1}
    assert card["without_text"] == ["blank.txt", "scan.pdf"]
    assert sorted(card["damaged"]) == ["bad.docx", "bad.pptx"]
    said = [line for line in caplog.messages if str(folder) in line]
    assert len(said) == 3  # once, though it was loaded twice
    assert "4 files are left out" in caplog.text
    assert "scan.pdf" in caplog.text


def test_nothing_to_read_says_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "scan.pdf").write_bytes(pdf([""]))
    with pytest.raises(DataError, match=r"no document with text.*1 \.csv.*scan\.pdf"):
        texts(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_a_folder_in_two_codings_is_read_with_the_other_one_named(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes("Das Büro in Zürich.".encode("latin-1"))
    (tmp_path / "b.txt").write_text("Das Büro in Köln.", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}: not UTF-8 text at byte 5.*--encoding"):
        texts(tmp_path)
    assert sorted(texts(tmp_path, encoding="latin-1").values()) == [
        "Das Büro in Köln.",
        "Das Büro in Zürich.",
    ]


def test_a_page_says_its_coding_itself(tmp_path: Path) -> None:
    page = '<html><head><meta charset="iso-8859-1"></head><body><p>Zürich</p></body></html>'
    (tmp_path / "a.html").write_bytes(page.encode("latin-1"))
    assert list(texts(tmp_path).values()) == ["Zürich"]
