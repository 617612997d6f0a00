"""A folder of documents, cut into sections: text, Markdown and, with an extra, PDF."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from ragbench.data.readers import read_text
from ragbench.errors import DataError, needs_extra

#: The title and the text of a part of a document.
Section = tuple[str, str]


def read_documents(folder: Path) -> Iterator[Section]:
    """The sections of all documents under `folder`, by path; hidden files are left out.

    A Markdown file has a section per heading, titled "file: heading"; a PDF file one per page; a
    text file is one section. Sections without text are left out. DataError where there is no
    document or one cannot be read, MissingExtraError for a PDF file where pypdf is not installed.
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
    yield title, read_text(path, blank=True)


def _markdown(path: Path, title: str) -> Iterator[Section]:
    from markdown_it import MarkdownIt

    text = read_text(path, blank=True)
    lines = text.splitlines(keepends=True)
    heading, start = title, 0
    for token, inline in pairwise(MarkdownIt().parse(text)):
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


_READERS: dict[str, Callable[[Path, str], Iterator[Section]]] = {
    ".txt": _text,
    ".text": _text,
    ".md": _markdown,
    ".markdown": _markdown,
    ".pdf": _pdf,
}
