"""Ranked lists of several searches, made into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ragbench.retrievers import Passage, reciprocal_ranks

Fusion = Literal["rrf", "max_score"]

#: The constant of reciprocal rank fusion (Cormack et al. 2009).
RRF_K = 60


def fuse(lists: Sequence[Sequence[Passage]], *, fusion: Fusion) -> list[Passage]:
    """The union of ranked `lists`, best first; equals stand in the order first seen.

    `rrf` scores a passage by the sum of 1 / (60 + rank) over the lists, `max_score` by its best
    score, which compares queries fairly only where scores are on one scale (cosine, not BM25).
    """
    scores: dict[str, float] = {}
    by_pid: dict[str, Passage] = {}
    for passages in lists:
        ranks = reciprocal_ranks(passages, rrf_k=RRF_K)
        for passage in passages:
            pid = passage.pid
            by_pid.setdefault(pid, passage)
            if fusion == "rrf":
                scores[pid] = scores.get(pid, 0.0) + ranks[pid]
            else:
                scores[pid] = max(scores.get(pid, passage.score), passage.score)
    best = sorted(by_pid.values(), key=lambda p: -scores[p.pid])  # stable
    return [passage.scored(scores[passage.pid]) for passage in best]
