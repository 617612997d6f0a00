"""LookaheadRAG's own pruner and levels, over plans drawn at random."""

import importlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parities.parts import reachable

REPOSITORY = "github.com/aayushakumar/LookaheadRAG"
FILES = "src/engine/pruning.py, src/planner/schema.py"
_EMPTY = "dotenv groq ollama google chromadb sentence_transformers rich torch httpx openai faiss"
_WEIGHTS = SimpleNamespace(confidence=0.4, novelty=0.3, hop_coverage=0.3)
_BUDGET = 10


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The pruner with its published weights, and the levels of what it keeps."""
    reachable(checkout, *_EMPTY.split())
    pruning: Any = importlib.import_module("src.engine.pruning")
    schema: Any = importlib.import_module("src.planner.schema")
    settings = SimpleNamespace(max_budget=_BUDGET, utility_weights=_WEIGHTS)
    pruner = pruning.BudgetedPruner(SimpleNamespace(pruning=settings))

    def graph(plan: Sequence[Mapping[str, Any]]) -> Any:
        return schema.PlanGraph(question="q", nodes=[schema.PlanNode(**node) for node in plan])

    def kept(plan: Any) -> Any:
        return pruner.prune(graph(plan)).pruned_plan

    def ids(nodes: Any) -> list[str]:
        return [node.id for node in nodes]

    return {
        "kept": lambda plan: ids(kept(plan).nodes),
        "levels": lambda plan: [ids(level) for level in kept(plan).get_execution_order()],
        "whole": lambda plan: [ids(level) for level in graph(plan).get_execution_order()],
    }


def world(path: Path) -> dict[str, Any]:
    """Nothing is searched."""
    return {}


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """A plan for each question, whose queries are made of its words."""
    rng = random.Random(0)
    plans = [_plan(rng, question.split()) for question in questions]
    return dict.fromkeys(("kept", "levels", "whole"), plans)


def _plan(rng: random.Random, words: Sequence[str]) -> list[dict[str, Any]]:
    plan: list[dict[str, Any]] = []
    for number in range(1, rng.randint(4, 8)):
        before = [node["id"] for node in plan]
        plan.append(
            {
                "id": f"n{number}",
                "query": " ".join(rng.sample(words, rng.randint(1, len(words)))),
                "op": rng.choice(["lookup", "bridge", "filter", "compare"]),
                "depends_on": rng.sample(before, min(len(before), rng.choice([0, 0, 1, 2]))),
                "confidence": rng.choice([0.3, 0.5, 0.7, 0.9]),
                "budget_cost": rng.randint(1, 5),
            }
        )
    rng.shuffle(plan)
    return plan
