"""Settings of a run that can change a record, and the uncompiled run of each compiled run."""

from collections.abc import Sequence
from typing import Any

from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard

#: Fields of an identity that the card has in another form.
_SHOWN = frozenset({"k", "lm", "api_base", "dataset"})
#: Settings in which a compiled program differs from what it was compiled from.
_OF_COMPILING = frozenset({"compiled", "compiled_files"})


def lm_name(model: str) -> str:
    """Return the name of a model without its address: one model on nine servers is one LM."""
    return model.partition("@")[0]


def settings_of(card: RunCard) -> dict[str, Any]:
    """Return the value of each setting that can change a record, knobs first."""
    settings = {**card.knobs, "data": card.data.name, "LM": lm_name(card.model)}
    for name, value in card.identity.items():
        if name not in _SHOWN and not isinstance(value, dict):
            settings[name] = value
    for name, value in (card.identity.get("retriever_set") or {}).items():
        settings[f"retriever.{name}"] = value
    return settings


def plain_settings(card: RunCard) -> dict[str, Any]:
    """Return `settings_of` without the settings that compiling added."""
    settings = settings_of(card)
    for name in _OF_COMPILING:
        settings.pop(name, None)
    return settings


def compiled_from(runs: Sequence[Evaluation]) -> dict[int, int]:
    """Map the place of each compiled run to that of its uncompiled run.

    The uncompiled run has the same settings, data and LM. Compiled runs without one are omitted.
    """
    befores = {}
    for at, run in enumerate(runs):
        if not run.card.identity.get("compiled"):
            continue
        for place, candidate in enumerate(runs):
            same_data = candidate.card.data.digest == run.card.data.digest
            plain = not candidate.card.identity.get("compiled")
            if plain and same_data and plain_settings(candidate.card) == plain_settings(run.card):
                befores[at] = place
                break
    return befores
