"""Store folders on this machine under a key: search indexes and passages.

A folder has its files and a `manifest.json` with their sizes, times and SHA-256. It is written to a
temporary place and renamed under a lock, so an existing folder is complete. A file whose size or
time differs from the manifest is hashed before it is loaded, so opening gigabytes does not read
them. A damaged folder is rebuilt.
"""

import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from ragbench.errors import DataError
from ragbench.paths import cache_root, make_folder, sync

MANIFEST = "manifest.json"
#: Errors of loading if the bytes are complete but inconsistent.
_UNUSABLE = (ValueError, KeyError, IndexError, TypeError, EOFError, RuntimeError)

log = logging.getLogger(__name__)


class Manifest(BaseModel):
    """Facts about a stored index.

    `retriever` is the kind of index, or `passages` for a stored corpus. `files` has the bytes, the
    modification time in nanoseconds and the SHA-256 of each file.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    retriever: str
    corpus: str
    passages: int
    created: str
    build_s: float
    settings: Mapping[str, Any] = {}
    facts: Mapping[str, Any] = {}
    files: Mapping[str, tuple[int, int, str]] = {}

    @property
    def size(self) -> int:
        return sum(size for size, _, _ in self.files.values())


class FolderStore:
    """Folders by key under one root, by default `indexes` in the cache folder of ragbench."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_root() / "indexes"

    def corpus_folder(self, key: str, write: Callable[[Path], tuple[int, str]]) -> Path:
        """Return the folder of the stored passages `key`, complete.

        Args:
            key: Name of the folder.
            write: Fills a missing folder and returns the number and the digest of the passages.
        """

        def make(folder: Path) -> dict[str, Any]:
            passages, digest = write(folder)
            return {"retriever": "passages", "corpus": digest, "passages": passages}

        with self._locked(key):
            if not self._usable(key):
                self._write(key, make)
        return self.root / key

    def entries(self) -> list[Manifest]:
        """Return the stored indexes, newest first, without unreadable manifests."""
        folders = (path.parent for path in self.root.glob(f"*/{MANIFEST}"))
        readable = filter(None, map(read_manifest, folders))
        return sorted(readable, key=lambda entry: entry.created, reverse=True)

    def find(self, prefix: str) -> Manifest:
        """Return the stored index whose key starts with `prefix`."""
        matches = [entry for entry in self.entries() if entry.key.startswith(prefix)]
        if len(matches) != 1:
            keys = ", ".join(entry.key for entry in matches or self.entries()) or "none"
            number = "no" if not matches else "more than one"
            raise DataError(f"{number} index is named {prefix!r}; stored: {keys}")
        return matches[0]

    def drop(self, key: str) -> None:
        """Delete the index `key`; one in use elsewhere stays readable there until it is closed."""
        if key not in [entry.key for entry in self.entries()]:
            raise DataError(f"no index is named {key!r} in {self.root}")
        try:
            with FileLock(self.root / f"{key}.lock"):
                shutil.rmtree(self.root / key)
        except OSError as error:
            raise DataError(f"index {key} cannot be deleted: {error}") from None

    def damage(self, key: str, *, touched: bool = False) -> str:
        """Describe the damage of an index. Return "" if there is none.

        Args:
            key: Key of the index.
            touched: Read only the files whose size or time changed. Otherwise, read all files.
        """
        folder = self.root / key
        manifest = read_manifest(folder)
        if manifest is None:
            return "no readable manifest"
        for name, (size, changed, digest) in manifest.files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            stat = path.stat()
            if stat.st_size != size:
                return f"{name} has {stat.st_size} bytes, not {size}"
            if not (touched and stat.st_mtime_ns == changed) and sha256_of(path) != digest:
                return f"{name} has changed"
        return ""

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        try:
            make_folder(self.root)
            with FileLock(self.root / f"{key}.lock"):
                yield
        except OSError as error:
            raise DataError(
                f"cannot keep an index in {self.root}: {error}; set RAGBENCH_CACHE to a folder "
                "that can be written"
            ) from None

    def _usable(self, key: str, load: Callable[[Path], bool] | None = None) -> bool:
        """Return True if the folder `key` is complete and `load` accepts it; else delete it.

        `load` returns False if the content must be rebuilt.
        """
        folder = self.root / key
        if not folder.is_dir():
            return False
        problem = self.damage(key, touched=True)
        if not problem and load is not None:
            try:
                problem = "" if load(folder) else "replies were lost"
            except _UNUSABLE as error:
                problem = f"{type(error).__name__}: {error}"
        if problem:
            log.warning("index %s is made again: %s", key, problem)
            shutil.rmtree(folder)
        return not problem

    def _write(self, key: str, make: Callable[[Path], dict[str, Any]]) -> None:
        """Put the folder `key` into its place, once `make` has written and described its files."""
        for leftover in self.root.glob(f".{key}-*"):  # left by a build that was killed
            shutil.rmtree(leftover)
        folder = self.root / f".{key}-{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            start = time.perf_counter()
            described = make(folder)
            files = {}
            for path in filter(Path.is_file, sorted(folder.rglob("*"))):
                sync(path)
                stat = path.stat()
                stamp = stat.st_size, stat.st_mtime_ns, sha256_of(path)
                files[path.relative_to(folder).as_posix()] = stamp
            manifest = Manifest(
                key=key,
                created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                build_s=round(time.perf_counter() - start, 3),
                files=files,
                **described,
            )
            (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
            for path in (folder / MANIFEST, folder):
                sync(path)
            os.replace(folder, self.root / key)
            sync(self.root)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest in `folder`, keyed by the folder's name; None if unreadable."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    # `drop` deletes the folder of this name, so it is not taken from the file.
    return manifest.model_copy(update={"key": folder.name})


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
