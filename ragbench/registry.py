"""Registries: one per kind of thing that can be named on the command line.

A third-party package adds its own programs, retrievers, metrics, optimizers or data sets by an
entry point in the group `ragbench`, naming a module whose import registers them.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from ragbench.errors import UnknownNameError

T = TypeVar("T")

ENTRY_POINT_GROUP = "ragbench"


class Registry(Generic[T]):
    """Names of one `kind`; `package` is imported at first use, so that its modules register."""

    def __init__(self, kind: str, *, package: str) -> None:
        self.kind, self._package = kind, package
        self._entries: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that files its object under `name`.

        Raises:
            ValueError: `name` is taken by another object.
        """

        def add(entry: T) -> T:
            if self._entries.setdefault(name, entry) is not entry:
                raise ValueError(f"two {self.kind}s are named {name!r}")
            return entry

        return add

    def get(self, name: str) -> T:
        """The object filed under `name`.

        Raises:
            UnknownNameError: there is none; the message has the near names.
        """
        self._load()
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return self._entries[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        self._load()
        return sorted(self._entries)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(sorted(self._entries.items()))

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            import_module(self._package)
            for point in entry_points(group=ENTRY_POINT_GROUP):
                point.load()
