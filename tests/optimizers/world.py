"""A small world to compile in: towns with mayors, and a scripted LM that knows some of them."""

import re
from pathlib import Path
from typing import Any

import dspy

from ragbench.data.base import make_example
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.scoring import make_scorer
from ragbench.optimizers.task import SearchResult, Task
from ragbench.passages import Corpus, Passage
from ragbench.programs import PROGRAMS
from ragbench.programs.core.program import RAGProgram
from ragbench.retrievers.bm25 import BM25
from tests.fakes import Asked, ScriptedLM, plausible

N = 16

EXAMPLES = [
    make_example(
        qid=f"q{i}",
        question=f"Who is the mayor of Town {i}?",
        answers=[f"Ann {i}"],
        support=[(f"Town {i}", 1), (f"River {i}", 0)],
        decomposition=[{"question": f"What is Town {i}?", "answer": "a town"}],
        qtype="bridge",
        context=[f"gold passage {i}"],
    )
    for i in range(N)
]
TRAIN, VAL = EXAMPLES[:10], EXAMPLES[10:]


def corpus() -> Corpus:
    filler = "Nothing else is known about the place. " * 20
    texts = (f"Town {i} lies on River {i}. Its mayor is Ann {i}. {filler}" for i in range(N))
    return Corpus(tuple(Passage(f"p{i}", f"Town {i}", text) for i, text in enumerate(texts)))


def program(name: str = "vanilla", **knobs: Any) -> RAGProgram:
    return PROGRAMS.get(name)(BM25(corpus()), **knobs)


def town(asked: Asked) -> int:
    found = re.findall(r"mayor of Town (\d+)", asked.inputs.get("question", "") or asked.prompt)
    return int(found[-1]) if found else -1


def even_towns(asked: Asked, style: str = "") -> dict[str, Any]:
    """Right for towns of even number; an instruction asked for is in `style`, or a new one."""
    reply = plausible(asked)
    number = town(asked)
    if "answer" in reply:
        reply["answer"] = f"Ann {number}" if number % 2 == 0 else "somebody else"
    if "Literal['finish']" in asked.prompt:  # the last turn of a tool loop offers nothing else
        reply["tool"] = "finish"
    for name in reply:
        if "instruction" in name or "rules" in name:
            reply[name] = f"Answer in style {style or asked.number}."
    return reply


def scripted(script: Any = even_towns, **settings: Any) -> ScriptedLM:
    return ScriptedLM(script, **settings)


def task(folder: Path, lm: dspy.LM | None = None, **fields: Any) -> Task:
    given = {"train": TRAIN, "val": VAL, "scorer": make_scorer("f1"), "workers": 2, **fields}
    return Task(lm=lm or scripted(), log_folder=folder, **given)


def compiled(
    name: str, folder: Path, lm: dspy.LM | None = None, *,
    knobs: dict[str, Any] | None = None, start: RAGProgram | None = None, **fields: Any,
) -> SearchResult:  # fmt: skip
    """What the optimizer makes of `start`, by its small settings or those given."""
    optimizer = OPTIMIZERS.get(name)(**SMALL[name] if knobs is None else knobs)
    return optimizer.compile(start or program(), task(folder, lm, **fields))


#: Small settings of each optimizer, so that a test takes seconds.
SMALL: dict[str, dict[str, Any]] = {
    "better_together": {
        "strategy": "bootstrap -> copro",
        "copro.breadth": 2,
        "copro.depth": 1,
    },
    "bootstrap": {},
    "copro": {"breadth": 2, "depth": 2},
    "ensemble": {"candidates": 2, "size": 2},
    "gepa": {"runs": 25},
    "infer_rules": {"candidates": 2},
    "knn": {},
    "labeled": {},
    "mipro": {"candidates": 4, "instructions": 2, "trials": 4},
    "optuna": {"trials": 3},
    "random_search": {"candidates": 2},
    "simba": {"minibatch": 4, "candidates": 2, "steps": 2},
}
