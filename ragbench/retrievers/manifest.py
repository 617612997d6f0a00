"""The manifest of a stored index, and the check that its files are those that were written.

Every file is hashed whole. A file whose inode, size and times are those of its last check is not
hashed again, so that opening an index of gigabytes does not read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

MANIFEST = "manifest.json"
#: When each file was last hashed and found whole: name -> inode, size, mtime, ctime.
_CHECKED = "checked.json"
_MIB = 1 << 20


class Manifest(BaseModel):
    """What is known of a stored index.

    `retriever` is the kind of index, or `passages` for a stored corpus. `files` maps a name to its
    size in bytes and its SHA-256; in an index of an earlier version, to the first 32 digits of the
    hash of the file's first and last MiB.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str
    retriever: str
    corpus: str
    passages: int
    created: str
    build_s: float
    settings: Mapping[str, Any] = {}
    index_version: int = 1
    engine: str = ""
    facts: Mapping[str, Any] = {}
    files: Mapping[str, tuple[int, str]] = {}
    sum: str | None = None  # over all of it; None in one of an earlier version

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in `folder`, under the folder's own name; None where there is none to read."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    if manifest.sum is not None and manifest.sum != _sum(manifest):
        return None
    # `drop` deletes the folder of this name, so it is not taken from the file.
    return manifest.model_copy(update={"key": folder.name})


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest last, after all files are on disk."""
    for name in manifest.files:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    with (folder / MANIFEST).open("wb") as file:
        sealed = manifest.model_copy(update={"sum": _sum(manifest)})
        file.write(sealed.model_dump_json(indent=2, exclude_unset=True).encode())
        file.flush()
        os.fsync(file.fileno())
    _remember(folder, manifest)


def _sum(manifest: Manifest) -> str:
    kept = manifest.model_dump_json(exclude={"sum"}, exclude_unset=True)
    return hashlib.sha256(kept.encode()).hexdigest()[:16]


def hash_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file in `folder` and below, by its path from there."""
    own = {folder / MANIFEST, folder / _CHECKED}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, _sha256(path)) for path in paths
    }


def is_checked(folder: Path, manifest: Manifest) -> bool:
    """Whether no file has been touched since it was last hashed and found whole."""
    try:
        checked = json.loads((folder / _CHECKED).read_bytes())
        return bool(checked == _stamps(folder, manifest))
    except (OSError, ValueError):
        return False


def find_damage(folder: Path, manifest: Manifest | None) -> str:
    """What is wrong with the files in `folder`, all of them read; empty where nothing is."""
    if manifest is None:
        return "no readable manifest"
    for name, (size, digest) in manifest.files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, not {size}"
        if (_sha256(path) if len(digest) == 64 else _sha256_of_ends(path)) != digest:
            return f"{name} has changed"
    _remember(folder, manifest)
    return ""


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


def _sha256_of_ends(path: Path) -> str:
    """The digest that earlier versions kept."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        state.update(file.read(_MIB))
        file.seek(max(0, path.stat().st_size - _MIB))
        state.update(file.read(_MIB))
    return state.hexdigest()[:32]
