"""A run folder: `config.json`, `records.jsonl`, `summary.json`, one process at a time."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

import ragbench
from ragbench.errors import RunError
from ragbench.ledger import Ledger
from ragbench.logs import LOG, log_to

if TYPE_CHECKING:
    from ragbench.experiments.setup import Bench

CONFIG = "config.json"
SUMMARY = "summary.json"

#: What tables show of any card.
_CARD: Mapping[str, type | tuple[type, ...]] = {
    "identity": dict,
    "identity.program": str,
    "knobs": dict,
    "model": str,
    "data": dict,
    "data.name": str,
    "questions": (int, NoneType),
}


class RunDir:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process, making it if need be; the lock dies with the process.

        What is logged meanwhile goes to `log.jsonl` in the folder.

        Raises:
            RunError: another process holds it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot use the run folder {self.path}: {error.strerror}") from None
        with self.held(), log_to(self.path / LOG):
            yield

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, which is there, for this process; the lock dies with the process.

        Raises:
            RunError: another process holds it, or it cannot be written.
        """
        try:
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(
                f"{self.path} is in use by another process; wait for it or give --out"
            ) from None
        except OSError as error:
            raise RunError(f"cannot use the run folder {self.path}: {error.strerror}") from None
        try:
            yield
        finally:
            lock.release()

    def claim(self, bench: Bench) -> None:
        """Write the folder's config, or check that the one there is of the same run.

        Raises:
            RunError: the folder holds a run of another config or other data.
        """
        mine = card(bench)
        if (self.path / CONFIG).exists():
            theirs = self.config()
            self._check_same(theirs, mine)
            mine["preparation"] = theirs.get("preparation")
        elif (self.path / "records.jsonl").exists():
            raise RunError(f"{self.path} has records but no {CONFIG}; give another --out")
        write_json(self.path / CONFIG, mine)

    def note_preparation(self, bench: Bench, ledger: Ledger) -> None:
        """Write the card again, now that the index is there, with the calls that making it took."""
        before = self.config().get("preparation") or {"calls": []}
        calls = [*before["calls"], *ledger.to_dict()["calls"]]
        write_json(self.path / CONFIG, {**card(bench), "preparation": {"calls": calls}})

    def config(self) -> dict[str, Any]:
        """What `config.json` holds; `identity`, `knobs`, `model` and `data` are there.

        Raises:
            RunError: it is missing or unreadable.
        """
        found = self.read(CONFIG)
        for path, kind in _CARD.items():
            value: Any = found
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if not isinstance(value, kind):
                raise RunError(f"cannot read {self.path / CONFIG}: {path} is missing or wrong")
        return found

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds.

        Raises:
            RunError: it is missing or unreadable.
        """
        return self.read(SUMMARY)

    def read(self, name: str) -> dict[str, Any]:
        """What the JSON file called `name` holds.

        Raises:
            RunError: it is missing or unreadable.
        """
        path = self.path / name
        if not path.is_file():
            raise RunError(f"{self.path} is not a run folder: it has no {name}")
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"cannot read {path}: {error}") from None
        if not isinstance(found, dict):
            raise RunError(f"cannot read {path}: it is not a JSON object")
        return found

    def _check_same(self, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        old, new = theirs.get("identity", {}), mine["identity"]
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if changed:
            key = changed[0]
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise RunError(
                f"{self.path} holds a run with {key}={old.get(key)!r}, not {new.get(key)!r}{more}; "
                "give another --out"
            )
        for key, what in (("data", "over other data"), ("compiled", "of another compiled program")):
            if theirs.get(key) != mine[key]:
                raise RunError(f"{self.path} holds a run {what}; give another --out")


def card(bench: Bench) -> dict[str, Any]:
    """The run card: everything resolved, with versions and the identity of the data."""
    return {
        "identity": bench.config.identity(),
        "limit": bench.config.limit,
        "questions": len(bench.examples),
        "workers": bench.config.workers,
        "cache": bench.config.cache,
        "knobs": bench.program.knobs.model_dump(mode="json"),
        "retriever": bench.retriever.card(),
        "model": bench.lm.model,
        "adapter": type(bench.adapter).__name__,
        "data": {
            "name": bench.dataset.name,
            "setting": bench.dataset.setting,
            "digest": bench.dataset.digest,
        },
        "compiled": bench.compiled,
        "data_card": dict(bench.dataset.card),
        "versions": {
            "ragbench": ragbench.__version__,
            "dspy": version("dspy"),
            "python": platform.python_version(),
        },
        "git": _git_revision(),
    }


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` as JSON in one step: a reader sees the old file or the new one.

    Raises:
        RunError: the folder cannot be written.
    """
    write_whole(path, as_json(value))


def as_json(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file that holds `value`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    return text.encode("utf-8", "replace")


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` in one step: a reader sees the old file or the new one.

    Raises:
        RunError: the folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def _git_revision() -> str | None:
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
