"""Code that the user names: `package.module:NAME` or `path/to/file.py:NAME`.

Importing a file runs it. So a name is imported only after `allow`, which is called where the user
gave the name on this command (an option, a config file, an argument in Python), and never for a
name that was read from a run folder or from a compiled program.
"""

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ragbench.errors import ConfigError
from ragbench.own_code import contained

_allowed: set[str] = set()
#: Name in `sys.modules` -> digest of the sources that it was imported from.
_imported: dict[str, str] = {}


def is_external(spec: str) -> bool:
    """Whether `spec` names code outside ragbench, by its colon."""
    return ":" in spec


def allow(*specs: str | None) -> None:
    """Let `load_object` import each of `specs` that is an external name: the user gave it."""
    _allowed.update(spec for spec in specs if spec and is_external(spec))


def allowed() -> tuple[str, ...]:
    """The names that were given to `allow`."""
    return tuple(sorted(_allowed))


def allow_typed(words: Iterable[str]) -> None:
    """Let every external name that stands in the words of a command be imported."""
    for word in words:
        parts = re.split(r"[,()=]", word)
        allow(word, *(part.strip() for part in parts))


def load_object(spec: str, option: str) -> Any:
    """The object that `spec` names; its file is imported anew if it has changed since.

    Raises:
        ConfigError: the user did not give this name, it cannot be imported, or has no such object;
            the message names `option`.
    """
    if spec not in _allowed:
        raise ConfigError(
            f"{spec} is external code and was not loaded: only names given on this command are; "
            f"give {option} {spec} if you trust it"
        )
    place, _, name = spec.rpartition(":")
    try:
        with contained(place):
            module = _import_current(place)
    except Exception as error:  # whatever a module raises while it is imported
        raise ConfigError(f"{option} {spec}: {type(error).__name__}: {error}") from None
    if not hasattr(module, name):
        raise ConfigError(f"{place} has no {name!r}; give {option} {place}:NAME")
    return getattr(module, name)


def source_digest(file: Path) -> str:
    """A hash of `file` and of the files beside it that it imports, directly or not."""
    digest = hashlib.sha256()
    for path in sorted(_sources(file)):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _import_current(place: str) -> ModuleType:
    """The module at `place` as its files are now."""
    if not place.endswith(".py"):
        if "" not in sys.path:  # a console script does not look there by itself
            sys.path.insert(0, "")
        importlib.invalidate_caches()
        found = importlib.util.find_spec(place)
        file = Path(found.origin) if found and found.origin else None
        name = place
    else:
        file = Path(place).resolve()
        if not file.is_file():
            raise FileNotFoundError(f"no file {place}")
        name = f"ragbench_user_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    digest = source_digest(file) if file and file.suffix == ".py" else ""
    if name in _imported and _imported[name] != digest and file:
        _forget(name, file)
    module = sys.modules.get(name) or _import(name, file if place.endswith(".py") else None)
    _imported[name] = digest
    return module


def _import(name: str, file: Path | None) -> ModuleType:
    if file is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # a .py file has both
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))  # for the files beside it, as `python file.py` has it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(file.parent))
    return module


def _forget(name: str, file: Path) -> None:
    """Drop a changed module, and those that it imported from beside it."""
    sources = {str(path) for path in _sources(file)}
    for known, module in [*sys.modules.items()]:
        if known == name or getattr(module, "__file__", None) in sources:
            del sys.modules[known]


def _sources(file: Path) -> set[Path]:
    """`file` and the Python files of its folder, or of its package, that it imports."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found, open_files = set[Path](), [file]
    while open_files:
        path = open_files.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(path, root):
            at = root.joinpath(*name.split("."))
            open_files += [p for p in (at.with_suffix(".py"), at / "__init__.py") if p.is_file()]
    return found


def _imports(path: Path, root: Path) -> Iterator[str]:
    """Dotted names, from `root`, of all that the file `path` imports or may import."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # which importing it says
        return
    package = path.relative_to(root).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from filter(None, [base, *(f"{base}.{a.name}".lstrip(".") for a in node.names)])
