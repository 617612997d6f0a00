"""The index store: each index is made once, kept under a hash of corpus and settings.

An index is a folder with the retriever's files and a `manifest.json`. It is written beside its
place and moved there whole, under a lock, so a folder that is there is complete; on load the
manifest and the files' sizes, heads and tails are checked, and an index that fails is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ragbench.errors import DataError

if TYPE_CHECKING:
    from ragbench.retrievers.base import Progress, Retriever

_MANIFEST = "manifest.json"
_MIB = 1 << 20
#: Packages whose new version may read an index differently.
_ENGINES = {"bm25": "bm25s", "dense": "faiss-cpu"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Manifest:
    """What is known of a stored index; `files` maps a name to its size and `_fingerprint`."""

    key: str
    retriever: str
    settings: Mapping[str, Any]
    corpus: str
    passages: int
    index_version: int
    engine: str
    created: str
    build_s: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


class IndexStore:
    """Stored indexes under one folder, by default `indexes` in the cache folder of ragbench."""

    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            from ragbench.lms.store import cache_root

            root = cache_root() / "indexes"
        self.root = root

    def fill(self, retriever: Retriever, progress: Progress | None = None) -> None:
        """Load the index of `retriever`, making and keeping it first if it is not there.

        Raises:
            DataError: the folder cannot be written.
        """
        key = index_key(retriever)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f"{key}.lock"):
                if not self._load(retriever, key):
                    self._make(retriever, key, progress)
                retriever._stored = _read(self.root / key)
        except OSError as error:
            raise DataError(
                f"cannot keep an index in {self.root}: {error}; set RAGBENCH_CACHE to a folder "
                "that can be written"
            ) from None

    def holds(self, retriever: Retriever) -> bool:
        """Whether the index of `retriever` is there."""
        return (self.root / index_key(retriever) / _MANIFEST).is_file()

    def entries(self) -> list[Manifest]:
        """The stored indexes, newest first; folders without a readable manifest are left out."""
        found = [_read(path.parent) for path in self.root.glob(f"*/{_MANIFEST}")]
        return sorted(filter(None, found), key=lambda entry: entry.created, reverse=True)

    def find(self, prefix: str) -> Manifest:
        """The stored index whose key starts with `prefix`.

        Raises:
            DataError: none, or more than one.
        """
        matches = [entry for entry in self.entries() if entry.key.startswith(prefix)]
        if len(matches) != 1:
            known = ", ".join(entry.key for entry in matches or self.entries()) or "none"
            what = "no" if not matches else "more than one"
            raise DataError(f"{what} index is named {prefix!r}; stored: {known}")
        return matches[0]

    def drop(self, key: str) -> None:
        """Delete the index `key`; one in use elsewhere stays readable there until it is closed."""
        with FileLock(self.root / f"{key}.lock"):
            shutil.rmtree(self.root / key)

    def damage(self, key: str) -> str:
        """What is wrong with the index `key`, or an empty string."""
        return _damage(self.root / key)

    def _load(self, retriever: Retriever, key: str) -> bool:
        folder = self.root / key
        if not folder.is_dir():
            return False
        wrong = _damage(folder)
        if not wrong:
            try:
                retriever._load(folder)
                return True
            except (ValueError, KeyError, EOFError, RuntimeError) as error:
                wrong = f"{type(error).__name__}: {error}"
        log.warning("index %s is damaged (%s); making it again", key, wrong)
        shutil.rmtree(folder)
        return False

    def _make(self, retriever: Retriever, key: str, progress: Progress | None) -> None:
        start = time.perf_counter()
        retriever._make(progress)
        elapsed = time.perf_counter() - start
        folder = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=self.root))
        try:
            retriever._save(folder)
            _write(folder, _describe(retriever, key, elapsed, folder))
            os.replace(folder, self.root / key)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        retriever._load(self.root / key)  # from now on mapped, not held in memory


def index_key(retriever: Retriever) -> str:
    """The name of a retriever's index: a hash of corpus, settings and the versions that matter."""
    parts = {
        "retriever": retriever.name,
        "settings": retriever.index_settings(),
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
    return Manifest(
        key=key,
        retriever=retriever.name,
        settings=retriever.index_settings(),
        corpus=retriever.corpus.digest,
        passages=len(retriever.corpus),
        index_version=retriever.index_version,
        engine=_engine(retriever),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        build_s=round(build_s, 3),
        facts=retriever.facts(),
        files={path.name: (path.stat().st_size, _fingerprint(path)) for path in _files(folder)},
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != _MANIFEST)


def _write(folder: Path, manifest: Manifest) -> None:
    for path in _files(folder):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    with (folder / _MANIFEST).open("w") as handle:
        json.dump(asdict(manifest), handle, indent=2)
        handle.flush()
        os.fsync(handle.fileno())


def _read(folder: Path) -> Manifest | None:
    try:
        data = json.loads((folder / _MANIFEST).read_text())
        known = {f.name for f in fields(Manifest)}
        return Manifest(**{name: value for name, value in data.items() if name in known})
    except (OSError, ValueError, TypeError):
        return None


def _damage(folder: Path) -> str:
    manifest = _read(folder)
    if manifest is None:
        return "no readable manifest"
    for name, (size, fingerprint) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, not {size}"
        if _fingerprint(path) != fingerprint:
            return f"{name} has changed"
    return ""


def _fingerprint(path: Path) -> str:
    """A hash of the first and last MiB, so that checking does not read gigabytes."""
    state = hashlib.sha256()
    with path.open("rb") as handle:
        state.update(handle.read(_MIB))
        handle.seek(max(0, path.stat().st_size - _MIB))
        state.update(handle.read(_MIB))
    return state.hexdigest()[:32]
