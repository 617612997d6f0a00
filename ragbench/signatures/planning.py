"""Signatures that plan: split, choose the next look-up, repair a plan, act on a tree.

DraftPlan, UpdatePlan and RepairPlan follow REAP's decomposer, plan updater and re-planner (2025,
arXiv:2511.09966). RecursiveDecompose is the recursion of the simplified RLM (arXiv:2512.24601).
DraftPlanGraph and DraftQueryGraph plan every look-up at once, like LookaheadRAG.
"""

from typing import Literal

import dspy

from ragbench.signatures.types import (
    NAMED,
    SPAN,
    LookUpNode,
    OfQuestion,
    PlanAction,
    PlanNode,
    SubTask,
)


class SplitQuestion(OfQuestion):
    """Split the question into simpler questions that together answer it."""

    max_parts: int = dspy.InputField(desc="Maximum number of sub-questions.")
    sub_questions: list[str] = dspy.OutputField(
        desc="Each asks for one fact if max_parts allows. A later one may use {1}, {2} for the "
        f"answers of earlier ones. Leave it empty if none. {NAMED}"
    )


# REAP's decomposer writes a placeholder for an unknown name.
class DraftPlan(OfQuestion):
    """Split the question into the fewest ordered sub-questions that answer it.

    If a sub-question needs the answer of an earlier one, write the id of that one as {id}.
    """

    max_tasks: int = dspy.InputField(desc="Maximum number of sub-questions.")
    goal: str = dspy.OutputField(desc="Information that the question asks for.")
    subtasks: list[SubTask] = dspy.OutputField(desc="Each asks for one fact.")


class NextSubTask(OfQuestion):
    """Choose the next facts to look up. You are done if the found facts answer the question."""

    facts: list[str] = dspy.InputField(desc="Facts found.")
    missing: list[str] = dspy.InputField(desc="Facts judged to be missing. It may be empty.")
    history: list[str] = dspy.InputField(desc="Searches made.")
    done: bool = dspy.OutputField(desc="True if all facts that the answer needs were found.")
    queries: list[str] = dspy.OutputField(
        desc=f"Searches that can be made now, one for each fact. Leave it empty if done. {NAMED}"
    )


class _PlanSoFar(dspy.Signature):
    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="Facts found.")
    history: list[str] = dspy.InputField(desc="Searches made.")
    plan: list[str] = dspy.InputField(desc="Sub-questions by id.")
    last_facts: list[str] = dspy.InputField(desc="Facts from the last searches.")


class UpdatePlan(_PlanSoFar):
    """Update the plan with the new facts and choose the next look-ups."""

    next_step: Literal["continue", "synthesize"] = dspy.OutputField(
        desc="synthesize: all facts that the answer needs were found. continue: one is missing."
    )
    new_plan: list[SubTask] = dspy.OutputField(desc="The whole plan. Leave it empty if unchanged.")
    actions: list[PlanAction] = dspy.OutputField(
        desc="Searches that can be made now. Leave it empty if synthesize."
    )


class RepairPlan(_PlanSoFar):
    """Explain the failure of the last look-ups, repair the plan, and choose the next look-ups."""

    diagnosis: str = dspy.OutputField(desc="One sentence.")
    strategy: Literal["accept_partial", "reword", "restructure"] = dspy.OutputField(
        desc="Accept the partial facts, reword the searches, or restructure the plan."
    )
    next_step: Literal["continue", "synthesize"] = dspy.OutputField(
        desc="synthesize: all facts that the answer needs were found. continue: one is missing."
    )
    new_plan: list[SubTask] = dspy.OutputField(desc="The whole plan. Leave it empty if unchanged.")
    actions: list[PlanAction] = dspy.OutputField(
        desc="Searches that can be made now. Leave it empty if synthesize."
    )


#: Description of each action of the planner. A program offers some of them.
PLANNER_ACTIONS = {
    "TRAVERSE": "Look the node up and answer it.",
    "ROLLOUT": "Split a node that needs more than one fact.",
    "SELECT": "Make the node active and look it up if it is open.",
    "BACKTRACK": "Give up the active node. node_id is ignored.",
    "STOP": "End the search, because the tree answers the question or nothing more can be found.",
}


class PlannerAction(OfQuestion):
    """Choose the next action on the tree of sub-questions."""

    tree: list[str] = dspy.InputField(desc="Nodes with their answers.")
    active_id: str = dspy.InputField()
    actions_left: int = dspy.InputField(desc="Remaining look-ups and moves. A split is free.")
    max_parts: int = dspy.InputField(desc="Maximum number of sub-questions.")
    action: str = dspy.OutputField()
    node_id: str = dspy.OutputField(desc="Id of the node to act on.")
    sub_questions: list[str] = dspy.OutputField(
        desc="Only for ROLLOUT: questions in order, each for one fact if max_parts allows. Write "
        "{1} for the answer of the first one, as in: Who directed TITLE?, Where was {1} born? "
        f"{NAMED}"
    )


class RecursiveDecompose(dspy.Signature):
    """Answer the question from the passages, or split it into simpler questions."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    depth: int = dspy.InputField(desc="Number of splits above this question.")
    max_depth: int = dspy.InputField()
    max_parts: int = dspy.InputField(desc="Maximum number of sub-questions.")
    mode: Literal["direct", "decompose", "unknown"] = dspy.OutputField(
        desc="direct: the passages answer it. decompose: simpler questions answer it. unknown: "
        "neither."
    )
    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty unless direct.")
    sub_questions: list[str] = dspy.OutputField(
        desc="Only for decompose: questions that together give the answer, each for one fact if "
        "max_parts allows. Each one is searched separately. A later one may use {1}, {2} for the "
        f"answers of earlier ones. {NAMED}"
    )
    combine: str = dspy.OutputField(
        desc="Only for decompose: a rule that combines the answers, with the facts of the passages "
        'that it needs. Write "last" if the last answer is the answer.'
    )


_LOOK_UPS = """One look-up each.
op lookup: a fact about a thing that the query names
op bridge: the subject of a later look-up
op filter: the things that meet a condition
op compare: a comparison of other look-ups, without a search
op aggregate: a count or sum of other look-ups, without a search
op verify: a check of a statement
confidence 0.6 or more: a passage about it very likely exists
confidence 0.3 to 0.6: it may exist
confidence below 0.3: a guess
cost 1: one search finds it
cost 2: it needs several passages
cost 3: it needs very many passages"""
_BUDGET = "Maximum sum of the costs. Later look-ups above it are left out."
_LEAST_CONFIDENCE = "Less confident look-ups are left out unless another one waits for them."


# No example of a whole plan: a small model copies its names.
class DraftPlanGraph(OfQuestion):
    """Plan every look-up that the question needs, before the first search.

    Plan a separate look-up for each thing that the question names. Begin its query with that name.
    If a query needs the result of an earlier look-up, name the result in `produces` there and write
    it as {name} in the query.
    """

    max_nodes: int = dspy.InputField(desc="Maximum number of look-ups.")
    budget: int = dspy.InputField(desc=_BUDGET)
    min_confidence: float = dspy.InputField(desc=_LEAST_CONFIDENCE)
    nodes: list[PlanNode] = dspy.OutputField(
        desc=_LOOK_UPS
        + '\nquery: such as "{person} birthplace" if an earlier look-up has produces ["person"]'
    )


class DraftQueryGraph(OfQuestion):
    """Plan every look-up that the question needs, before the first search.

    Begin each query with the name of its subject. Each query must be self-contained.
    """

    max_nodes: int = dspy.InputField(desc="Maximum number of look-ups.")
    budget: int = dspy.InputField(desc=_BUDGET)
    min_confidence: float = dspy.InputField(desc=_LEAST_CONFIDENCE)
    nodes: list[LookUpNode] = dspy.OutputField(desc=_LOOK_UPS)


# The planner and the step definer of MA-RAG (Nguyen et al. 2025, arXiv:2505.20096). The definer
# includes earlier results, because an aggregate is answered from its task only.
class PlanSteps(OfQuestion):
    """Split the question into the fewest ordered steps that answer it, one fact each."""

    history: list[str] = dspy.InputField(
        desc="Steps of earlier plans with their findings and failures. It may be empty."
    )
    max_steps: int = dspy.InputField(desc="Maximum number of steps.")
    steps: list[str] = dspy.OutputField(
        desc="Questions. Later ones may refer to the answers of earlier ones. Leave out those that "
        "the history answers."
    )


class DefineStep(OfQuestion):
    """Write the step of the plan as one self-contained question.

    Insert the answers of earlier steps that it needs.
    """

    plan: list[str] = dspy.InputField(desc="All steps, in order.")
    history: list[str] = dspy.InputField(desc="Finished steps with their answers.")
    step: str = dspy.InputField(desc="Step to write.")
    kind: Literal["lookup", "aggregate"] = dspy.OutputField(
        desc="lookup: a fact must be found. aggregate: it follows from earlier answers."
    )
    task: str = dspy.OutputField(desc=f"One question. {NAMED}")
