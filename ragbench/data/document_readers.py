"""Read the text of documents: text, Markdown, HTML, PDF, Word, tables.

A document is cut into its sections: headings, pages or sheets. The readers are small and
local: markitdown (measured 2026-11) needs 390 MB, keeps navigation bars, and runs past 40 s on a
Word file that is a zip bomb.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from ragbench.data.tables import Rows, excel_sheets, text_rows
from ragbench.data.text_files import read_text
from ragbench.errors import DataError, needs_extra

#: The title and the text of a part of a document.
Section = tuple[str, str]
#: Function from a file, its title and its encoding to sections.
Reader = Callable[[Path, str, str], Iterable[Section]]

#: HTML elements without visible text, headings, and elements that begin a new line.
_NO_TEXT = re.compile("^(script|style|noscript|template|svg|nav|head)$")
_HEADINGS = re.compile("^h[1-6]$")
_BLOCKS = re.compile(
    "^(address|article|aside|blockquote|body|br|dd|div|dl|dt|figcaption|footer|form|header|li|main"
    "|ol|p|pre|section|table|td|th|tr|ul)$"
)
#: Mark around a heading in the text of a page.
_MARK = "\x1e"


def _text(path: Path, title: str, encoding: str) -> Iterator[Section]:
    yield title, read_text(path, encoding)


def _markdown(path: Path, title: str, encoding: str) -> Iterator[Section]:
    from markdown_it import MarkdownIt

    text = read_text(path, encoding)
    lines = text.splitlines(keepends=True)
    heading = title
    start = 0
    # Inline content is not needed, and a line of backticks takes quadratic time.
    blocks = MarkdownIt().disable("inline")
    for token, inline in pairwise(blocks.parse(text)):
        if token.type == "heading_open" and token.map:
            yield heading, "".join(lines[start : token.map[0]])
            heading = f"{title}: {inline.content}"
            start = token.map[1]
    yield heading, "".join(lines[start:])


def _html(path: Path, title: str, encoding: str) -> Iterator[Section]:
    with needs_extra(str(path)):
        from bs4 import BeautifulSoup

    try:
        text = read_text(path)
        page = BeautifulSoup(text, "html.parser")
    except DataError:  # The page may declare its encoding.
        page = BeautifulSoup(path.read_bytes(), "html.parser", from_encoding=encoding or None)
    for element in page.find_all(_NO_TEXT):
        element.decompose()
    for element in page.find_all(_BLOCKS):
        element.insert_before("\n")
        element.insert_after("\n")
    for element in page.find_all(_HEADINGS):
        element.replace_with(f"{_MARK}{element.get_text(' ', strip=True)}{_MARK}")
    text, *sections = page.get_text().split(_MARK)
    yield title, text
    for heading, text in zip(sections[::2], sections[1::2], strict=False):
        yield f"{title}: {heading}", text


def _pdf(path: Path, title: str, encoding: str) -> Iterator[Section]:
    with needs_extra(str(path)):
        import pypdf
    with pypdf.PdfReader(path) as reader:
        for number, page in enumerate(reader.pages, start=1):
            yield f"{title}, page {number}", page.extract_text()


def _word(path: Path, title: str, encoding: str) -> Iterator[Section]:
    with needs_extra(str(path)):
        import docx
    with path.open("rb") as file:
        blocks: Any = list(docx.Document(file).iter_inner_content())
    heading = title
    lines: list[str] = []
    for block in blocks:
        if hasattr(block, "rows"):
            for row in block._tbl.tr_lst:  # `row.cells` repeats a cell as often as its span says
                lines.append(" | ".join(map(_cell_text, row.tc_lst)))
        elif block.style is not None and block.style.name.startswith(("Heading", "Title")):
            yield heading, "\n".join(lines)
            heading = f"{title}: {block.text}"
            lines = []
        else:
            lines.append(block.text)
    yield heading, "\n".join(lines)


def _cell_text(cell: Any) -> str:
    return "\n".join(paragraph.text for paragraph in cell.p_lst)


def _table(path: Path, title: str, encoding: str) -> Iterator[Section]:
    separator = "," if path.suffix.lower() == ".csv" else "\t"
    yield title, _rows_as_text(text_rows(path, encoding, separator))


def _sheets(path: Path, title: str, encoding: str) -> Iterator[Section]:
    for name, rows in excel_sheets(path):
        yield f"{title}, {name}", _rows_as_text(rows)


def _rows_as_text(rows: Rows) -> str:
    """Write each row as a sentence: `name: value; name: value.`."""
    lines = []
    for _, record in rows:
        cells = [f"{name}: {value}" for name, value in record.items() if value is not None]
        lines.append("; ".join(cells) + ".\n")
    return "".join(lines)


#: Ending -> reader. Files with these endings are always documents.
DOCUMENTS: dict[str, Reader] = {
    ".txt": _text,
    ".text": _text,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".xhtml": _html,
    ".pdf": _pdf,
    ".docx": _word,
}
#: In a folder of documents, tables are documents too. A table file by itself holds records.
READERS: dict[str, Reader] = {
    **DOCUMENTS,
    ".csv": _table,
    ".tsv": _table,
    ".tab": _table,
    ".xlsx": _sheets,
    ".xlsm": _sheets,
}
