"""The good things that hostile cases are changes of."""

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
