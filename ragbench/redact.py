"""Takes keys, and what is no character, out of text that is about to be kept or shown."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

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
#: A shorter value is no key, and would be found in ordinary words.
_SHORTEST = 8


#: Variables that a person has named as holding a secret.
_hidden: set[str] = set()


def is_secret(name: str) -> bool:
    """Returns whether the environment variable `name` holds a key, by its name or by `hide`."""
    return name.upper().endswith(_SECRET) or name in _hidden


def hide(name: str) -> None:
    """From now on treat the environment variable `name` as one that holds a key."""
    _hidden.add(name)
    _secrets.cache_clear()
    _parts_of_secrets.cache_clear()


def redact(text: str) -> str:
    """Returns `text` without the values of keys in the environment and key-like strings."""
    text = without_keys(text)
    if any(beginning in text for beginning in _BEGINNINGS):
        return _KEY_LIKE.sub("[key]", text)
    return text


def may_hold_key(text: str) -> bool:
    """Returns whether `redact` may change `text`, or the value that it is the JSON of."""
    secrets = _parts_of_secrets(frozenset(_environment().items()))
    return any(secret in text for secret in (*_BEGINNINGS, *secrets))


def without_keys(text: str) -> str:
    """Returns `text` without the value of any key in the environment, as it is or escaped."""
    for name, value in _secrets(frozenset(_environment().items())):
        if value in text:
            text = text.replace(value, f"[{name}]")
    return text


def _environment() -> Mapping[Any, Any]:
    # To decode all variables takes many times as long as to look at what they are kept in, which
    # changes with every key that is set later.
    variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    return variables


@lru_cache(maxsize=1)
def _secrets(environment: frozenset[Any]) -> list[tuple[str, str]]:
    """Returns names and values of the keys in the environment as it is now, the longest first.

    A value is there as it is, as JSON writes it, and as addresses do.
    """
    forms = [
        (name, form)
        for name, value in os.environ.items()
        if is_secret(name) and len(value) >= _SHORTEST
        for form in {value, json.dumps(value)[1:-1], quote(value), quote(value, safe=""),
                     quote_plus(value)}
    ]  # fmt: skip
    # The longest first: one key may be the beginning of another.
    return sorted(forms, key=lambda pair: (-len(pair[1]), pair[0]))


@lru_cache(maxsize=1)
def _parts_of_secrets(environment: frozenset[Any]) -> frozenset[str]:
    """Of each key the longest part that JSON writes as it is, however often it is nested."""
    pieces = (re.split(r"[^ !#-\[\]-~]", value) for _, value in _secrets(environment))
    return frozenset(max(group, key=len) for group in pieces)


def each_text(change: Callable[[str], str], value: Any) -> Any:
    """`value` with `change` made of every text in it: in lists, mappings and dataclasses alike.

    Raises:
        RecursionError: it is nested too deeply.
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
    """`value` with `?` for every lone surrogate in it; raises RecursionError as `each_text`.

    JSON may say half of a surrogate pair, which is no character and cannot be written down.
    """
    return each_text(lambda text: text.encode("utf-8", "replace").decode(), value)
