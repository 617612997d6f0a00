"""User-provided code: `package.module:NAME` or `path/to/file.py:NAME`, and its permissions.

Importing a file runs it. So a name is imported only after `allow`, which is called if the user gave
the name to this command (an option, a config file, an argument in Python). A name read from a run
folder or a compiled program is never allowed. Errors of such code never end the command silently:
`except Exception` does not catch `SystemExit`.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ragbench.errors import ConfigError, RagbenchError, StopSignal
from ragbench.external import code_digest, local_sources

_allowed: set[str] = set()
#: Name in `sys.modules` -> digest of the sources that it was imported from.
_imported: dict[str, str] = {}


def is_external(spec: str) -> bool:
    """Return True if `spec` names code outside ragbench, by its colon."""
    return ":" in spec


def allow(*specs: str | None) -> None:
    """Let `load_object` import each of `specs` that is an external name: the user gave it."""
    _allowed.update(spec for spec in specs if spec and is_external(spec))


def digest_of_spec(spec: str, option: str) -> str:
    """Return the identity of the external code that `spec` names.

    Args:
        spec: Name of the object, `MODULE:NAME` or `FILE.py:NAME`.
        option: Option that gave the name, for messages.

    Raises:
        ConfigError: as `load_object`.
    """
    load_object(spec, option)
    place = spec.rpartition(":")[0]
    if place.endswith(".py"):
        return code_digest(Path(place).resolve())
    origin = getattr(sys.modules[place], "__file__", None)
    return code_digest(Path(origin)) if origin else place


def names_within(*values: object) -> list[str]:
    """Return the external names that the user gave and that stand in `values`, such as settings."""
    text = " ".join(map(str, values))
    return [spec for spec in allowed() if spec in text and _file_of(spec) is not None]


def digests_within(*values: object) -> dict[str, str]:
    """Return the identity of the code of each of `names_within`; loads none of it."""
    digests = {}
    for spec in names_within(*values):
        if file := _file_of(spec):
            digests[spec] = code_digest(file)
    return digests


def _file_of(spec: str) -> Path | None:
    """Return the file of the code that `spec` names, or None for other texts, such as addresses."""
    place, _, name = spec.rpartition(":")
    if place.endswith(".py"):
        file = Path(place).resolve()
        return file if name.isidentifier() and file.is_file() else None
    if not (name.isidentifier() and place.replace(".", "_").isidentifier()):
        return None
    try:
        found = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin else None


def digest_of_plugin(entry: object) -> str:
    """Return the identity of the code of a registered class; "" for those of ragbench."""
    if is_ours(entry):
        return ""
    return code_digest(Path(inspect.getfile(entry if inspect.isclass(entry) else type(entry))))


def allowed() -> tuple[str, ...]:
    """Return the names that were given to `allow`."""
    return tuple(sorted(_allowed))


def allow_typed(words: Iterable[str]) -> None:
    """Allow the import of every external name in the words of a command."""
    for word in words:
        allow(word, *map(str.strip, re.split(r"[,()=]", word)))


def load_object(spec: str, option: str) -> Any:
    """Return the object that `spec` names. Import its file again if the file has changed.

    Args:
        spec: Name of the object, `MODULE:NAME` or `FILE.py:NAME`.
        option: Option that gave the name, for messages.

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
    without_cache = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python's cache misses an edit of equal size in one second.
    try:
        with contained(place):
            module = _import_current(place)
    except Exception as error:  # a module may raise any error during import
        raise ConfigError(f"{option} {spec}: {type(error).__name__}: {error}") from None
    finally:
        sys.dont_write_bytecode = without_cache
    if not hasattr(module, name):
        raise ConfigError(f"{place} has no {name!r}; give {option} {place}:NAME")
    return getattr(module, name)


def _import_current(place: str) -> ModuleType:
    """Return the module at `place` as its files are now."""
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise FileNotFoundError(f"no file {place}")
        name = f"ragbench_user_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
        spec = importlib.util.spec_from_file_location(name, file)
    else:
        if "" not in sys.path:  # a console script does not search there by default
            sys.path.insert(0, "")
        importlib.invalidate_caches()
        name = place
        spec = importlib.util.find_spec(place)
        file = Path(spec.origin if spec and spec.origin else place)
    digest = code_digest(file) if file.suffix == ".py" else ""
    if _imported.get(name, digest) != digest:  # with the local modules that it imported
        sources = {name, *map(str, local_sources(file))}
        for loaded, module in [*sys.modules.items()]:
            if loaded in sources or getattr(module, "__file__", None) in sources:
                del sys.modules[loaded]
    _imported[name] = digest
    if name in sys.modules or not place.endswith(".py"):
        return importlib.import_module(name)
    assert spec is not None  # a .py file has both
    assert spec.loader is not None
    sys.modules[name] = imported = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # for the files beside it, as `python file.py` has it
    try:
        spec.loader.exec_module(imported)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(file.parent))
    return imported


@contextmanager
def contained(name: str, boundary: str = "") -> Iterator[None]:
    """Let only an `Exception` leave the block: turn a SystemExit into a RuntimeError.

    Ctrl-C and `StopSignal` pass.

    Args:
        name: Name of the code that runs in the block, for messages.
        boundary: Source of failures in the block. An error is marked with it, unless an inner block
            marked the error.
    """
    try:
        try:
            yield
        except (Exception, KeyboardInterrupt, StopSignal):
            raise
        except BaseException as end:
            raise RuntimeError(f"{name} left by {type(end).__name__}({message_of(end)})") from end
    except Exception as error:
        if boundary and not hasattr(error, "ragbench_boundary"):
            error.ragbench_boundary = boundary  # type: ignore[attr-defined]
        raise


@contextmanager
def wrap_user_errors(owner: object, name: str) -> Iterator[None]:
    """Turn an error of user code inside the block into a one-line ConfigError.

    Errors of LMs and of ragbench pass unchanged.

    Args:
        owner: Object, class or function that runs in the block.
        name: Name of the owner, for messages.

    Raises:
        ConfigError: names what failed; errors of LMs and of ragbench pass.
    """
    try:
        with contained(name):
            yield
    except RagbenchError:
        raise
    except Exception as error:
        from dspy import LMError

        if is_ours(owner) or isinstance(error, LMError):
            raise
        raise ConfigError(f"{name} failed: {type(error).__name__}: {message_of(error)}") from error


def is_ours(owner: object) -> bool:
    """Return True if `owner` (an object, a class or a function) is defined by ragbench."""
    module = getattr(owner, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0] == "ragbench"


def message_of(error: BaseException) -> str:
    """Return the text of `error`; "no message" where its own `__str__` fails."""
    try:
        return str(error)
    except Exception:  # a stranger's __str__ may itself be what is broken
        return "no message"
