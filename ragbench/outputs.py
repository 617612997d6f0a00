"""The gate for every file that a command writes at a path that the user names.

A file is replaced only if the same command wrote it and nobody changed it since, or if the user
gives `--force`. Nothing empty replaces a file. Each file is written next to its place and renamed.
The digest of each written file is in the cache folder, by the path of the file.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ragbench.errors import ConfigError, RunError
from ragbench.paths import cache_root, sync

#: Files next to a run or a compiled program that no output may replace.
_OF_FOLDERS = ("card.json", "sidecar.json")
_READ_BYTES = 2**20


@dataclass(frozen=True)
class Output:
    """A file that `command` writes, such as `report`; `force` replaces a file of another origin."""

    path: Path
    command: str
    force: bool = False

    def inside(self, name: str) -> "Output":
        """Return the output called `name` in the folder of this path."""
        return replace(self, path=self.path / name)

    def check(self) -> None:
        """Do nothing if the file may be written.

        Raises:
            ConfigError: The path is a folder, or a file that the command did not write.
            RunError: The path is a file of a run or of a compiled program.
        """
        path = self.path
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file in it")
        if not os.path.lexists(path):
            return
        cards = map(path.with_name, _OF_FOLDERS)
        if path.suffix in (".json", ".db") and any(map(Path.is_file, cards)):
            raise RunError(f"{path} is a file of {path.parent}; write to another")
        if not self.force and not self._is_ours():
            raise ConfigError(
                f"{path} exists, and is not as `ragbench {self.command}` wrote it; name another "
                "file, or give --force to replace it"
            )

    def write(self, content: bytes | Iterable[bytes]) -> int:
        """Check, write and remember the file.

        Args:
            content: The whole content, or its parts.

        Returns:
            The size in bytes.

        Raises:
            ConfigError: As `check`, or the content is empty and a file exists.
            RunError: The folder is not writable.
        """
        self.check()
        digest = hashlib.sha256()
        size = 0

        def measured() -> Iterator[bytes]:
            nonlocal size
            for block in [content] if isinstance(content, bytes) else content:
                digest.update(block)
                size += len(block)
                yield block
            if not size and os.path.lexists(self.path):
                raise ConfigError(f"{self.path} is unchanged: there is nothing to write")

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from None
        write_whole(self.path, measured())
        self._remember(digest.hexdigest())
        return size

    @property
    def _mark(self) -> Path:
        """The file in the cache that holds command and digest of this output."""
        place = hashlib.sha256(str(self.path.absolute()).encode("utf-8", "replace")).hexdigest()
        return cache_root() / "outputs" / place[:32]

    def _remember(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.write_text(f"{self.command} {digest}", "utf-8")

    def _is_ours(self) -> bool:
        """Return True if the command wrote the file and its content is unchanged."""
        try:
            remembered = self._mark.read_text("utf-8", errors="replace")
            if not self.path.is_file() or self.path.is_symlink():
                return False
            digest = hashlib.sha256()
            with self.path.open("rb") as file:
                while block := file.read(_READ_BYTES):
                    digest.update(block)
        except OSError:
            return False
        return remembered == f"{self.command} {digest.hexdigest()}"


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file in one step: a reader sees either the old file or the new one.

    The new file is fsynced. A link in the place of `path` is replaced, never followed.

    Args:
        path: File to write.
        content: Bytes of the file, or its parts in order.

    Raises:
        RunError: The folder is not writable.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
