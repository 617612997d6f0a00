"""Indexes kept on this machine, under a hash of corpus and settings.

An index is a folder with the retriever's files and a `manifest.json`. It is written beside its
place and moved there whole, under a lock, so a folder that is there is complete. Its files are
checked before they are loaded (see `manifest`); a damaged index is made again. Vectors that a build
which was stopped had made stay in `KEY.unfinished` until the index is made.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from ragbench.errors import DataError
from ragbench.paths import make_folder, sync
from ragbench.retrievers.base import Progress, Retriever
from ragbench.retrievers.manifest import (
    MANIFEST,
    Manifest,
    find_damage,
    hash_files,
    is_checked,
    read_manifest,
    write_manifest,
)

#: Packages whose new version may read an index differently.
_ENGINES = {"dense": "faiss-cpu", "lancedb": "lancedb"}
#: What loading raises where the bytes are whole but do not fit together.
_UNUSABLE = (ValueError, KeyError, IndexError, TypeError, EOFError, RuntimeError)

#: What the name of a folder of unfinished work ends with.
_UNFINISHED = ".unfinished"

log = logging.getLogger(__name__)


class IndexStore:
    """Stored indexes under one folder, by default `indexes` in the cache folder of ragbench."""

    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            from ragbench.lms.local import cache_root

            root = cache_root() / "indexes"
        self.root = root

    def fill(self, retriever: Retriever, progress: Progress | None = None) -> Manifest | None:
        """Load the index of `retriever`, making and keeping it first if it is not there.

        Raises:
            DataError: the folder cannot be written.
        """
        key = index_key(retriever)
        with self._locked(key):
            if not self._load(retriever, key):
                self._make(retriever, key, progress)
            return read_manifest(self.root / key)

    def corpus_folder(self, key: str, write: Callable[[Path], tuple[int, str]]) -> Path:
        """The folder of the stored passages `key`, whole.

        Where it is not there, `write` fills it and gives the number and the digest of the passages.

        Raises:
            DataError: the folder cannot be written.
        """

        def describe(folder: Path) -> Manifest:
            start = time.perf_counter()
            passages, digest = write(folder)
            elapsed = time.perf_counter() - start
            return _manifest(key, "passages", digest, passages, elapsed, folder)

        folder = self.root / key
        with self._locked(key):
            if self._problem(folder):
                self._discard(folder, self._problem(folder))
            if not folder.is_dir():
                self._write(key, describe)
        return folder

    def entries(self) -> list[Manifest]:
        """The stored indexes, newest first; folders without a readable manifest are left out."""
        manifests = [read_manifest(path.parent) for path in self.root.glob(f"*/{MANIFEST}")]
        kept = [manifest for manifest in manifests if manifest is not None]
        return sorted(kept, key=lambda entry: entry.created, reverse=True)

    def find(self, prefix: str) -> Manifest:
        """The stored index whose key starts with `prefix`.

        Raises:
            DataError: none, or more than one.
        """
        matches = [entry for entry in self.entries() if entry.key.startswith(prefix)]
        if len(matches) != 1:
            known = ", ".join(entry.key for entry in matches or self.entries()) or "none"
            number = "no" if not matches else "more than one"
            raise DataError(f"{number} index is named {prefix!r}; stored: {known}")
        return matches[0]

    def drop(self, key: str) -> None:
        """Delete the index `key`; one in use elsewhere stays readable there until it is closed.

        Of a symbolic link the link alone is deleted.

        Raises:
            DataError: there is no index of that name in this store, or it cannot be deleted.
        """
        folder = self.root / key
        if Path(key).name != key or read_manifest(folder) is None:
            raise DataError(f"no index is named {key!r} in {self.root}")
        try:
            with FileLock(self.root / f"{key}.lock"):
                _delete(folder)
        except OSError as error:
            raise DataError(f"index {key} cannot be deleted: {error}") from None

    def damage(self, key: str) -> str:
        """What is wrong with the index `key`, all its files read; empty where nothing is."""
        return find_damage(self.root / key, read_manifest(self.root / key))

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

    def _load(self, retriever: Retriever, key: str) -> bool:
        folder = self.root / key
        if not folder.is_dir():
            return False
        checked = _is_checked(folder)
        problem = "" if checked else self._problem(folder)
        if not problem:
            try:
                retriever._load(folder)
                if not checked:
                    retriever._check()
                return True
            except _UNUSABLE as error:
                problem = f"{type(error).__name__}: {error}"
        self._discard(folder, problem)
        return False

    def _problem(self, folder: Path) -> str:
        """What is wrong with an index; empty where nothing is, or where there is none."""
        if not folder.is_dir() or _is_checked(folder):
            return ""
        return find_damage(folder, read_manifest(folder))

    @staticmethod
    def _discard(folder: Path, problem: str) -> None:
        log.warning("index %s is damaged (%s); making it again", folder.name, problem)
        _delete(folder)

    def _make(self, retriever: Retriever, key: str, progress: Progress | None) -> None:
        def describe(folder: Path) -> Manifest:
            start = time.perf_counter()
            retriever._unfinished = unfinished
            retriever._make(progress)
            retriever._save(folder)
            return _describe(retriever, key, time.perf_counter() - start, folder)

        unfinished = self.root / f"{key}{_UNFINISHED}"
        self._write(key, describe)
        if unfinished.is_dir():
            _delete(unfinished)
        retriever._load(self.root / key)  # from now on mapped, not held in memory

    def _write(self, key: str, fill: Callable[[Path], Manifest]) -> None:
        """Put the folder `key` into its place, once `fill` has written and described its files."""
        for leftover in self.root.glob(f".{key}-*"):  # of a build that was killed
            _delete(leftover)
        folder = self.root / f".{key}-{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            write_manifest(folder, fill(folder))
            sync(folder)
            os.replace(folder, self.root / key)
            sync(self.root)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def index_key(retriever: Retriever, *, without: Collection[str] = ()) -> str:
    """The name of a retriever's index: a hash of corpus, settings and the versions that matter.

    `without` are settings that are left out.
    """
    settings = retriever.index_settings()
    parts = {
        "retriever": retriever.name,
        "settings": {name: settings[name] for name in settings if name not in without},
        "corpus": retriever.corpus.digest,
        "version": retriever.index_version,
        "engine": _engine(retriever),
    }
    text = json.dumps(parts, sort_keys=True)
    return f"{retriever.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _engine(retriever: Retriever) -> str:
    package = _ENGINES.get(retriever.name)
    return f"{package} {version(package)}" if package else ""


def _describe(retriever: Retriever, key: str, build_s: float, folder: Path) -> Manifest:
    corpus = retriever.corpus
    plain = _manifest(key, retriever.name, corpus.digest, len(corpus), build_s, folder)
    return plain.model_copy(
        update={
            "settings": retriever.index_settings(),
            "index_version": retriever.index_version,
            "engine": _engine(retriever),
            "facts": retriever.facts(),
        }
    )


def _manifest(
    key: str, kind: str, corpus: str, passages: int, build_s: float, folder: Path
) -> Manifest:
    return Manifest(
        key=key,
        retriever=kind,
        corpus=corpus,
        passages=passages,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        build_s=round(build_s, 3),
        files=hash_files(folder),
    )


def _is_checked(folder: Path) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and is_checked(folder, manifest)


def _delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)
