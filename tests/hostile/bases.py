"""The good things that hostile cases are changes of."""

from __future__ import annotations

from typing import Any

from tests.experiments.scored_runs import CARD

CONFIG: dict[str, Any] = {
    "program": "vanilla", "set": {"k": 1, "context_tokens": 500}, "dataset": "jsonl",
    "data_file": "questions.jsonl", "setting": "distractor", "split": "test", "limit": 1,
    "lm": "scripted", "lm_for": {"answer": "scripted"}, "temperature": 0.0, "adapter": "chat",
    "retriever": "bm25", "retriever_set": {"k1": 0.9}, "workers": 1, "seed": 42, "cache": False,
}  # fmt: skip

FULL_CARD: dict[str, Any] = {
    **CARD,
    "identity": {**CARD["identity"], "retriever": "bm25", "dataset": "jsonl"},
    "adapter": "LenientJSON",
    "limit": 4,
    "questions": 4,
    "preparation": {"calls": []},
    "versions": {"ragbench": "0", "dspy": "0", "python": "3"},
}

#: Places in a sidecar, and in DSPy's state of a compiled `vanilla`.
SIDECAR_PLACES: list[list[Any]] = [
    ["format"], ["program"], ["variant"], ["knobs"], ["knobs", "k"], ["predictors"],
    ["predictors", 0], ["predictors", 0, "name"], ["predictors", 0, "inputs"],
    ["predictors", 0, "n_demos"], ["program_sha256"], ["data"], ["data", "train"],
    ["data", "train", "ids"], ["data", "validation", "hashes"], ["optimizer"],
    ["optimizer", "name"], ["versions"], ["versions", "dspy"], ["scores"], ["cost"], ["notes"],
    ["notes", "candidates"], ["lms"], ["config"], ["inflation"],
]  # fmt: skip
STATE_PLACES: list[list[Any]] = [
    [".", "traces"], [".", "train"], [".", "demos"], [".", "demos", 0], [".", "signature"],
    [".", "signature", "instructions"], [".", "signature", "fields"],
    [".", "signature", "fields", 0], [".", "signature", "fields", 0, "prefix"],
    [".", "signature", "fields", 0, "description"], [".", "lm"], ["."], ["metadata"],
]  # fmt: skip

#: Places in a line of a pass's journal, by the pass, and in one of scores.
_REPLY_PLACES: list[list[Any]] = [
    ["qid"], ["pass"], ["key"], ["model"], ["value"], ["why"], ["provider_failed"], ["calls"],
    ["calls", 0], *(["calls", 0, name] for name in ("model", "prompt_tokens", "cost_usd", "kind",
                                                    "latency_s", "cached", "error")),
]  # fmt: skip
LINE_PLACES: dict[str, list[list[Any]]] = {
    "judge": _REPLY_PLACES,
    "attribution": [*_REPLY_PLACES, ["value", "facts"], ["value", "facts", 0],
                    ["value", "facts", 0, 1], ["value", "out_of_range"]],
    "evidence": [*_REPLY_PLACES, ["value", 0], ["value", 0, 1]],
    "grounding": [*_REPLY_PLACES, ["value", 0]],
    "scores": [["qid"], ["of"], ["scores"], ["scores", "em"], ["scores", "judge"],
               ["attribution"], ["attribution", 0, 0], ["attributed_triples", 0, 2]],
}  # fmt: skip

#: A reply that reads well in the chat format.
COMPLETION: dict[str, Any] = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": "[[ ## reasoning ## ]]\nso\n\n[[ ## answer ## ]]\nOslo\n\n"
                "[[ ## completed ## ]]",
                "tool_calls": [],
            },
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
}
