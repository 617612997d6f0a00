"""Registries: one per kind of thing that can be named on the command line.

A third-party package adds its own programs, retrievers, metrics, optimizers or data sets by an
entry point in the group `ragbench`, naming a module whose import registers them.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Generic, TypeVar

from ragbench.errors import UnknownNameError
from ragbench.logs import get
from ragbench.user_code import contained

T = TypeVar("T")

_log = get(__name__)


@cache
def _plug_ins() -> EntryPoints:
    """Return the entry points of third-party packages: looking for them takes 10 ms."""
    return entry_points(group="ragbench")


class Registry(Generic[T]):
    """Names of one `kind`; `package` is imported at first use, so that its modules register.

    `also` is a module of a higher layer that registers more.
    """

    def __init__(self, kind: str, *, package: str, also: str = "") -> None:
        self.kind = kind
        self._package = package
        self._find_outside: Callable[[str], T] | None = None
        self._also = also
        self._entries: dict[str, T] = {}
        self._unlisted: set[str] = set()
        self._loaded = False

    def register(self, name: str, *, listed: bool = True) -> Callable[[T], T]:
        """Return a decorator that registers its object.

        Args:
            name: Name of the object.
            listed: Include the name in lists. An unlisted object is found only by its name.
        """

        def add(entry: T) -> T:
            if self._entries.setdefault(name, entry) is not entry:
                raise ValueError(f"two {self.kind}s are named {name!r}")
            if not listed:
                self._unlisted.add(name)
            return entry

        return add

    def outside(self, find: Callable[[str], T]) -> Callable[[str], T]:
        """Let `find` give the entry of a name with a colon, such as `package.module:Class`."""
        self._find_outside = find
        return find

    def get(self, name: str) -> T:
        """Return the object called `name`; a name with a colon locates external code.

        Raises:
            UnknownNameError: There is none. The message lists similar names.
        """
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            import_module(self._package)
            if self._find_outside is not None:
                return self._find_outside(name)
        self._load()
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return self._entries[name]

    def names(self) -> list[str]:
        """Return all listed names, sorted."""
        self._load()
        return sorted(self._entries.keys() - self._unlisted)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter([(name, self._entries[name]) for name in self.names()])

    def _load_package(self) -> None:
        import_module(self._package)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        self._load_package()
        if self._also:
            import_module(self._also)
        for point in _plug_ins():
            try:
                with contained(point.name):
                    point.load()
            except Exception as error:  # an error of a third-party module must not break the rest
                where = point.dist.name if point.dist else point.value
                reason = f"{type(error).__name__}: {error}"
                _log.warning("plug-in %s of %s is left out: %s", point.name, where, reason)
