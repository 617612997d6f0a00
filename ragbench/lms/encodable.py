"""Text that can be written down: JSON may say half of a surrogate pair, which is no character."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """`value` with `?` for every lone surrogate, in texts, lists and mappings alike.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(inner) for inner in value)
    return value
