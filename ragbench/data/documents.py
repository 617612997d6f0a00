"""Documents as passages' texts: plain text, Markdown, HTML, PDF, Word and PowerPoint files.

A document is cut into sections where it has them: a heading, a page, a slide. Every file of a
folder is accounted for: what is read, what has no text, what is damaged, and how many files of
which ending are left out.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ragbench.data.text_files import check_regular, read_text
from ragbench.errors import DataError, RagbenchError, needs_extra
from ragbench.logs import get

#: The title and the text of a part of a document.
Section = tuple[str, str]
#: Reads a file, given its title and the coding of its text, into sections.
Reader = Callable[[Path, str, str], Iterable[Section]]

#: Elements of HTML that are no text of the page.
_NO_TEXT = ("script", "style", "noscript", "template", "svg", "nav", "head")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = (
    "address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt",
    "figcaption", "footer", "form", "header", "li", "main", "ol", "p", "pre", "section", "table",
    "td", "th", "tr", "ul", *_HEADINGS,
)  # fmt: skip
#: Names of files that a message lists, and that the card keeps.
_NAMED, _KEPT = 5, 100

_log = get(__name__)
_said: set[str] = set()


@dataclass
class Account:
    """What became of the files of a folder."""

    read: int = 0
    without_text: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def card(self) -> dict[str, Any]:
        """Returns the account for a data card, JSON-ready; it names at most 100 files of a kind."""
        return {
            "read": self.read,
            "without_text": self.without_text[:_KEPT],
            "damaged": dict(list(self.damaged.items())[:_KEPT]),
            "left_out": dict(sorted(self.left_out.items())),
        }

    def lines(self) -> list[str]:
        """Returns one line for each kind of file that was left out or has no text."""
        lines = []
        if self.left_out:
            counts = ", ".join(f"{n} {ending}" for ending, n in sorted(self.left_out.items()))
            lines.append(f"{self.left_out.total()} files are left out, of kinds not read: {counts}")
        if self.without_text:
            listing = _listed(self.without_text)
            lines.append(f"{len(self.without_text)} documents have no text (scans?): {listing}")
        if self.damaged:
            listing = _listed([f"{name} ({why})" for name, why in self.damaged.items()])
            lines.append(f"{len(self.damaged)} documents are left out as damaged: {listing}")
        return lines


def _listed(items: list[str]) -> str:
    listing = ", ".join(items[:_NAMED])
    if len(items) > _NAMED:
        return f"{listing} and {len(items) - _NAMED} more"
    return listing


def is_document(path: Path) -> bool:
    """Returns whether `path` is a folder of documents, or one document, and no file of records."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix not in READERS or not path.is_file():
        return path.is_dir()
    if suffix not in (".txt", ".text"):
        return True
    with path.open("rb") as file:
        return not file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def read_documents(path: Path, encoding: str, account: Account) -> Iterator[tuple[str, str, str]]:
    """Yields file, title and text of each section of the documents under a folder, or of one file.

    Hidden files are left out, and counted nowhere. Fills `account`, and says once on the error
    stream what was left out. A text is UTF-8, or in `encoding` where it is not.

    Raises:
        DataError: there is no document with text, or one is in another coding.
        MissingExtraError: a library that a document needs is not installed.
    """
    folder = path if path.is_dir() else path.parent
    for file in _files(path):
        name = os.fsencode(file.relative_to(folder)).decode("utf-8", "replace")
        suffix = file.suffix.lower()
        reader = READERS.get(suffix)
        if reader is None:
            account.left_out[suffix or "without an ending"] += 1
            continue
        check_regular(file)
        title = name.removesuffix(file.suffix)
        is_blank = True
        try:
            for section, text in reader(file, title, encoding):
                if text.strip():
                    is_blank = False
                    yield name, section, text
        except RagbenchError:
            raise
        except Exception as error:  # libraries raise errors of many kinds on damaged files
            account.damaged[name] = next(iter(str(error).splitlines()), type(error).__name__)[:120]
            continue
        if is_blank:
            account.without_text.append(name)
        else:
            account.read += 1
    if not account.read:
        reasons = "; ".join(account.lines())
        endings = ", ".join(sorted(READERS))
        why = f": {reasons}" if reasons else ""
        raise DataError(f"{path}: holds no document with text ({endings}){why}"[:600])
    for line in account.lines():
        message = f"{path}: {line}"
        if message not in _said:
            _said.add(message)
            _log.warning("%s", message)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        is_hidden = any(step.startswith(".") for step in file.relative_to(path).parts)
        if not is_hidden and not file.is_dir():
            yield file


def _decoded(path: Path, encoding: str) -> str:
    """Returns the text of a file: UTF-8 if it can be, else in `encoding`."""
    try:
        return read_text(path)
    except DataError:
        if not encoding:
            raise
    return read_text(path, encoding)


def _text(path: Path, title: str, encoding: str) -> Iterator[Section]:
    yield title, _decoded(path, encoding)


def _markdown(path: Path, title: str, encoding: str) -> Iterator[Section]:
    from markdown_it import MarkdownIt

    text = _decoded(path, encoding)
    lines = text.splitlines(keepends=True)
    heading = title
    start = 0
    # What is inside a line is not needed, and a line of backticks takes quadratic time.
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
        from bs4.element import NavigableString, Tag

    try:
        text = read_text(path)
        page = BeautifulSoup(text, "html.parser")
    except DataError:  # the page may say itself in which coding it is
        page = BeautifulSoup(path.read_bytes(), "html.parser", from_encoding=encoding or None)
    for element in page.find_all(_NO_TEXT):
        element.decompose()
    heading = title
    lines: list[str] = []
    block: Any = None
    for node in page.descendants:
        if isinstance(node, Tag) and node.name in _HEADINGS:
            yield heading, "".join(lines)
            heading = f"{title}: {node.get_text(' ', strip=True)}"
            lines = []
        elif type(node) is NavigableString:  # and no comment
            around: Any = node.find_parent(_BLOCKS)
            if around is not None and around.find_parent(_HEADINGS) is not None:
                continue
            if around is None or around.name not in _HEADINGS:
                if around is not block:
                    lines.append("\n")
                    block = around
                lines.append(str(node))
    yield heading, "".join(lines)


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
            for row in block.rows:
                lines.append(" | ".join(cell.text for cell in row.cells))
        elif block.style is not None and block.style.name.startswith(("Heading", "Title")):
            yield heading, "\n".join(lines)
            heading = f"{title}: {block.text}"
            lines = []
        else:
            lines.append(block.text)
    yield heading, "\n".join(lines)


def _slides(path: Path, title: str, encoding: str) -> Iterator[Section]:
    with needs_extra(str(path)):
        import pptx
    with path.open("rb") as file:
        slides: Any = list(pptx.Presentation(file).slides)
    for number, slide in enumerate(slides, start=1):
        lines = list(_shape_lines(slide.shapes))
        if slide.has_notes_slide:
            lines.append(slide.notes_slide.notes_text_frame.text)
        yield f"{title}, slide {number}", "\n".join(lines)


def _shape_lines(shapes: Any) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shape_lines(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield " | ".join(cell.text for cell in row.cells)


READERS: dict[str, Reader] = {
    ".txt": _text,
    ".text": _text,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".xhtml": _html,
    ".pdf": _pdf,
    ".docx": _word,
    ".pptx": _slides,
}
