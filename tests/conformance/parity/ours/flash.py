"""FlashRAG's loop of IRCoT as `ircot variant=flash` has it."""

import json
import re
from collections.abc import Mapping
from typing import Any

import dspy

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs.ircot import IRCoT
from ragbench.retrievers import Corpus, Passage, Retriever
from tests.conformance.parity.ours import Parts, World
from tests.fakes import Asked, Reply, ScriptedLM

PARTS = ("shown", "queries", "passages", "answer")
_PHRASE = "So the answer is:"


class _Given(Retriever):
    """Finds what it is given, search by search."""

    def __init__(self, findings: list[Any]) -> None:
        pids = dict.fromkeys(pid for found in findings for pid, _ in found)
        super().__init__(Corpus([Passage(pid, "", f"text {pid} ends") for pid in pids]))
        self.left = list(findings)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """What is next."""
        found = self.left.pop(0)
        return [self.corpus[self.corpus.positions[pid]].scored(score) for pid, score in found]


def parts(world: World) -> Parts:
    """The loop."""
    return {part: lambda given, part=part: _loop(given)[part] for part in PARTS}  # type: ignore[misc]


def _loop(given: Mapping[str, Any]) -> dict[str, Any]:
    thoughts, shown = list(given["thoughts"]), []

    def script(asked: Asked) -> Reply:
        if asked.signature != "CoTStep":
            return {"answer": "forced"}
        shown.append(re.findall(r"text (\S+) ends", asked.inputs["context"]))
        thought = thoughts.pop(0)
        done = _PHRASE in thought
        answer = thought.partition(_PHRASE)[2].strip()
        return {
            "thought": thought, "next_step": "answer" if done else "search", "answer": answer,
        }  # fmt: skip

    program = IRCoT(_Given(given["findings"]), variant="flash", context_tokens=1_000_000)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        prediction = program(question=given["question"])
    return {
        "shown": json.loads(json.dumps(shown)),
        "queries": [search.query for search in prediction.searches],
        "passages": sorted(passage.pid for passage in prediction.passages),
        "answer": prediction.answer,
    }
