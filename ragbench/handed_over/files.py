"""Files that a person's own code reads: what stands in them is part of what the code answers.

A file counts where a text in the code, or an attribute, names one that is there. Where the code
also writes files, it may be one that a run itself changes, so that none counts.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePath
from types import FunctionType

from ragbench.handed_over.code import Names, names_of
from ragbench.user_code import distribution_of_module

#: Names and texts of code that writes files.
_WRITES = frozenset({"write", "write_text", "write_bytes", "writelines", "dump", "append_text"})
_MODES = frozenset({"a", "w", "x", "ab", "wb", "xb", "a+", "w+", "r+", "rb+", "r+b"})
#: The longest text that is looked at as the name of a file.
_LONGEST = 200
#: A larger file counts by its size and time alone.
_MOST_BYTES = 2**28


def contents_of(texts: Iterable[object], folders: Iterable[Path]) -> dict[str, str]:
    """Text -> digest of the file that it names, in one of `folders`, for those that name one."""
    contents = {}
    places = [Path(), *folders]
    for text in texts:
        if not isinstance(text, str | PurePath) or not 0 < len(str(text)) <= _LONGEST:
            continue
        for folder in places:
            try:
                path = folder / text
                if "\n" in str(text) or not path.is_file():
                    continue
                stat = path.stat()
                digest = _digest_of(path.absolute(), stat.st_size, stat.st_mtime_ns)
            except (OSError, ValueError):  # no name of a file, or one that cannot be read
                continue
            contents[str(text)] = digest
            break
    return contents


def writes(code_names: Names) -> bool:
    """Whether code with these names writes files."""
    return bool(code_names.all & _WRITES or code_names.texts & _MODES)


def class_writes(kind: type) -> bool:
    """Whether a method of `kind`, of the person's own code, writes files."""
    for base in kind.__mro__:
        if distribution_of_module(base.__module__) is not None:
            continue
        for method in vars(base).values():
            if isinstance(method, FunctionType) and writes(names_of(method.__code__)):
                return True
    return False


@lru_cache(maxsize=1024)
def _digest_of(path: Path, size: int, mtime_ns: int) -> str:
    if size > _MOST_BYTES:
        return f"{size} {mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()
