"""A process that makes an index is killed in the middle: no reply that came is asked for again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import dspy
import pytest

from ragbench.lms.adapters.lenient import make_adapter
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.graph import base as graph
from ragbench.retrievers.graph.hippo import HippoIndex
from tests.fakes import Asked, Reply, ScriptedLM
from tests.retrievers.conftest import WordEmbedder, make_corpus

PASSAGES = 60


def corpus() -> Corpus:
    return make_corpus(f"Town {i} lies on River {i}." for i in range(PASSAGES))


def script(asked: Asked) -> Reply:
    return {"entities": ["Town"], "triples": []}


def make(latency_s: float) -> ScriptedLM:
    """Make the index with an LM of that latency."""
    lm = ScriptedLM(script, latency_s=latency_s)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm), num_threads=4):
        HippoIndex.of(corpus(), lm="lm")
    return lm


def replies(folder: Path) -> int:
    """The number of replies on disk."""
    path = folder / "indexes" / "replies.sqlite"
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
            return int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
    except sqlite3.OperationalError:  # not begun
        return 0


def test_a_kill_loses_no_finished_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "from tests.retrievers.test_graph_kill import make; make(0.2)"],
        env={**os.environ, "RAGBENCH_CACHE": str(tmp_path)},
    )
    try:
        end = time.monotonic() + 300
        while replies(tmp_path) < 10:
            assert child.poll() is None, "the child ended before it was killed"
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    kept = replies(tmp_path)
    assert 10 <= kept < 2 * PASSAGES
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(graph, "make_embedder", lambda spec, api_base="": WordEmbedder())
    monkeypatch.setattr(graph, "_BUILT", {})
    assert len(make(0.0).asked) == 2 * PASSAGES - kept
