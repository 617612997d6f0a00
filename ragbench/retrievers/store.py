"""Indexes kept on this machine, under a hash of corpus and settings.

An index is a folder with the retriever's files and a `manifest.json`, which has their SHA-256. It
is written beside its place and moved there whole, under a lock, so a folder that is there is whole.
Its files are checked before they are loaded; a damaged index is made again. A file whose inode,
size and times are those of its last check is not read for it, so that opening an index of gigabytes
does not read it. Vectors that a build which was stopped had made stay in `KEY.unfinished` until the
index is made.
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ValidationError

from ragbench.errors import DataError
from ragbench.paths import cache_root, make_folder, sync
from ragbench.retrievers.base import Manifest, Newest, Progress, Retriever

MANIFEST = "manifest.json"
#: When each file was last hashed and found whole: name -> inode, size, mtime, ctime.
_CHECKED = "checked.json"
#: What the name of a folder of unfinished work ends with.
_UNFINISHED = ".unfinished"
#: Of the folder of an index; another one has other keys.
_FORMAT = 2
#: Packages whose new version may read an index differently.
_ENGINES = {"dense": "faiss-cpu", "lancedb": "lancedb"}
#: What loading raises where the bytes are whole but do not fit together.
_UNUSABLE = (ValueError, KeyError, IndexError, TypeError, EOFError, RuntimeError)

log = logging.getLogger(__name__)


class IndexStore:
    """Stored indexes under one folder, by default `indexes` in the cache folder of ragbench."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_root() / "indexes"

    def fill(self, retriever: Retriever, progress: Progress | None = None) -> Manifest | None:
        """Load the index of `retriever`, making and keeping it first if it is not there.

        Raises:
            DataError: the folder cannot be written.
        """
        key = index_key(retriever)
        unfinished = self.root / f"{key}{_UNFINISHED}"

        def make(folder: Path) -> dict[str, Any]:
            retriever._unfinished = unfinished
            retriever._make(progress)
            retriever._save(folder)
            return {
                "retriever": retriever.name,
                "corpus": retriever.corpus.digest,
                "passages": len(retriever.corpus),
                "settings": retriever.index_settings(),
                "facts": retriever.facts(),
            }

        with self._locked(key):
            if not self._usable(key, retriever):
                self._write(key, make)
                if unfinished.is_dir():
                    _delete(unfinished)
                retriever._load(self.root / key)  # from now on mapped, not held in memory
            return read_manifest(self.root / key)

    def corpus_folder(self, key: str, write: Callable[[Path], tuple[int, str]]) -> Path:
        """The folder of the stored passages `key`, whole.

        Where it is not there, `write` fills it and gives the number and the digest of the passages.

        Raises:
            DataError: the folder cannot be written.
        """

        def make(folder: Path) -> dict[str, Any]:
            passages, digest = write(folder)
            return {"retriever": "passages", "corpus": digest, "passages": passages}

        with self._locked(key):
            if not self._usable(key):
                self._write(key, make)
        return self.root / key

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
        folder = self.root / key
        manifest = read_manifest(folder)
        if manifest is None:
            return "no readable manifest"
        for name, (size, digest) in manifest.files.items():
            path = folder / name
            if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size} bytes, not {size}"
            if _sha256(path) != digest:
                return f"{name} has changed"
        _remember(folder, manifest)
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

    def _usable(self, key: str, retriever: Retriever | None = None) -> bool:
        """Whether the folder `key` is there and whole, and `retriever` loads it; else it goes."""
        folder = self.root / key
        if not folder.is_dir():
            return False
        checked = _is_checked(folder)
        problem = "" if checked else self.damage(key)
        if not problem and retriever is not None:
            try:
                retriever._load(folder)
                if not checked:
                    retriever._check()
                problem = "" if retriever.is_whole else "replies were lost"
            except _UNUSABLE as error:
                problem = f"{type(error).__name__}: {error}"
        if problem:
            log.warning("index %s is made again: %s", key, problem)
            _delete(folder)
        return not problem

    def _write(self, key: str, make: Callable[[Path], dict[str, Any]]) -> None:
        """Put the folder `key` into its place, once `make` has written and described its files."""
        for leftover in self.root.glob(f".{key}-*"):  # of a build that was killed
            _delete(leftover)
        folder = self.root / f".{key}-{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            start = time.perf_counter()
            told = make(folder)
            made = Manifest(
                key=key,
                created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                build_s=round(time.perf_counter() - start, 3),
                files={
                    path.relative_to(folder).as_posix(): (path.stat().st_size, _sha256(path))
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                },
                **told,
            ).sealed()
            (folder / MANIFEST).write_text(made.model_dump_json(indent=2), encoding="utf-8")
            for name in (*made.files, MANIFEST):
                with (folder / name).open("rb") as file:
                    os.fsync(file.fileno())
            _remember(folder, made)
            sync(folder)
            os.replace(folder, self.root / key)
            sync(self.root)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def index_key(retriever: Retriever, *, without: str = "") -> str:
    """The name of a retriever's index: a hash of corpus, settings and the versions that matter.

    `without` is a setting that is left out.
    """
    settings = retriever.index_settings()
    settings.pop(without, None)
    package = _ENGINES.get(retriever.name)
    parts = {
        "retriever": retriever.name,
        "settings": settings,
        "corpus": retriever.corpus.digest,
        "versions": [_FORMAT, retriever.index_version, package and version(package)],
    }
    text = json.dumps(parts, sort_keys=True)
    return f"{retriever.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in `folder`, under the folder's own name; None where there is none to read."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    if manifest.sum != manifest.sealed().sum:
        return None
    # `drop` deletes the folder of this name, so it is not taken from the file.
    return manifest.model_copy(update={"key": folder.name})


def _is_checked(folder: Path) -> bool:
    """Whether no file has been touched since it was last hashed and found whole."""
    manifest = read_manifest(folder)
    try:
        stamps = json.loads((folder / _CHECKED).read_bytes())
        return manifest is not None and bool(stamps == _stamps(folder, manifest))
    except (OSError, ValueError):
        return False


def _remember(folder: Path, manifest: Manifest) -> None:
    partial = folder / f".{_CHECKED}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a store that cannot be written is checked each time
        try:
            partial.write_text(json.dumps(_stamps(folder, manifest)))
            os.replace(partial, folder / _CHECKED)
        finally:
            partial.unlink(missing_ok=True)


def _stamps(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    stats = {name: (folder / name).stat() for name in manifest.files}
    return {
        name: [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        for name, stat in stats.items()
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def opened(key: Hashable, make: Callable[[], Any]) -> Any:
    """The index that this process holds under `key`, else what `make` gives; 512 are held.

    That is as many as a distractor setting holds retrievers.
    """
    with _LOCK:
        index = _OPEN.pop(key, None) or make()
        _OPEN[key] = index
    return index


_LOCK = threading.Lock()
_OPEN: Newest[Hashable, Any] = Newest(512)
