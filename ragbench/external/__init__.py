"""Objects and code that a user provides: how they are named in a config, found and identified.

An object in memory has no identity unless the caller names it: without `name=` every call starts a
new run. Lists of examples, `dspy.LM` with JSON settings, and retrievers of the registry are
identified by content. Code that is given as `FILE.py:NAME` is identified by its files (`code`).
"""

import re
import uuid
from typing import Any

from ragbench.errors import ConfigError
from ragbench.external.code import (
    code_digest as code_digest,
    digest_of_texts as digest_of_texts,
    local_sources as local_sources,
)

#: Start of the name of an object that is not a program. Programs are named by their class.
PREFIX = "object:"
_NAME = re.compile(r"[\w][\w .+-]{0,79}")
_TAG = re.compile(r"#[^#:]*$")
#: Objects of this process, by the name that configs have for each.
_objects: dict[str, Any] = {}
#: Those of them that the caller named, and those that nothing identifies.
_named: set[str] = set()
_unnamed: set[str] = set()


def keep(value: Any, label: str, *, name: str = "", content: str = "") -> str:
    """Keep `value` for this process.

    Args:
        value: The object.
        label: Its class, or the model that it asks.
        name: The caller's word for the object. The same word continues the same runs.
        content: Hash of all that the object is, if that can be known.

    Returns:
        The name of the object in configs, `LABEL#TAG`: by its content, by the caller's word, or new
        at every call.

    Raises:
        ConfigError: `name` cannot be part of a folder's record.
    """
    if name and not _NAME.fullmatch(name):
        raise ConfigError(f"name={name!r} has other than letters, digits, blanks and . _ + -")
    key = f"{label}#{content[:12] or name or uuid.uuid4().hex[:12]}"
    if not content:
        (_named if name else _unnamed).add(key)
    _objects[key] = value
    return key


def is_kept(name: str) -> bool:
    """Return True if `name` is that of an object of this process."""
    return name in _objects


def is_unnamed(name: str) -> bool:
    """Return True if nothing says that the object `name` is the same as an earlier one."""
    return name in _unnamed


def is_named(name: str) -> bool:
    """Return True if the caller's word alone says that the object `name` is an earlier one."""
    return name in _named


def find(name: str) -> Any:
    """Return the object called `name`.

    Raises:
        ConfigError: no object of this process has the name.
    """
    if name not in _objects:
        raise ConfigError(
            f"{name} is an object of the Python process that made it, and cannot be carried to "
            "another process or read from a file; give a name or FILE.py:NAME"
        )
    return _objects[name]


def label_of(name: str) -> str:
    """Return the name of an object without its tag, and any other name unchanged."""
    return _TAG.sub("", name)


def tag_of(name: str) -> str:
    """Return the tag of an object's name; "" for any other name."""
    return name.removeprefix(label_of(name)).removeprefix("#")
