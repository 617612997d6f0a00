"""Identity of code in files: the file and the local modules that it imports, transitively.

Files are compared by their syntax trees, so an edit of comments or blanks keeps the identity.
Installed packages are identified by name and version. Data that the code reads while it runs
(files, environment variables) is ignored. Commands that reuse finished answers of such code print a
note.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

_RAGBENCH = Path(__file__).resolve().parents[1]
_PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"


def code_digest(file: Path) -> str:
    """Return the identity of the code in `file`.

    It is the distribution and version if the file is installed, otherwise a hash. Two files with
    the same hash run the same code.
    """
    distribution = distribution_of(str(file))
    if distribution:
        return distribution
    stamps = []
    for path in sorted(local_sources(file)):
        stat = path.stat()
        stamps.append((path, stat.st_size, stat.st_mtime_ns))
    return _digest(tuple(stamps))


def local_sources(file: Path) -> set[Path]:
    """Return the path `file` and the paths of all local modules that it imports."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    sources = set[Path]()
    todo = [file]
    while todo:
        path = todo.pop()
        if path in sources or not path.is_file() or distribution_of(str(path)) is not None:
            continue
        sources.add(path)
        stat = path.stat()
        todo += _imports_of(path, root, stat.st_size, stat.st_mtime_ns)
    return sources


@cache
def distribution_of(file: str) -> str | None:
    """Return the name and version of the installed distribution of `file`, or None for local code.

    An editable install is local code, because its files can change without a new version.
    """
    path = Path(file).resolve()
    if path.is_relative_to(_RAGBENCH):
        from ragbench import __version__

        return f"ragbench {__version__}"
    for name in ("site-packages", "dist-packages"):
        if name in path.parts[:-1]:
            return _distribution(path.parts[path.parts.index(name) + 1].partition(".")[0])
    for name in ("stdlib", "platstdlib"):
        if path.is_relative_to(Path(sysconfig.get_path(name)).resolve()):
            return _PYTHON
    return None


@cache
def _distribution(package: str) -> str:
    """Return the name and version of the distribution that installed `package`."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        # Searching all distributions is slow, and few packages need it.
        distributions = metadata.packages_distributions().get(package)
    if not distributions:
        return package
    return f"{distributions[0]} {metadata.version(distributions[0])}"


@lru_cache(maxsize=1024)  # size and time are keys, so a changed file is read again
def _imports_of(path: Path, root: Path, size: int, mtime_ns: int) -> list[Path]:
    """Return candidate paths of the imported modules of a file, and of its packages."""
    places = [folder / "__init__.py" for folder in path.parents if folder.is_relative_to(root)]
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # importing it reports the error
        return places
    for node in ast.walk(tree):
        base = None
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = path.parents[node.level - 1]
            module = node.module or ""
            modules = [f"{module}.{alias.name}".strip(".") for alias in node.names]
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            for argument in node.args[:1]:
                modules += [str(getattr(argument, "value", ""))]
        for name in filter(None, modules):
            for folder in [base] if base else [root, *_place_of(name.partition(".")[0])]:
                for segment in name.split("."):
                    places += [folder / f"{segment}.py", folder / segment / "__init__.py"]
                    folder /= segment
    return places


@cache  # cached per process, because imported code may change `sys.path`
def _place_of(top: str) -> list[Path]:
    """Return the folder of the top-level module `top`, or nothing for the standard library."""
    if top in sys.stdlib_module_names:
        return []
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec and spec.submodule_search_locations:
        return [Path(folder).parent for folder in spec.submodule_search_locations][:1]
    return [Path(spec.origin).parent] if spec and spec.origin else []


@lru_cache(maxsize=256)
def _digest(stamps: tuple[tuple[Path, int, int], ...]) -> str:
    state = hashlib.sha256()
    for path, _, _ in stamps:
        content = path.read_bytes()
        with suppress(SyntaxError, ValueError):
            content = ast.dump(ast.parse(content)).encode("utf-8", "surrogatepass")
        state.update(content + b"\0")
    return state.hexdigest()[:16]


def _name_of(node: ast.AST) -> str:
    return str(getattr(node, "id", "") or getattr(node, "attr", ""))


def digest_of_texts(texts: Iterable[str]) -> str:
    """Return a short hash of `texts`, which depends on their boundaries."""
    state = hashlib.sha256()
    for text in texts:
        state.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()[:12]
