"""Names that tell runs of one program apart, by the settings that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragbench.errors import RagbenchError
from ragbench.experiments.store import RunCard

#: Settings that are named at the most where runs of one name differ.
SETTINGS = 4
#: Fields of an identity that the card has in another form.
_SHOWN = frozenset({"k", "lm", "api_base", "dataset"})
_HASH = re.compile(r"(?:\w+:)?[0-9a-f]{16,}")


def told_apart(cards: Sequence[RunCard], names: Sequence[str]) -> list[str]:
    """`names`, with the settings that differ where runs of one name are of different settings.

    A setting that is a hash stands as what was given for it, a compiled program as its seed.
    """
    leaves = [settings_of(card) for card in cards]
    labels = []
    for card, mine, name in zip(cards, leaves, names, strict=True):
        like = [theirs for theirs, other in zip(leaves, names, strict=True) if other == name]
        differing = [key for key in mine if any(mine[key] != each.get(key) for each in like)]
        if "retriever" in differing:  # another one has other settings
            differing = [key for key in differing if not key.startswith("retriever.")]
        words = [_setting(card, key, mine[key]) for key in differing]
        labels.append(", ".join([name, *list(filter(None, words))[:SETTINGS]]))
    return labels


def _setting(card: RunCard, key: str, value: Any) -> str:
    """A setting in words; empty where there are none for it."""
    if value in (None, "", False):
        return ""
    if not _HASH.fullmatch(str(value)):
        return f"{key}={value}"
    given = (card.config or {}).get(key)
    if key == "compiled":
        return _seed_of(given)
    return f"{key}={Path(given).name}" if isinstance(given, str) else ""


def _seed_of(folder: object) -> str:
    """The seed that the program in `folder` was compiled with, else the folder's name."""
    from ragbench.experiments.artifacts import read_sidecar

    if not isinstance(folder, str):
        return ""
    try:
        return f"seed {read_sidecar(Path(folder)).optimizer['seed']}"
    except (RagbenchError, KeyError):
        return Path(folder).name


def settings_of(card: RunCard) -> dict[str, Any]:
    """Setting -> value of all that can change a record, knobs first."""
    settings_by_name = {**card.knobs, "data": card.data.name, "LM": card.model}
    settings = card.identity.get("retriever_set") or {}
    settings_by_name |= {
        name: value
        for name, value in card.identity.items()
        if name not in _SHOWN and not isinstance(value, dict)
    }
    settings_by_name |= {f"retriever.{name}": value for name, value in settings.items()}
    return settings_by_name
