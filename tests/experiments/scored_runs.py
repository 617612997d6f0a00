"""Run folders for tests, written as a run writes them, and a study of several for the page."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ragbench.experiments.artifacts import Sidecar, write_sidecar
from ragbench.experiments.store import RunCard, Store, write_json
from ragbench.record import Record
from tests.metrics.records import call, failure, record

CARD: dict[str, Any] = {
    "identity": {"program": "vanilla", "split": "test", "view": None, "temperature": 0.0,
                 "retriever": "bm25"},
    "adapter": "LenientJSON",
    "knobs": {"k": 5, "variant": "default", "answer_style": "free"},
    "model": "scripted/answerer",
    "data": {"name": "hotpotqa", "setting": "distractor", "digest": "0"},
    "compiled": "",
}  # fmt: skip


def answered(qid: str, answer: str, **fields: Any) -> Record:
    """A record of a question answered with `answer`; the gold answer is Norway."""
    ledger = {"calls": [call(model="scripted/answerer")], "path": {"calls": 1, "latency_s": 0.5}}
    return record(answer, **{"qid": qid, "ledger": ledger, **fields})


def four() -> list[Record]:
    """A right answer, the right one in more words, a wrong one, and a failed question."""
    return [
        answered("q1", "Norway"),
        answered("q2", "The country of Norway, in Europe, where she was born"),
        answered("q3", "Sweden"),
        replace(failure(), qid="q4"),
    ]


def make_run(folder: Path, records: Iterable[Record], **card: Any) -> Path:
    """A run folder of `records`, in one commit; `card` replaces parts of its card."""
    rows = list(records)
    with Store(folder, RunCard.model_validate({**CARD, **card})) as store:
        with patch.object(store, "_wait"):  # the last one commits those that wait
            for each in rows[:-1]:
                store.write(each)
        for each in rows[-1:]:
            store.write(each)
    return folder


def make_verdict(
    folder: Path,
    before: Sequence[bool],
    compiled: Sequence[Sequence[bool]],
    *,
    repeats: int = 1,
    votes: Sequence[bool] = (),
    tokens: Sequence[int] = (100, 100, 100),
    different: bool = True,
) -> Path:
    """A finished verdict: which questions are right before, and by each compiled program.

    A row of `compiled` is of a seed, or of one of its `repeats`; all repeats of the others are
    alike. `tokens` are those of a question before, compiled, and of the votes. Without `different`,
    all seeds compiled the same program.
    """
    n = len(compiled) // repeats
    design = {"votes": 3 if votes else 0, "metrics": ["em"]}
    cells = []
    for number in range(n):
        shown = {"ids": [f"t{k}" for k in range(20)], "hashes": [f"{k}" for k in range(20)]}
        cost = {"calls": 10, "prompt_tokens": 900, "completion_tokens": 100, "cost_usd": 0.01}
        sidecar = Sidecar(
            format=2, program="vanilla", variant="default", knobs={}, predictors={},
            program_sha256=f"{number * different:064}", data={"name": "hotpotqa", "digest": "0",
            "train": shown, "validation": {"ids": [], "hashes": []}},
            optimizer={"name": "bootstrap", "seed": number}, config={}, lms={}, versions={},
            scores={}, cost={"as_if": {"all": cost}},
        )  # fmt: skip
        (folder / "programs" / f"program-{number}").mkdir(parents=True)
        write_sidecar(folder / "programs" / f"program-{number}", sidecar)

    def arm(name: str, rows: Sequence[Sequence[bool]], spent: int, digest: str = "") -> None:
        for number, right in enumerate(rows, start=1):
            place = folder / "cells" / name
            if repeats > 1:
                place /= f"r{number}"
            calls = [call(model="scripted/answerer", prompt_tokens=spent, completion_tokens=0)]
            ledger = {"calls": calls, "path": {"calls": 1, "latency_s": 0.5}}
            records = []
            for k, ok in enumerate(right):
                answer = "Norway" if ok else "Chad"
                extra = {"cluster": f"c{k}"}
                records.append(answered(f"q{k:03}", answer, extra=extra, ledger=ledger))
            make_run(place, records, compiled=digest)
            of_seed, _, seed = name.rpartition("-")
            cells.append({
                "cell": str(place), "arm": of_seed if seed.isdigit() else name,
                "folder": place.relative_to(folder).as_posix(), "state": "done",
                "program": f"programs/program-{seed}" if digest else None,
            })  # fmt: skip

    for name in ("zero-shot", "form"):
        arm(name, [before] * repeats, tokens[0])
    for number in range(n):
        rows = compiled[number * repeats : (number + 1) * repeats]
        for name in ("compiled", "compiled-form"):
            arm(f"{name}-{number}", rows, tokens[1], f"{number * different:064}")
    if votes:
        arm("votes-3", [votes] * repeats, tokens[2])
    document = {"version": 1, "kind": "verdict", "cells": cells, "results": {"design": design}}
    write_json(folder / "experiment.json", document)
    return folder


WORDS = [f"word{n}" for n in range(4000)]
#: Program -> chance of a right answer, of all evidence, calls, and tokens of a call.
PROGRAMS = {
    "vanilla": (0.70, 0.72, 1, 400),
    "ircot": (0.76, 0.81, 3, 450),
    "react": (0.74, 0.78, 4, 600),
    "direct": (0.40, 0.0, 1, 90),
}


def study(folder: Path, *, questions: int = 60, words: int = 20, **cards: Any) -> list[Path]:
    """Run folders of four programs, and of ircot compiled."""
    runs = []
    for name, (right, found, calls, tokens) in PROGRAMS.items():
        rng = random.Random(name)
        records = [one(n, rng, right, found, calls, tokens, words) for n in range(questions)]
        identity = {**CARD["identity"], "program": name, "retriever": "bm25"}
        card = {"identity": identity, "model": "gpt-4o-mini", "questions": questions, **cards}
        runs.append(make_run(folder / name, records, **card))
        if name == "ircot":
            again = random.Random("compiled")
            better = [one(n, again, 0.79, 0.82, 3, 1250, words) for n in range(questions)]
            card["identity"] = {**identity, "compiled": "sha256:" + "ab" * 32}
            runs.append(make_run(folder / "ircot-compiled", better, **card))
    return runs


def one(
    number: int, rng: random.Random, right: float, found: float, calls: int, tokens: int, words: int
) -> Record:
    """A record with passages, a search and a step for each call."""
    pids = [f"p{number}-{n}" for n in range(6)]
    passages = [{"pid": pid, "title": f"Title {pid}", "text": text(rng, words)} for pid in pids]
    gold = pids[:2] if rng.random() < found else [pids[0], f"p{number}-none"]
    searches = [
        {"query": text(rng, 4), "k": 6, "hits": [(pid, 9.0 - i) for i, pid in enumerate(pids)],
         "latency_s": 0.1, "cached": False}
        for _ in range(calls if found else 0)
    ]  # fmt: skip
    steps = [
        {"action": "search", "input": each["query"], "thought": text(rng, words),
         "observation": "", "pids": pids[:2], "notes": {}}
        for each in searches
    ]  # fmt: skip
    lines = [
        call(model="gpt-4o-mini", signature="NextThought", prompt_tokens=tokens,
             completion_tokens=30, cost_usd=tokens * 1.5e-7, latency_s=0.4)
        for _ in range(calls)
    ]  # fmt: skip
    return answered(
        f"q{number:05}", "Norway" if rng.random() < right else "Sweden",
        question=f"Where was the author of {text(rng, 6)} born?", qtype="bridge",
        passages=passages, searches=searches, steps=steps, gold_pids=gold,
        ledger={"calls": lines, "path": {"calls": calls, "latency_s": 0.4 * calls}},
        latency_s=0.4 * calls,
    )  # fmt: skip


def text(rng: random.Random, words: int) -> str:
    """So many words."""
    return " ".join(rng.choices(WORDS, k=words))
