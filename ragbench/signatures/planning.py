"""Signatures that plan: split, choose the next look-up, repair a plan, act on a tree.

DraftPlan, UpdatePlan and RepairPlan follow REAP's decomposer, plan updater and re-planner (2025,
arXiv:2511.09966); RecursiveDecompose is the recursion of the simplified RLM (arXiv:2512.24601);
DraftPlanGraph and DraftQueryGraph plan every look-up at once, as LookaheadRAG does.
"""

from typing import Literal

import dspy

from ragbench.signatures.types import LookUpNode, PlanAction, PlanNode, SubTask, TreeNode


class Decompose(dspy.Signature):
    """Split the question into the fewest ordered sub-questions that answer it."""

    question: str = dspy.InputField()
    max_tasks: int = dspy.InputField()
    goal: str = dspy.OutputField()
    subtasks: list[SubTask] = dspy.OutputField()


# REAP's decomposer leaves what is not known yet as a placeholder.
class DraftPlan(Decompose):
    """Split the question into the fewest ordered sub-questions that answer it.

    Where a sub-question needs the answer of an earlier one, write that one's id as {id}.
    """


class NextSubTask(dspy.Signature):
    """Choose the next fact to look up, or be done if the facts answer the question."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField()
    history: list[str] = dspy.InputField(desc="queries already tried")
    done: bool = dspy.OutputField()
    query: str = dspy.OutputField(desc="a search query; empty if done")


class UpdatePlan(dspy.Signature):
    """Advance the plan with the new facts and choose the next look-ups."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField()
    history: list[str] = dspy.InputField(desc="queries already tried")
    plan: list[SubTask] = dspy.InputField()
    last_facts: list[str] = dspy.InputField(desc="what the last queries found")
    next_step: Literal["continue", "synthesize"] = dspy.OutputField()
    new_plan: list[SubTask] = dspy.OutputField()
    actions: list[PlanAction] = dspy.OutputField()


class RepairPlan(dspy.Signature):
    """Say why the last look-ups fell short, then repair the plan and choose the next look-ups."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField()
    history: list[str] = dspy.InputField(desc="queries already tried")
    plan: list[SubTask] = dspy.InputField()
    last_facts: list[str] = dspy.InputField(desc="what the last queries found")
    diagnosis: str = dspy.OutputField()
    strategy: Literal["accept_partial", "reword", "restructure"] = dspy.OutputField()
    next_step: Literal["continue", "synthesize"] = dspy.OutputField()
    new_plan: list[SubTask] = dspy.OutputField()
    actions: list[PlanAction] = dspy.OutputField()


class PlannerAction(dspy.Signature):
    """Choose one action on the tree of sub-questions.

    SELECT a node to work on, TRAVERSE to solve it, ROLLOUT to split it, BACKTRACK to give it up, or
    STOP when the root can be answered.
    """

    question: str = dspy.InputField()
    tree: list[TreeNode] = dspy.InputField()
    active_id: str = dspy.InputField()
    action: Literal["SELECT", "TRAVERSE", "ROLLOUT", "BACKTRACK", "STOP"] = dspy.OutputField()
    node_id: str = dspy.OutputField()


class RecursiveDecompose(dspy.Signature):
    """Answer the question from the passages if they suffice; otherwise split it.

    A later sub-question may use {1}, {2} for the answers of earlier ones.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    depth: int = dspy.InputField()
    max_depth: int = dspy.InputField()
    max_parts: int = dspy.InputField(desc="sub-questions at the most")
    mode: Literal["direct", "decompose"] = dspy.OutputField()
    answer: str = dspy.OutputField(desc="in as few words as possible; empty if decompose")
    sub_questions: list[str] = dspy.OutputField(desc="simpler questions; empty if direct")
    combine: str = dspy.OutputField(desc="how the answers combine; empty if direct")


class DraftPlanGraph(dspy.Signature):
    """Plan every look-up that the question needs, before anything is found.

    Where a query needs what an earlier look-up finds out, name that in `produces` there and write
    it as {name} in the query.
    """

    question: str = dspy.InputField()
    max_nodes: int = dspy.InputField(desc="look-ups at the most")
    nodes: list[PlanNode] = dspy.OutputField(
        desc="confidence from 0 to 1, cost from 1; for example "
        '{"id": "n1", "query": "director of Jaws", "depends_on": [], "confidence": 0.9, '
        '"produces": ["person"]}, {"id": "n2", "query": "birthplace of {person}", '
        '"depends_on": ["n1"], "confidence": 0.8, "produces": []}'
    )


class DraftQueryGraph(dspy.Signature):
    """Plan every look-up that the question needs, before anything is found.

    Each query must make sense by itself.
    """

    question: str = dspy.InputField()
    max_nodes: int = dspy.InputField(desc="look-ups at the most")
    nodes: list[LookUpNode] = dspy.OutputField(desc="confidence from 0 to 1, cost from 1")
