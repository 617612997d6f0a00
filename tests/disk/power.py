"""What a loss of power leaves: what was fsynced, under names that were fsynced, and nothing else.

The shim copies a file at each fsync of it and logs what happens to names; here the log is played
back. A name is durable once its folder was fsynced after it was made, a file has the content of its
last fsync (a file that never was has none). Real file systems keep more.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.disk.faults import Shim
from tests.fake_server import FakeServer
from tests.kills import Job, Make, script


@dataclass
class _Folder:
    """Names in a folder: as the process sees them, and as they would be found after the loss."""

    seen: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)


class Disk:
    """The state of the disk by the log that the shim wrote in `copies`."""

    def __init__(self, copies: Path, root: Path, before: Path) -> None:
        self._copies, self._root = copies, root
        self._folders: dict[Path, _Folder] = {}
        self._content: dict[int, Path] = {}
        self._inode_of: dict[Path, int] = {}
        self._new = -1
        for path in (before, *sorted(before.rglob("*"))):  # what was there is durable
            place = root / path.relative_to(before)
            if path.is_dir():
                self._folders[place] = _Folder()
            if path != before:
                inode = self._name(place)
                self._folder(place.parent).durable[place.name] = inode
                if path.is_file():
                    self._content[inode] = path
        for line in (copies / "journal").read_text().splitlines():
            kind, a, b, inode = line.split("\t")
            self._play(kind, Path(a), b, int(inode))

    def _folder(self, path: Path) -> _Folder:
        return self._folders.setdefault(path, _Folder())

    def _name(self, path: Path, inode: int = 0) -> int:
        if not inode:
            inode, self._new = self._new, self._new - 1
        self._folder(path.parent).seen[path.name] = inode
        return inode

    def _play(self, kind: str, path: Path, other: str, inode: int) -> None:
        folder = self._folder(path.parent)
        if kind == "create":
            self._name(path, inode)
        elif kind == "mkdir":
            self._folder(path)
            self._name(path)
        elif kind == "file":
            known = folder.seen.get(path.name)
            self._content[known if known is not None else inode] = self._copies / other
        elif kind == "rename":
            moved = folder.seen.pop(path.name, None)
            if moved is not None:
                target = Path(other)
                self._folder(target.parent).seen[target.name] = moved
                self._move_folders(path, target)
        elif kind == "unlink":
            folder.seen.pop(path.name, None)
        elif kind == "folder":
            self._folder(path).durable = dict(self._folder(path).seen)

    def _move_folders(self, old: Path, new: Path) -> None:
        for path in [each for each in self._folders if each == old or old in each.parents]:
            self._folders[new / path.relative_to(old)] = self._folders.pop(path)

    def write(self, target: Path) -> None:
        """Make the folder `target` with what is left."""
        self._write(self._root, target)

    def _write(self, folder: Path, target: Path) -> None:
        target.mkdir(parents=True)
        for name, inode in self._folder(folder).durable.items():
            if folder / name in self._folders:
                self._write(folder / name, target / name)
            elif inode in self._content:
                shutil.copyfile(self._content[inode], target / name)
            else:
                (target / name).touch()


def lost_with_power(
    make: Make, folder: Path, shim: Shim, *, n: int, prepare: Make | None = None
) -> list[str]:
    """What finished work, or result, a command that came to its end would lose with the power.

    The command must also go on from what is left, and come to the same result.
    """
    work, copies, before = folder / "work", folder / "copies", folder / "before"
    work.mkdir(parents=True)
    copies.mkdir()
    with FakeServer(script) as server:
        if prepare:
            first = prepare(work, server.url, n)
            assert shim.run(first.argv, work, cache=first.cache).code == 0
        job = make(work, server.url, n)
        shutil.copytree(work, before)
        ended = shim.run(job.argv, work, copies=copies, cache=job.cache)
        assert ended.code == 0, ended.output
        finished, wanted = job.finished(), job.summary()
        disk = Disk(copies, work, before)
        shutil.rmtree(work)
        disk.write(work)
        kept = job.finished()
        lost = [unit for unit, line in finished.items() if kept.get(unit) != line]
        lost += [] if _summary(job) == wanted else ["the result"]
        again = shim.run(job.argv, work, cache=job.cache)
        if again.code != 0 or _summary(job) != wanted:
            lost.append(f"does not continue: {again.output[-1000:]}")
    return lost


def _summary(job: Job) -> str:
    try:
        return job.summary()
    except (OSError, ValueError) as error:
        return str(error)
