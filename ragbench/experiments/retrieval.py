"""Evaluate retrievers without an LM: each question of a data set is one search."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from ragbench.data import Dataset
from ragbench.data.readers import read_json
from ragbench.data.text_files import read_text
from ragbench.errors import DataError
from ragbench.metrics import all_recall, ndcg, recall, reciprocal_rank
from ragbench.passages import Corpus
from ragbench.retrievers import IndexStore, Progress, make_retriever
from ragbench.retrievers.embedders import make_embedder

#: Column -> measure of a ranking cut at k.
_MEASURES = {"recall": recall, "all_recall": all_recall, "mrr": reciprocal_rank, "ndcg": ndcg}


def gold_of(examples: Sequence[dspy.Example]) -> dict[str, list[str]]:
    """Map each question id with known gold passages to their pids."""
    gold = {example.qid: list(example.gold_pids) for example in examples if example.gold_pids}
    if not gold:
        raise DataError("no question of this data set and view has known gold passages")
    return gold


def measure(
    spec: str,
    dataset: Dataset,
    questions: Mapping[str, str],
    gold: Mapping[str, Sequence[str]],
    *,
    ks: Sequence[int],
    settings: Mapping[str, Any],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Evaluate a retriever on the gold passages of questions.

    Args:
        spec: Spec of the retriever.
        dataset: Data set.
        questions: Text of each question by id.
        gold: Pids of the gold passages of each question.
        ks: Cut-offs.
        settings: Settings of the retriever.
        progress: Function that receives the progress of the index.

    Returns:
        JSON-ready figures: `scores` are means in [0, 1] by `measure@k`. `found` lists pids by
        question, best first. `index_s` is the build time of the index in seconds, now or when it
        was stored. `index_bytes` is None if nothing is stored.
    """
    make_embedder.cache_clear()  # no query embedded by the one before is answered from memory
    start = time.perf_counter()
    retriever_built = make_retriever(spec, dataset.corpus, setting=dataset.setting, **settings)
    retriever_built.build(IndexStore(), progress)
    ready_s = time.perf_counter() - start
    ranked: dict[str, list[str]] = {}
    times: list[float] = []
    for number, (qid, question) in enumerate(questions.items()):
        retriever = retriever_built.for_question(question, qid)
        if not number:  # not timed: the first search loads code and maps memory
            retriever.search("warm up", k=1)
        began = time.perf_counter()
        hits = retriever.search(question, k=max(ks))
        times.append(time.perf_counter() - began)
        ranked[qid] = [hit.pid for hit in hits]
    card = retriever_built.card()
    seconds = _facts(card, "build_s")
    sizes = _facts(card, "bytes")
    return {
        "retriever": spec,
        "scores": _scores(ranked, gold, ks),
        "p50_ms": 1000 * float(np.percentile(times, 50)),
        "p95_ms": 1000 * float(np.percentile(times, 95)),
        "index_s": float(sum(seconds)) if seconds else ready_s,
        "index_bytes": sum(sizes) if sizes else None,
        "card": card,
        "found": ranked,
        "latency_s": times,
    }


def measure_run(
    path: Path,
    corpus: Corpus,
    gold: Mapping[str, Sequence[str]],
    *,
    ks: Sequence[int],
) -> dict[str, Any]:
    """Evaluate the rankings in another system's file like `measure`; times are unknown.

    The file is TREC's (columns query, Q0, passage, rank, score, name), sorted by score and then by
    passage like trec_eval does, or JSON of scores by passage by query. A missing question counts as
    an empty result.

    Args:
        path: File of rankings.
        corpus: Passages of the data set.
        gold: Pids of the gold passages of each question.
        ks: Cut-offs.

    Raises:
        DataError: The file is unreadable, or names no question or passage of the data.
    """
    by_qid = read_run(path)
    ranked = {qid: by_qid.get(qid, []) for qid in gold}
    if not any(ranked.values()):
        raise DataError(
            f"{path}: ranks nothing for the {len(gold)} questions with known gold passages; its "
            f"ids, such as {next(iter(by_qid), '')[:60]!r}, must be theirs, such as "
            f"{next(iter(gold))!r}"
        )
    pids_ranked = list(chain.from_iterable(ranked.values()))
    if corpus.positions.keys().isdisjoint(pids_ranked):
        raise DataError(
            f"{path}: ranks no passage of the corpus; its ids, such as {pids_ranked[0][:60]!r}, "
            f"must be the corpus's, such as {corpus[0].pid!r}"
        )
    return {
        "retriever": path.name,
        "scores": _scores(ranked, gold, ks),
        "p50_ms": None, "p95_ms": None, "index_s": None, "index_bytes": None,
        "card": {"run": str(path), "questions": sum(map(bool, ranked.values()))},
        "found": ranked,
        "latency_s": [],
    }  # fmt: skip


def read_run(path: Path) -> dict[str, list[str]]:
    """Return the pids that a file ranks, best first, by query id.

    Raises:
        DataError: The file is unreadable.
    """
    scores: dict[str, dict[str, float]] = {}
    if path.suffix.lower() == ".json":
        content = read_json(path)
        if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
            raise DataError(f"{path}: must map queries to scores by passage, as BEIR does")
        for qid, by_passage in content.items():
            for pid, score in by_passage.items():
                scores.setdefault(qid, {})[pid] = _score(path, qid, score)
    else:
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            columns = line.split()
            if not columns:
                continue
            if len(columns) not in (5, 6):
                raise DataError(
                    f"{path}: line {number}: has {len(columns)} columns, not those of a TREC run: "
                    "query, Q0, passage, rank, score and name"
                )
            score = _score(path, f"line {number}", columns[4])
            scores.setdefault(columns[0], {})[columns[2]] = score
    rankings: dict[str, list[str]] = {}
    for qid, by_passage in scores.items():
        order = sorted(by_passage.items(), key=lambda item: (item[1], item[0]), reverse=True)
        rankings[qid] = [pid for pid, _ in order]
    return rankings


def _score(path: Path, where: str, text: Any) -> float:
    score = math.nan
    with suppress(TypeError, ValueError):
        score = float(text)
    if math.isnan(score):
        raise DataError(f"{path}: {where}: the score {str(text)[:40]!r} is not a number")
    return score


def _scores(
    ranked: Mapping[str, Sequence[str]], gold: Mapping[str, Sequence[str]], ks: Sequence[int]
) -> dict[str, float]:
    """Return the mean of each measure at each depth, by `measure@k`."""
    scores: dict[str, float] = {}
    for (name, score), k in product(_MEASURES.items(), ks):
        values = [score(ranked[qid], gold[qid], k) for qid in ranked]
        scores[f"{name}@{k}"] = float(np.mean(values))
    return scores


def _facts(card: Mapping[str, Any], key: str) -> list[Any]:
    """Return the values of `key` in the index entries of a card and of its parts."""
    entry = card.get("index", {})
    facts = [entry[key]] if key in entry else []
    for component in card.get("parts", ()):
        facts += _facts(component, key)
    return facts
