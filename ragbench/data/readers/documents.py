"""A folder of documents, cut into sections: text, Markdown and, with an extra, PDF."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from ragbench.errors import DataError, needs_extra

#: The title and the text of a part of a document.
Section = tuple[str, str]


def read_documents(folder: Path) -> Iterator[Section]:
    """The sections of all documents under `folder`, by path; hidden files are left out.

    A Markdown file has a section per heading, titled "file: heading"; a PDF file one per page; a
    text file is one section. Sections without text are left out.

    Raises:
        DataError: there is no document, or one cannot be read.
        MissingExtraError: a PDF file, and pypdf is not installed.
    """
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in _READERS
        and not path.is_dir()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not paths:
        raise DataError(f"{folder}: holds no document ({', '.join(sorted(_READERS))})")
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: is a broken link or no regular file; remove it")
    empty = True
    for path in paths:
        name = path.relative_to(folder).with_suffix("").as_posix()
        title = os.fsencode(name).decode("utf-8", "replace")  # a name may be of any bytes
        for section, text in _READERS[path.suffix.lower()](path, title):
            if text.strip():
                empty = False
                yield section, text
    if empty:
        raise DataError(f"{folder}: its documents hold no text")


def _text(path: Path, title: str) -> Iterator[Section]:
    yield title, _decoded(path)


def _markdown(path: Path, title: str) -> Iterator[Section]:
    from markdown_it import MarkdownIt

    text = _decoded(path)
    lines = text.splitlines(keepends=True)
    heading, start = title, 0
    tokens = MarkdownIt().parse(text)
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.map:
            yield heading, "".join(lines[start : token.map[0]])
            heading, start = f"{title}: {inline.content}", token.map[1]
    yield heading, "".join(lines[start:])


def _pdf(path: Path, title: str) -> Iterator[Section]:
    with needs_extra(str(path)):
        import pypdf
    try:
        with pypdf.PdfReader(path) as reader:
            for number, page in enumerate(reader.pages, start=1):
                yield f"{title}, page {number}", page.extract_text()
    except Exception as error:  # pypdf raises errors of many kinds on damaged files
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:160]
        raise DataError(f"{path}: not a PDF file that can be read ({reason})") from None


def _decoded(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text


_READERS: dict[str, Callable[[Path, str], Iterator[Section]]] = {
    ".txt": _text,
    ".text": _text,
    ".md": _markdown,
    ".markdown": _markdown,
    ".pdf": _pdf,
}
