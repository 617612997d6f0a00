"""What the page knows of each question: a row for the list, and the steps of each run to open.

Rows are small and read when the page opens. Steps are packed in compressed pieces of a few dozen
questions, so that opening a question unpacks one piece.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragbench.experiments.records import read_prompts
from ragbench.experiments.report.page.board import Board, RunView
from ragbench.metrics import GROUPINGS, cause_of, get_metric
from ragbench.record import Record, ShownPassage

#: Questions in one compressed piece.
PIECE = 40

Json = dict[str, Any]


def rows(board: Board) -> list[Json]:
    """One row per question: what the list shows and filters by, with a cell for each run."""
    return [
        {
            "qid": record.qid,
            "question": record.question,
            "gold": record.answers[0],
            "type": record.qtype,
            "hops": record.hops,
            "kind": str(GROUPINGS["answer_kind"](record)),
            "cells": [_cell(run, run.records.get(record.qid)) for run in board.runs],
        }
        for record in board.questions
    ]


def pieces(board: Board) -> Iterator[str]:
    """The steps of all runs by question, `PIECE` questions at a time: JSON, gzip, base64."""
    questions = board.questions
    for start in range(0, len(questions), PIECE):
        piece = _piece(board, questions[start : start + PIECE])
        packed = gzip.compress(json.dumps(piece, default=str).encode("utf-8", "replace"), mtime=0)
        yield base64.b64encode(packed).decode()


def _piece(board: Board, questions: Sequence[Record]) -> Json:
    passages: Json = {}
    traces: Json = {}
    texts: dict[str, str] = {}
    for run in board.runs:
        records = [run.records[q.qid] for q in questions if q.qid in run.records]
        calls = [call for record in records for call in record.ledger.calls]
        wanted = {name for call in calls for name in (*call.prompt, call.reply)}
        if wanted - {""}:
            texts |= read_prompts(run.evaluation.folder, wanted)
    for question in questions:
        shown = []
        for run in board.runs:
            record = run.records.get(question.qid)
            shown.append(trace(record) if record else None)
            if record:
                for passage in record.passages:
                    passages.setdefault(passage.pid, _passage(passage, record))
        traces[question.qid] = shown
    return {"passages": passages, "traces": traces, "texts": texts}


def trace(record: Record) -> Json:
    """One record as the page draws it."""
    return {
        "answer": record.answer,
        "answers": record.answers,
        "stop": record.stop_reason,
        "failure": record.failure and f"{record.failure.name}: {record.failure.message}",
        "gold": record.gold_pids,
        "steps": [
            {
                "action": step.action, "input": step.input, "thought": step.thought,
                "observation": step.observation, "pids": list(step.pids),
                "notes": dict(step.notes), "calls": list(step.calls),
            }
            for step in record.steps
        ],
        "searches": [
            {"query": s.query, "k": s.k, "pids": [pid for pid, _ in s.hits], "cached": s.cached}
            for s in record.searches
        ],
        "passages": [passage.pid for passage in record.passages],
        "calls": [
            {
                "name": call.signature or call.kind, "role": call.role, "in": call.prompt_tokens,
                "out": call.completion_tokens, "s": round(call.latency_s, 3),
                "usd": call.cost_usd, "error": call.error,
                "prompt": list(call.prompt), "reply": call.reply,
            }
            for call in record.ledger.calls
        ],
        "plan": record.plan, "tree": record.tree, "citations": record.citations,
    }  # fmt: skip


def _passage(passage: ShownPassage, record: Record) -> Json:
    gold = {index for title, index in record.support if title == passage.title}
    sentences = list(passage.sentences) or [passage.text]
    marked = sorted(gold) if passage.sentences else []
    return {"title": passage.title, "sentences": sentences, "gold": marked}


def _cell(run: RunView, record: Record | None) -> Json | None:
    if record is None:
        return None
    cause = cause_of(record)
    totals = record.ledger.as_if
    return {
        "answer": (record.answer or "")[:200],
        "score": run.scores.get(record.qid),
        "right": get_metric("em").score(record) == 1.0,
        "stop": record.stop_reason or "",
        "failed": record.failed,
        "cause": cause.name if cause else "",
        "calls": totals.calls,
        "tokens": totals.tokens,
        "s": round(record.latency_s, 2),
    }


def card_rows(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run card as pairs of a dotted name and a text, nested parts flattened."""
    pairs: list[tuple[str, str]] = []
    for name, value in card.items():
        if isinstance(value, Mapping):
            pairs += [(f"{name}.{inner}", text) for inner, text in card_rows(value)]
        elif value not in (None, "", [], {}):
            pairs.append((name, value if isinstance(value, str) else json.dumps(value)))
    return pairs
