"""Open the text files of data, and report each problem in one line that names the file."""

import codecs
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ragbench.errors import DataError

_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_regular(path: Path) -> tuple[int, int]:
    """Return the size in bytes and the time of the last change in nanoseconds.

    Raises:
        DataError: `path` is not a regular file. Reading a pipe or a device could block.
    """
    with reading(path):
        status = path.stat()
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        if is_saved_dataset(path):
            kind = "a folder of `save_to_disk`; write a file by `Dataset.to_parquet`"
        raise DataError(f"{path}: cannot be read (it is {kind})")
    return status.st_size, status.st_mtime_ns


def is_saved_dataset(path: Path) -> bool:
    """Return True if `path` is a folder that `Dataset.save_to_disk` wrote."""
    return (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def read_text(path: Path, encoding: str = "") -> str:
    """Return the text of a file: UTF-8 if valid, else UTF-16 by its mark, else `encoding`.

    Args:
        path: File.
        encoding: Encoding of a file that is neither.

    Raises:
        DataError: The file cannot be read, or has another encoding.
    """
    with opened(path, encoding) as file:
        text = file.read()
    if "\x00" in text:
        raise DataError(f"{path}: holds a NUL byte at character {text.index(chr(0))}")
    return text.removeprefix("\ufeff")


@contextlib.contextmanager
def opened(path: Path, encoding: str = "", newline: str = "") -> Iterator[TextIO]:
    """Open a text file with the encoding that `read_text` detects.

    Args:
        path: File to read.
        encoding: Encoding of the file. Empty: detected.
        newline: Line ends, as for `open`.
    """
    with reading(path, encoding):
        with path.open("rb") as start:
            if start.read(2) in _MARKS:
                encoding = "utf-16"
        if not encoding or _is_utf8(path):
            encoding = "utf-8-sig"
        with path.open(encoding=encoding, newline=newline) as file:
            yield file


def _is_utf8(path: Path) -> bool:
    with path.open("rb") as file:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := file.read(1 << 20):
                if b"\x00" in block:  # Typical of UTF-16.
                    return False
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


@contextlib.contextmanager
def reading(path: Path, encoding: str = "") -> Iterator[None]:
    """Convert errors of reading a file into a one-line DataError.

    Args:
        path: File that the block reads.
        encoding: Encoding that the user gave, or empty.
    """
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}; paths are relative to the working folder, {Path.cwd()}"
        ) from None
    except UnicodeError as error:
        place = getattr(error, "start", 0)
        raise DataError(
            f"{path}: not {encoding or 'UTF-8'} text at byte {place}; save it as UTF-8, or give "
            "--encoding, such as latin-1, cp1252, utf-16 or shift_jis"
        ) from None
    except LookupError:
        raise DataError(
            f"--encoding {encoding!r} is not a known encoding; use one such as latin-1 or utf-16"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path itself
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"{path}: cannot be read ({reason})") from None


def first_line(error: Exception, path: Path | None = None) -> str:
    """Return the first line of an error's message, at most 160 characters.

    Args:
        error: The error.
        path: File that the message may name, which is removed.
    """
    text = str(error).replace(f"{path}: ", "").replace(str(path), "the file").strip()
    return next(iter(text.splitlines()), type(error).__name__)[:160]
