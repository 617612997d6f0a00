"""The options of a data set that depend on which data set it is, where they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragbench.data.base import DataSpec, Setting
from ragbench.data.hub import HUB
from ragbench.data.splits import parse_fractions
from ragbench.retrievers import View

_CHUNKED = frozenset({"arag", "graphrag_bench"})
_POOLED = frozenset({"beir", "documents"})
_OTHERS = frozenset({"2wikimultihopqa", "hotpotqa", "jsonl", "musique", "synthetic"})


def default_view(dataset: str) -> View:
    """The unit of retrieval of a data set where none is chosen."""
    return "chunk" if dataset in _CHUNKED else "paragraph"


def default_setting(dataset: str, view: View | None, *, has_corpus: bool) -> Setting:
    """What a question searches where nothing is chosen: pooled for chunks and a corpus file."""
    chunks = (view or default_view(dataset)) == "chunk"
    return "pooled" if chunks or has_corpus or dataset in _POOLED else "distractor"


def without_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The data options `given`, by flat name, without those that have the data set's default.

    Options of a data set that another package registers have no default that is known here. The
    default of `disjoint` is to share no passage where the data allow it; where they do not, asking
    for it is an error, so that "passages" written down comes to what is left out.

    Raises:
        ConfigError: fractions that are no three shares.
    """
    dataset, fractions = given["dataset"], given.get("fractions")
    shares = None if fractions is None else parse_fractions(fractions)
    defaults: dict[str, Any] = {
        "disjoint": "passages",
        "fractions": _written(DataSpec.fractions),
        "passage_tokens": DataSpec.passage_tokens,
    }
    if dataset in _CHUNKED | _POOLED | _OTHERS:
        has_corpus = given.get("corpus_file") is not None
        defaults["view"] = default_view(dataset)
        defaults["setting"] = default_setting(dataset, given.get("view"), has_corpus=has_corpus)
    if source := HUB.get(dataset):
        defaults["hub_repo"] = source.repo
        defaults["hub_config"] = next(iter(source.configs), None)
    if shares is not None:
        given = {**given, "fractions": _written(shares)}
    return {k: v for k, v in given.items() if k not in defaults or v != defaults[k]}


def _written(shares: tuple[float, ...]) -> str:
    return ",".join(f"{share:.15g}" for share in shares)
