"""Names that tell runs of one program apart, by the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.experiments.records import RunCard

#: Settings that are named at the most where runs of one name differ.
SETTINGS = 4
#: Fields of an identity that the card has in another form.
_SHOWN = frozenset({"k", "lm", "api_base", "dataset"})


def told_apart(cards: Sequence[RunCard], names: Sequence[str]) -> list[str]:
    """`names`, with the settings that differ where runs of one name are of different settings."""
    leaves = [settings_of(card) for card in cards]
    labels = []
    for mine, name in zip(leaves, names, strict=True):
        like = [theirs for theirs, other in zip(leaves, names, strict=True) if other == name]
        differing = [key for key in mine if any(mine[key] != each.get(key) for each in like)]
        if "retriever" in differing:  # another one has other settings
            differing = [key for key in differing if not key.startswith("retriever.")]
        labels.append(", ".join([name, *(f"{key}={mine[key]}" for key in differing[:SETTINGS])]))
    return labels


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
