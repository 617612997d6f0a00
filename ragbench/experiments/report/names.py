"""Names of runs: the program and the settings that distinguish it from the other runs.

Names are short. An LM has no provider or address. If most runs share an LM or retriever, only the
others name theirs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragbench.experiments.report.table import counted
from ragbench.experiments.runs.settings import lm_name, settings_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard

#: Maximum number of settings in a name.
SETTINGS = 4
#: Settings that are named if runs differ in them, even runs of different programs.
_ALWAYS = ("LM", "retriever")
#: Settings whose value is clear without their name.
_BARE = ("LM", "retriever", "data")
_HASH = re.compile(r"(?:\w+:)?[0-9a-f]{16,}")


def label_runs(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return a name for each run: its program and the settings that distinguish it.

    The settings are those that differ between runs of that program. If they are equal, the name
    ends with the folder.
    """
    cards = [evaluation.card for evaluation in evaluations]
    settings = list(map(settings_of, cards))
    systems = list(map(name_of_system, cards))
    usual = {key: usual_value(settings, key) for key in _ALWAYS}
    aliases = lm_aliases(cards)
    labels = []
    for card, own, name in zip(cards, settings, systems, strict=True):
        alike = []
        for peer, called in zip(settings, systems, strict=True):
            if called == name:
                alike.append(peer)
        words = []
        for key in _differing(own, alike, usual):
            value = aliases[own[key]] if key == "LM" else own[key]
            word = _setting(card, key, value)
            if word:
                words.append(word)
        labels.append(", ".join([name, *words[:SETTINGS]]))
    twice = {label for label, n in Counter(labels).items() if n > 1}
    distinct = []
    for label, evaluation in zip(labels, evaluations, strict=True):
        distinct.append(f"{label}, {evaluation.folder.name}" if label in twice else label)
    return distinct


def usual_value(settings: Sequence[Mapping[str, Any]], key: str) -> Any:
    """Return the value of a setting that more than half of the runs have, or None.

    Args:
        settings: Settings of each run.
        key: Name of the setting.
    """
    counts: Counter[str] = Counter()
    for row in settings:
        if key in row:
            counts[str(row[key])] += 1
    for value, n in counts.most_common(1):
        if 2 * n > len(settings):
            return value
    return None


def lm_aliases(cards: Sequence[RunCard]) -> dict[str, str]:
    """Return the short name of each LM, with the provider only if names collide."""
    models = dict.fromkeys(lm_name(card.model) for card in cards)
    short = {model: model.rpartition("/")[2] or model for model in models}
    counts = Counter(short.values())
    return {model: alias if counts[alias] == 1 else model for model, alias in short.items()}


def _differing(
    own: Mapping[str, Any], alike: Sequence[Mapping[str, Any]], usual: Mapping[str, Any]
) -> list[str]:
    """Return the settings to name of a run; `alike` has those of runs of its name."""
    keys = []
    for key, value in own.items():
        if key in usual:
            named = str(value) != usual[key]
        else:
            named = any(value != peer.get(key) for peer in alike)
        if named:
            keys.append(key)
    if "retriever" in keys:  # Other retrievers have other settings.
        keys = [key for key in keys if not key.startswith("retriever.")]
    return keys


def _setting(card: RunCard, key: str, value: Any) -> str:
    """Return a setting as text; empty if it has no readable value.

    A hash is replaced by the file name in the run's config.
    """
    if value in (None, "", False):
        return ""
    if not _HASH.fullmatch(str(value)):
        if key in _BARE:
            return str(value)
        return f"{key}={value}"
    path = (card.config or {}).get(key)
    if not isinstance(path, str):
        return ""
    if key != "compiled":
        return f"{key}={Path(path).name}"
    return Path(path).name  # The path is never opened: a card may name any file.


def name_of_system(card: RunCard) -> str:
    """Return the program, its variant, its changed knobs, and later modifications.

    Runs with the same name have the same knobs.
    """
    variant = card.knobs.get("variant", "")
    identity = card.identity
    votes = identity.get("votes", 1)
    words = [] if variant in ("", "default") else [str(variant)]
    for knob, value in card.changed_knobs.items():
        words.append(f"{knob}={value}")
    return (
        card.system
        + (f" ({', '.join(words)})" if words else "")
        + (" compiled" if identity.get("compiled") else "")
        + (", form repaired" if identity.get("form") else "")
        + (f", {votes} votes" if votes > 1 else "")
    )


def in_common(evaluations: Sequence[Evaluation], questions: int) -> str:
    """Return the shared settings, such as "hotpotqa, 100 questions, distractor · m-small · bm25".

    Args:
        evaluations: The runs.
        questions: Number of their questions.
    """
    cards = [evaluation.card for evaluation in evaluations]
    settings = list(map(settings_of, cards))
    aliases = lm_aliases(cards)
    data = {card.data.name for card in cards}
    words = [counted(questions, "question")]
    if len(data) == 1:
        words = [*data, *words]
    kinds = {card.data.setting for card in cards}
    if len(kinds) == 1:
        words += filter(None, kinds)
    facts = [", ".join(words)]
    for key in _ALWAYS:
        value = usual_value(settings, key)
        if value not in (None, "", "None"):
            facts.append(aliases.get(value, value) if key == "LM" else value)
    return " · ".join(facts)


#: Maximum number of characters of a short name.
_SHORT = 28


def short_names(full_names: Sequence[str]) -> list[str]:
    """Shorten names to at most 28 characters, and keep them distinct if possible.

    A name that is too long keeps its beginning. If another name has the same beginning, it keeps
    its beginning and its end.
    """
    beginnings = Counter(name[: _SHORT - 2] for name in full_names)
    short = []
    for name in full_names:
        if len(name) <= _SHORT:
            short.append(name)
        elif beginnings[name[: _SHORT - 2]] == 1:
            short.append(f"{name[: _SHORT - 2].rstrip(' ,(-_')} …")
        else:
            half = (_SHORT - 3) // 2
            short.append(f"{name[:half].rstrip()} … {name[-half:].lstrip()}")
    return short
