"""Boards of every kind that the page is for, as run folders; alone, it writes their pages.

python -m tests.experiments.boards FOLDER
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ragbench.experiments.cells.verdict import reread
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.report.page import make_board, write_page
from ragbench.experiments.runs.summary import reopen
from ragbench.metrics import correct
from ragbench.record import Record
from tests.experiments.scored_runs import CARD, make_run, one

#: Program -> chance of a right answer, of all evidence, calls, and tokens of a call.
PROGRAMS = {
    "vanilla": (0.51, 0.59, 1, 990), "ircot": (0.58, 0.70, 3, 900), "react": (0.55, 0.66, 4, 800),
    "lookahead": (0.67, 0.78, 3, 740), "direct": (0.30, 0.0, 1, 90),
    "multi_query": (0.54, 0.66, 2, 700),
}  # fmt: skip
COMPILED = {"vanilla": 0.72, "ircot": 0.79}


def records(
    name: str, right: float, found: float, calls: int, tokens: int, *, questions: int = 100
) -> list[Record]:
    """Records of a program; a question that is hard for one program is hard for the others."""
    own = random.Random(name)
    hard = random.Random("questions")
    made = []
    for number in range(questions):
        luck = 0.6 * hard.random() + 0.4 * own.random()
        answered = 1.0 if luck < 0.1 + 0.8 * right else 0.0
        record = one(number, own, answered, found, calls, tokens, words=14)
        hops = 2 + number % 3
        qtype = ("bridge", "comparison")[number % 2]
        text = f"Question {number}: {record.question}"
        made.append(replace(record, hops=hops, qtype=qtype, question=text))
    return made


def program_run(folder: Path, name: str, *, compiled: bool = False, **card: Any) -> Path:
    """A run of one of `PROGRAMS`, by the LM m-small unless `card` says another."""
    right, found, calls, tokens = PROGRAMS[name]
    identity = {**CARD["identity"], "program": name, **card.pop("identity", {})}
    questions = card.pop("n", 100)
    if compiled:
        identity["compiled"] = f"sha256:{random.Random(str(folder)).getrandbits(256):064x}"
        right = COMPILED.get(name, right + 0.1)
        tokens = int(2.6 * tokens)
    right += card.pop("more", 0.0)
    if digest := card.pop("digest", ""):
        card["compiled"] = digest
    rows = records(str(folder.name), right, found, calls, tokens, questions=questions)
    data = {**CARD["data"], "name": "made_up"}
    settings = {"model": "openai/m-small", "questions": questions, "data": data, **card}
    return make_run(folder, rows, identity=identity, **settings)


def eight(folder: Path) -> None:
    """Six programs, one of them compiled, and an import of another LM with a long address."""
    for name in PROGRAMS:
        program_run(folder / name, name)
    program_run(folder / "ircot-compiled", "ircot", compiled=True)
    model = "openai/m-large@127.0.0.1:7411/v1"
    program_run(folder / "import", "react", model=model, more=0.1)


def unpriced(folder: Path) -> None:
    """Four programs, of two of which no price is known."""
    for name in ("vanilla", "ircot"):
        program_run(folder / name, name)
    for name in ("react", "lookahead"):
        program_run(folder / name, name, unknown=["cost_usd"])


def few(folder: Path) -> None:
    """Four programs over four questions."""
    for name in ("vanilla", "ircot", "react", "direct"):
        program_run(folder / name, name, n=4)


def verdict(folder: Path) -> Path:
    """A verdict on compiling ircot with three seeds, with its controls."""
    rows = []
    for name, arm, more, identity in (
        ("zero-shot", "zero-shot", -0.15, {}), ("form", "form", -0.13, {"form": True}),
        ("votes-3", "votes", -0.14, {"votes": 3}),
    ):  # fmt: skip
        program_run(folder / "cells" / name, "ircot", n=80, more=more, identity=identity)
        rows.append({"cell": name, "arm": arm, "folder": f"cells/{name}", "state": "done"})
    for seed in range(3):
        program = folder / "programs" / f"program-{seed}"
        program.mkdir(parents=True)
        (program / "sidecar.json").write_text(json.dumps(sidecar(seed)))
        (program / "candidates.jsonl").write_text("".join(map(candidate, range(6))))
        for arm in ("compiled", "compiled-form"):
            identity = {"form": True} if arm.endswith("form") else {}
            run = folder / "cells" / f"{arm}-{seed}"
            digest = f"{seed}" * 64
            program_run(run, "ircot", compiled=True, n=80, digest=digest, identity=identity)
            rows.append({"cell": run.name, "arm": arm, "folder": f"cells/{run.name}",
                         "program": f"programs/program-{seed}", "state": "done"})  # fmt: skip
    whole = {"version": 1, "kind": "verdict", "cells": rows}
    for results in ({"design": {"votes": 3, "metrics": ["em", "f1"]}}, None):
        whole["results"] = results or reread(folder).to_dict()
        (folder / "experiment.json").write_text(json.dumps(whole))
    return folder


def candidate(number: int) -> str:
    """A line of what a compile tried; the first is the program as it is."""
    order, n = (None, 20) if number == 0 else (6 - number, 20 - 10 * (number > 3))
    row = {"number": number, "order": order, "mean": 0.5 + 0.04 * (6 - number) * (number > 0),
           "n": n, "tokens": order and 900 * n, "shipped": number == 1}  # fmt: skip
    return json.dumps(row) + "\n"


def sidecar(seed: int) -> dict[str, Any]:
    """What a compile leaves beside its program."""
    ids = [f"train{number}" for number in range(50)]
    validation = {"ids": ["v1"], "hashes": ["v1"]}
    spent = {"calls": 400, "prompt_tokens": 300_000, "completion_tokens": 9000, "cost_usd": 0.04}
    return {
        "format": 2, "program": "ircot", "variant": "default", "knobs": {}, "predictors": {},
        "program_sha256": f"{seed}" * 64, "lms": {"student": "openai/m-small"}, "versions": {},
        "data": {"name": "made_up", "digest": "0", "train": {"ids": ids, "hashes": ids},
                 "validation": validation},
        "optimizer": {"name": "bootstrap", "seed": seed}, "config": {},
        "scores": {"metric": "em", "n": 20, "compiled": {"mean": 0.7}, "difference": 0.2},
        "cost": {"as_if": {"all": spent}},
    }  # fmt: skip


FOUR = ("vanilla", "ircot", "react", "lookahead")


def sweep(folder: Path, n: int = 60, programs: Sequence[str] = FOUR) -> None:
    """A sweep of some programs, three depths and two retrievers: six cells a program."""
    cells = []
    for name in programs:
        for k in (3, 5, 10):
            for retriever in ("bm25", "dense"):
                label = f"{name} k={k} {retriever}"
                run = folder / "cells" / label.replace(" ", "-")
                knobs = {**CARD["knobs"], "k": k}
                identity = {"retriever": retriever}
                more = 0.012 * k + 0.05 * (retriever == "dense")
                program_run(run, name, knobs=knobs, identity=identity, more=more, n=n,
                            changed_knobs={"k": k})  # fmt: skip
                cells.append((label, run))
    pairs = []
    for at, (label, run) in enumerate(cells):
        base = at - at % 6
        if at != base:
            [result] = compare_all([reopen(cells[base][1]), reopen(run)])
            pairs.append((label, cells[base][0], result.scores))
    family = iter(correct([c for *_, scores in pairs for c in scores.values()]))
    contrasts = []
    for label, base, scores in pairs:
        rows = {metric: asdict(next(family)) for metric in scores}
        contrasts.append({"cell": label, "baseline": base, "scores": rows, "why": ""})
    rows = []
    for label, run in cells:
        rows.append({"cell": label, "folder": f"cells/{run.name}", "program": None, "state": "done",
                     "reason": "", "summary": None})  # fmt: skip
    whole = {"version": 1, "kind": "sweep", "cells": rows, "results": {"contrasts": contrasts}}
    (folder / "experiment.json").write_text(json.dumps(whole))


BOARDS: dict[str, Callable[[Path], Any]] = {
    "eight": eight, "unpriced": unpriced, "few": few, "verdict": verdict, "sweep": sweep,
}  # fmt: skip


if __name__ == "__main__":
    for board, make in BOARDS.items():
        place = Path(sys.argv[1]) / board
        make(place)
        write_page(make_board([place]), place.with_suffix(".html"))
