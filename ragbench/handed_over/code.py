"""What a function of the user's own names: globals, imports, variables of the environment."""

import dis
import importlib.util
import inspect
import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

#: Builtins whose outcome no reading of the code can tell.
UNREADABLE = frozenset({"eval", "exec", "globals", "__import__", "import_module"})
#: Names by which code gets at what it does not name.
DYNAMIC = frozenset({"getattr", "vars", "__dict__"})
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|AUTH|COOKIE", re.IGNORECASE)


@dataclass
class Names:
    """The names in a code object and in those within it."""

    all: set[str] = field(default_factory=set)
    #: Loaded as globals or builtins.
    loaded: set[str] = field(default_factory=set)
    #: Modules that it imports: how many folders up, and the dotted name.
    imports: set[tuple[int, str]] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


@cache
def names_of(code: CodeType) -> Names:
    """The names in `code`."""
    collected = Names()
    todo = [code]
    while todo:
        block = todo.pop()
        collected.all.update(block.co_names)
        level: Any = 0
        before: Any = 0
        for step in dis.get_instructions(block):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                collected.loaded.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                collected.imports.add((level if isinstance(level, int) else 0, step.argval))
            level = before
            before = step.argval
        for value in block.co_consts:
            if isinstance(value, CodeType):
                todo.append(value)
            elif isinstance(value, str):
                collected.texts.add(value)
    return collected


def environment_of(names: Names) -> dict[str, str]:
    """The variables of the environment that code with these `names` reads, but for keys."""
    if not names.all & {"environ", "getenv"}:
        return {}
    variables = {}
    for name in sorted(names.texts & os.environ.keys()):
        if not SECRET.search(name):
            variables[name] = os.environ[name]
    return variables


def imported_modules(function: FunctionType, names: Names) -> list[str]:
    """Absolute names of the modules that `function` imports when it is called."""
    package = str(function.__globals__.get("__package__") or "")
    modules: list[str] = []
    for level, name in sorted(names.imports):
        try:
            modules.append(importlib.util.resolve_name("." * level + name, package or None))
        except (ImportError, ValueError):  # which the call itself will say
            modules.append(name)
    return modules


def source_of(value: Any) -> str:
    """The text of a class or function, comments included: DSPy shows it to models. "" without."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""


@cache
def content_of(file: str) -> bytes:
    """The bytes of `file` when it was first asked for; none where it cannot be read."""
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""
