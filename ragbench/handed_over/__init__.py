"""The one door for what a person hands over in Python: it is named, identified and found again.

An object that is handed over is used as it is. A config holds its name, `LABEL#DIGEST`, in whose
digest its whole identity is, so that another object, or the same one changed, is another run.
"""

import hashlib
import inspect
import re
import uuid
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError
from ragbench.handed_over.identity import (
    HOOK as HOOK,
    MACHINERY as MACHINERY,
    identity_of as identity_of,
    parts_of as parts_of,
)
from ragbench.logs import get
from ragbench.user_code import distribution_of, source_digest

#: What the name of an object begins with that is no program: those are known by their class.
PREFIX = "object:"
_log = get(__name__)
_MARK = "#"
_DIGEST = re.compile(r"#[0-9a-f]{12}$")
#: The objects that this process was handed, by the name that stands for each in a config.
_objects: dict[str, Any] = {}
#: What external code gave, held so that nothing else gets its id, and its digest.
_digests: dict[tuple[str, str, int], tuple[Any, str]] = {}


def keep(value: Any, label: str, *, stands_for: str = "", beside: Any = None) -> str:
    """The name of `value` in configs of this process: the same for one that answers the same.

    `beside` is what is used with it and counts in its digest. Where a part of `value` cannot be
    read, `stands_for` is taken for that part. Without it the name is a new one each time, and a
    warning says so.
    """
    identity = identity_of(value)
    also = "" if beside is None else identity_of(beside).digest
    if not identity.unread:
        stands_for = ""
    elif not stands_for:
        _log.warning(
            "%s: %s cannot be read, so that no earlier run is known to be of the same %s: this is "
            "a new run; give name=... or out=FOLDER to say which run it is",
            label.removeprefix(PREFIX), ", ".join(identity.unread[:3]), type(value).__name__,
        )  # fmt: skip
        stands_for = uuid.uuid4().hex
    text = f"{identity.digest} {also} {stands_for}"
    name = f"{label}{_MARK}{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    _objects[name] = value
    return name


def digest_of_code(spec: str, value: Any) -> str:
    """What tells `value` from others, which the code that `spec` names gave: all of that code.

    Its state counts as it was when this process first asked. What cannot be read of that was made
    by the user's own files when they were imported, and those are hashed.
    """
    if inspect.isclass(value) or inspect.isfunction(value):
        kind = value
    else:
        kind = type(value)
    file = inspect.getfile(kind)
    if distribution_of(file):
        source = ""
    else:
        source = source_digest(Path(file))
    key = (spec, source, id(value))  # a file that is imported anew gives another
    if key not in _digests:
        text = f"{source} {identity_of(value).digest}"
        _digests[key] = (value, hashlib.sha256(text.encode()).hexdigest()[:16])
    return _digests[key][1]


def is_kept(name: str) -> bool:
    """Whether `name` is that of an object which this process was handed."""
    return name in _objects


def find(name: str) -> Any:
    """The object called `name`.

    Raises:
        ConfigError: this process was not handed it.
    """
    if name not in _objects:
        raise ConfigError(
            f"{name} was handed over as an object and cannot be carried to another process or "
            "read from a file; give a name or FILE.py:NAME"
        )
    return _objects[name]


def label_of(name: str) -> str:
    """The name of an object without its digest; any other name as it is."""
    return _DIGEST.sub("", name)


def digest_of(name: str) -> str:
    """The digest in the name of an object; "" where `name` is none."""
    return name.removeprefix(label_of(name)).removeprefix(_MARK)
