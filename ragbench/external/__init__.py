"""User-provided objects and code: how configs name, find and identify them.

An object in memory has no identity unless the caller names it. Without `name=`, every call starts
a new run. Lists of examples, `dspy.LM` with JSON settings, and registered retrievers are
identified by content. Code given as `FILE.py:NAME` is identified by its files (`code`).
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
#: Objects of this process, by their name in configs.
_objects: dict[str, Any] = {}
#: Names of objects that the caller named, and of those that nothing identifies.
_named: set[str] = set()
_unnamed: set[str] = set()


def keep(value: Any, label: str, *, name: str = "", content: str = "") -> str:
    """Register `value` for this process.

    Args:
        value: The object.
        label: Class of the object, or the model that it calls.
        name: The caller's name of the object. The same name continues the same runs.
        content: Hash of the whole object. Empty if unknown.

    Returns:
        The name of the object in configs, `LABEL#TAG`. The tag comes from the content or from
        `name`.
        Without both, it is new for every call.

    Raises:
        ConfigError: `name` has characters that a record of a folder cannot have.
    """
    if name and not _NAME.fullmatch(name):
        raise ConfigError(f"name={name!r} may only have letters, digits, blanks and . _ + -")
    key = f"{label}#{content[:12] or name or uuid.uuid4().hex[:12]}"
    if not content:
        (_named if name else _unnamed).add(key)
    _objects[key] = value
    return key


def is_kept(name: str) -> bool:
    """Return True if `name` is the name of an object of this process."""
    return name in _objects


def is_unnamed(name: str) -> bool:
    """Return True if nothing identifies the object `name` across calls."""
    return name in _unnamed


def is_named(name: str) -> bool:
    """Return True if only the caller's name identifies the object `name`."""
    return name in _named


def find(name: str) -> Any:
    """Return the object called `name`.

    Raises:
        ConfigError: No object of this process has this name.
    """
    if name not in _objects:
        raise ConfigError(
            f"{name} is an in-memory object of another Python process; give a name or FILE.py:NAME"
        )
    return _objects[name]


def label_of(name: str) -> str:
    """Return an object's name without its tag, or any other name unchanged."""
    return _TAG.sub("", name)


def tag_of(name: str) -> str:
    """Return the tag of an object's name, or an empty text for any other name."""
    return name.removeprefix(label_of(name)).removeprefix("#")
