"""Self-RAG's own scores of the short form, over given probabilities of its reflection tokens.

The long form's scores of a segment as well. A gate is a pair of probabilities, of retrieving and of
not retrieving.
"""

import importlib
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from benchmarks.parities.parts import reachable

REPOSITORY = "github.com/AkariAsai/self-rag"
FILES = "retrieval_lm/run_short_form.py, retrieval_lm/run_long_form_static.py"
_EMPTY = "torch transformers vllm openai jsonlines rouge sacrebleu metrics nltk"
_RELEVANCE = ("[Irrelevant]", "[Relevant]")
_SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
_USE = tuple(f"[Utility:{n}]" for n in range(1, 6))
_GATE = ("[No Retrieval]", "[Retrieval]", "[Continue to Use Evidence]")
_IDS = {name: at for at, name in enumerate([*_RELEVANCE, *_SUPPORT, *_USE, *_GATE])}
_THRESHOLD = 0.2


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The scores."""
    sys.modules["spacy"] = MagicMock()  # it would look for a real torch
    reachable(checkout / "retrieval_lm", *_EMPTY.split())
    short: Any = importlib.import_module("run_short_form")
    long: Any = importlib.import_module("run_long_form_static")
    return {
        "score": lambda given: _ranked(short, given)["scores"],
        "best": lambda given: _ranked(short, given)["best"],
        "vote": lambda given: _ranked(short, given, closed=True)["best"],
        "gate": lambda given: _retrieves(short, given),
        "segment": lambda given: _segments(long, given),
    }


def _tokens(names: Sequence[str]) -> dict[str, int]:
    return {name: _IDS[name] for name in names}


def _generated(candidate: Mapping[str, Any]) -> Any:
    """What a model generates from one passage: the grades, each at a place of its own."""
    groups = [
        dict(zip(_RELEVANCE, reversed(candidate["relevance"]), strict=True)),
        dict(zip(_SUPPORT, candidate["support"], strict=True)),
        dict(zip(_USE, candidate["use"], strict=True)),
    ]
    tops = [{_IDS[n]: math.log(p) for n, p in group.items() if p} for group in groups]
    ids = [max(top, key=lambda at: top[at]) for top in tops]
    output = SimpleNamespace(
        token_ids=ids, text=candidate["answer"], logprobs=tops, cumulative_logprob=-1.0
    )
    return SimpleNamespace(outputs=[output])


def _ranked(code: Any, given: Sequence[Mapping[str, Any]], *, closed: bool = False) -> Any:
    model = SimpleNamespace(generate=lambda prompts, _: [_generated(c) for c in given])
    best, results, _ = code.call_model_rerank_w_scores_batch(
        "prompt",
        [{"title": "", "text": ""}] * len(given),
        model,
        rel_tokens=_tokens(_RELEVANCE),
        grd_tokens=_tokens(_SUPPORT),
        ut_tokens=_tokens(_USE),
        mode="always_retrieve",
        closed=closed,
    )
    scores = [round(float(results[f"retrieval_{i}"]["score"]), 9) for i in range(len(given))]
    return {"scores": scores, "best": best}


def _segments(code: Any, given: Sequence[Mapping[str, Any]]) -> list[float]:
    model = SimpleNamespace(generate=lambda prompts, _: [_generated(c) for c in given])
    _, scores, _ = code.run_step_generation_batch(
        model,
        "prompt",
        [{"title": "", "text": ""}] * len(given),
        100,
        rel_tokens=_tokens(_RELEVANCE),
        grd_tokens=_tokens(_SUPPORT),
        ret_tokens=_tokens(_GATE),
        ut_tokens=_tokens(_USE),
        threshold=_THRESHOLD,
    )
    return [round(float(score), 9) for score in scores]


def _retrieves(code: Any, given: Sequence[float]) -> bool:
    retrieve, not_ = given
    chances = zip(_GATE, (not_, retrieve, 0.001), strict=True)
    top = {_IDS[name]: math.log(p) for name, p in chances}
    output = SimpleNamespace(token_ids=[0], text="x", logprobs=[top], cumulative_logprob=-1.0)
    answered = SimpleNamespace(outputs=[output])
    candidate = {"relevance": [1, 0], "support": [1, 0, 0], "use": [0, 0, 0, 0, 1], "answer": "x"}
    replies = [[answered], [_generated(candidate)]]
    model = SimpleNamespace(generate=lambda prompts, _: replies.pop(0) if replies else [answered])
    try:
        found = code.call_model_rerank_w_scores_batch(
            "prompt",
            [{"title": "", "text": ""}],
            model,
            ret_tokens=_tokens(_GATE),
            rel_tokens=_tokens(_RELEVANCE),
            grd_tokens=_tokens(_SUPPORT),
            ut_tokens=_tokens(_USE),
            threshold=_THRESHOLD,
        )
    except UnboundLocalError:  # without a retrieval it reads a variable that it never set
        return False
    return bool(found[2])


def world(path: Path) -> dict[str, Any]:
    """Nothing is searched."""
    return {}


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """Five candidates for each question, with probabilities at random."""
    rng = random.Random(0)
    sets = [[_candidate(rng) for _ in range(5)] for _ in questions]
    gates = [[p / 100, 1 - p / 100] for p in range(1, 100)]
    return {"gate": gates, **dict.fromkeys(("score", "best", "vote", "segment"), sets)}


def _candidate(rng: random.Random) -> dict[str, Any]:
    def chances(n: int) -> list[float]:
        weights = [rng.random() ** 3 for _ in range(n)]
        return [round(w / sum(weights) * rng.uniform(0.8, 1), 6) for w in weights]

    grades = {"relevance": chances(2), "support": chances(3), "use": chances(5)}
    return {**grades, "answer": f"answer {rng.randint(1, 3)}"}
