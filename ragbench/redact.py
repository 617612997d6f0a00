"""Takes keys out of text that is about to be kept or shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_KEY_LIKE = re.compile(
    r"\b(?:(?:sk|gsk|xai|hf|pk|rk)[-_]|AIza|(?:key|Bearer|token)[-_ =:]{1,2})[A-Za-z0-9_\-.]{12,}"
)
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
#: A shorter value is no key, and would be found in ordinary words.
_SHORTEST = 8


def redact(text: str) -> str:
    """`text` without the value of any key in the environment and without key-like strings."""
    for name, value in _secrets():
        text = text.replace(value, f"[{name}]")
    return _KEY_LIKE.sub("[key]", text)


def _secrets() -> Iterator[tuple[str, str]]:
    # The longest first: one key may be the beginning of another.
    named = (
        (name, value)
        for name, value in os.environ.items()
        if name.upper().endswith(_SECRET) and len(value) >= _SHORTEST
    )
    yield from sorted(named, key=lambda pair: (-len(pair[1]), pair[0]))
