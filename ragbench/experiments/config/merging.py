"""What is given over what a config file sets: mappings merged, and what one value rules out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What names questions, in the order in which they are looked at.
OWN_QUESTIONS = ("data_file", "test_file", "train_file", "val_file", "hub_repo")


def detected(data: Mapping[str, Any]) -> str:
    """The data set in whose layout the questions are; `jsonl` is that of one's own."""
    from ragbench.data import detect_layout

    paths = (Path(data[name]) for name in OWN_QUESTIONS[:-1] if data.get(name))
    layouts = (detect_layout(path) for path in paths)
    return next((layout.dataset for layout in layouts if layout), "jsonl")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` over `base`, both nested, without what it replaces; mappings are merged key by key."""
    merged = _merged(base, over)
    before, given = base.get("data") or {}, over.get("data") or {}
    if isinstance(given, Mapping) and "hub" not in given:
        other = given.get("dataset", before.get("dataset")) != before.get("dataset")
        if given.get("data_file") or other:
            merged.get("data", {}).pop("hub", None)
    old, new = base.get("retriever") or {}, over.get("retriever") or {}
    if new.get("name", old.get("name")) != old.get("name") and "settings" not in new:
        merged["retriever"].pop("settings", None)
    elif new.get("name", old.get("name")) != old.get("name"):
        merged["retriever"]["settings"] = new["settings"]
    return merged


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
