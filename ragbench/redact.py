"""Values as they are stored or printed: as JSON, without keys and invalid characters, hashed."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any
from urllib.parse import quote, quote_plus

from pydantic_core import to_jsonable_python

_KEY_LIKE = re.compile(
    r"\b(?:(?:sk|gsk|xai|hf|pk|rk)[-_]|AIza|(?:key|Bearer|token)[-_ =:]{1,2})[A-Za-z0-9_\-.]{12,}"
)
#: Texts without any of these match nothing: a tenth of the time to find out, for most texts.
_BEGINNINGS = (
    "AIza",
    *(f"{name}{mark}" for name in ("sk", "xai", "hf", "pk", "rk") for mark in "-_"),
    *(f"{word}{mark}" for word in ("key", "Bearer", "token") for mark in "-_ =:"),
)
_SECRET = ("_KEY", "APIKEY", "_TOKEN", "_SECRET", "_PASSWORD")
#: Minimum length of a key. A shorter value would match ordinary words.
_SHORTEST = 8


#: Variables that the user named as secrets.
_hidden: set[str] = set()


def is_secret(name: str) -> bool:
    """Return True if the environment variable `name` holds a key, by name or by `hide`."""
    return name.upper().endswith(_SECRET) or name in _hidden


def hide(name: str) -> None:
    """Treat the environment variable `name` as a key from now on."""
    global _keys
    _hidden.add(name)
    _keys = _Keys()


def redact(text: str) -> str:
    """Remove the values of keys in the environment and key-like strings from `text`."""
    text = without_keys(text)
    if any(beginning in text for beginning in _BEGINNINGS):
        return _KEY_LIKE.sub("[key]", text)
    return text


def may_hold_key(text: str) -> bool:
    """Return True if `redact` may change `text`, or the value that it encodes as JSON."""
    return any(secret in text for secret in (*_BEGINNINGS, *_current_keys().parts))


def without_keys(text: str) -> str:
    """Remove the value of every key in the environment from `text`, plain or escaped."""
    for name, value in _current_keys().forms:
        if value in text:
            text = text.replace(value, f"[{name}]")
    return text


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys in an environment.

    Attributes:
        environment: The environment, as `os.environ` holds it.
        forms: Names and values, longest first: one key may be the beginning of another. A value
            occurs plain, as JSON escapes it, and as URLs escape it.
        parts: The longest part of each value that JSON never escapes, however nested.
    """

    environment: Mapping[Any, Any] = field(default_factory=dict)
    forms: Sequence[tuple[str, str]] = ()
    parts: frozenset[str] = frozenset()


_keys = _Keys()


def _current_keys() -> _Keys:
    global _keys
    # To decode all variables takes many times as long as to compare what they are kept in.
    environment = getattr(os.environ, "_data", os.environ)
    if environment != _keys.environment:
        environment = dict(environment)
        forms = []
        for name, value in os.environ.items():
            if is_secret(name) and len(value) >= _SHORTEST:
                escaped = (json.dumps(value)[1:-1], quote(value), quote(value, safe=""))
                for form in {value, *escaped, quote_plus(value)}:
                    forms.append((name, form))
        forms.sort(key=lambda pair: (-len(pair[1]), pair[0]))
        pieces = (re.split(r"[^ !#-\[\]-~]", value) for _, value in forms)
        parts = frozenset(max(group, key=len) for group in pieces)
        _keys = _Keys(environment, forms, parts)
    return _keys


def each_text(change: Callable[[str], str], value: Any) -> Any:
    """Apply `change` to every text in `value`, inside lists, mappings and dataclasses.

    Args:
        value: JSON-like value.
        change: Function of one text.

    Raises:
        RecursionError: `value` is nested too deeply.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {each_text(change, k): each_text(change, inner) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [each_text(change, inner) for inner in value]
        if isinstance(value, list):
            return items
        return tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        values = {entry.name: getattr(value, entry.name) for entry in fields(value) if entry.init}
        return replace(value, **each_text(change, values))
    return value


def encodable(value: Any) -> Any:
    """Replace every lone surrogate in `value` by `?`; raise RecursionError like `each_text`.

    JSON may contain half of a surrogate pair, which is not a character and cannot be encoded.
    """
    return each_text(lambda text: text.encode("utf-8", "replace").decode(), value)


def jsonable(value: Any) -> Any:
    """Convert `value` for JSON: objects by their fields or as text, bytes as base 64."""
    if isinstance(value, set | frozenset):  # Its order differs between processes.
        value = sorted(value, key=str)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(jsonable, value))
    return to_jsonable_python(value, fallback=str, bytes_mode="base64")


def digest_of(*values: object) -> str:
    """Return a hash of a row's values, to detect changes. Text equals its UTF-8 bytes."""
    digest = hashlib.sha256()
    for value in values:
        if not isinstance(value, str | bytes):
            value = repr(value)
        if isinstance(value, str):
            value = value.encode()
        digest.update(value + b"\x1f")
    return digest.hexdigest()[:32]
