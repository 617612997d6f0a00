"""Signatures that plan: split, choose the next look-up, repair a plan, act on a tree.

DraftPlan, UpdatePlan and RepairPlan follow REAP's decomposer, plan updater and re-planner (2025,
arXiv:2511.09966); RecursiveDecompose is the recursion of the simplified RLM (arXiv:2512.24601);
DraftPlanGraph and DraftQueryGraph plan every look-up at once, as LookaheadRAG does.
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

    max_parts: int = dspy.InputField(desc="sub-questions at the most")
    sub_questions: list[str] = dspy.OutputField(
        desc="of one fact each if max_parts allows; a later one may use {1}, {2} for the answers "
        f"of earlier ones; {NAMED}; empty if there are none"
    )


# REAP's decomposer leaves what is not known yet as a placeholder.
class DraftPlan(OfQuestion):
    """Split the question into the fewest ordered sub-questions that answer it.

    Where a sub-question needs the answer of an earlier one, write that one's id as {id}.
    """

    max_tasks: int = dspy.InputField(desc="sub-questions at the most")
    goal: str = dspy.OutputField(desc="what the question asks for")
    subtasks: list[SubTask] = dspy.OutputField(desc="of one fact each")


class NextSubTask(OfQuestion):
    """Choose the facts to look up next, or be done if those found answer the question."""

    facts: list[str] = dspy.InputField(desc="found so far")
    missing: list[str] = dspy.InputField(desc="what was judged to be missing; may be empty")
    history: list[str] = dspy.InputField(desc="searches already made")
    done: bool = dspy.OutputField(desc="whether every fact that the answer needs was found")
    queries: list[str] = dspy.OutputField(
        desc=f"searches that can be made now, one for each fact; {NAMED}; empty if done"
    )


class _PlanSoFar(dspy.Signature):
    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="found so far")
    history: list[str] = dspy.InputField(desc="searches already made")
    plan: list[str] = dspy.InputField(desc="sub-questions by id")
    last_facts: list[str] = dspy.InputField(desc="what the last searches found")


class UpdatePlan(_PlanSoFar):
    """Advance the plan with the new facts and choose the next look-ups."""

    next_step: Literal["continue", "synthesize"] = dspy.OutputField(
        desc="synthesize once every fact that the answer needs was found"
    )
    new_plan: list[SubTask] = dspy.OutputField(desc="the whole plan; empty if it stays as it is")
    actions: list[PlanAction] = dspy.OutputField(
        desc="searches that can be made now; empty if synthesize"
    )


class RepairPlan(_PlanSoFar):
    """Say why the last look-ups fell short, then repair the plan and choose the next look-ups."""

    diagnosis: str = dspy.OutputField(desc="one sentence")
    strategy: Literal["accept_partial", "reword", "restructure"] = dspy.OutputField(
        desc="accept what was found, reword the searches, or change the plan"
    )
    next_step: Literal["continue", "synthesize"] = dspy.OutputField(
        desc="synthesize once every fact that the answer needs was found"
    )
    new_plan: list[SubTask] = dspy.OutputField(desc="the whole plan; empty if it stays as it is")
    actions: list[PlanAction] = dspy.OutputField(
        desc="searches that can be made now; empty if synthesize"
    )


#: What each action of the planner does; a program offers some of them.
PLANNER_ACTIONS = {
    "TRAVERSE": "look the node up and answer it",
    "ROLLOUT": "split the node, which needs more than one fact",
    "SELECT": "make the node active; an open node is looked up too",
    "BACKTRACK": "give the active node up, whatever node_id is",
    "STOP": "end the search: the tree answers the question, or more looking will not",
}


class PlannerAction(OfQuestion):
    """Choose the next action on the tree of sub-questions."""

    tree: list[str] = dspy.InputField(desc="nodes, with what was found of each")
    active_id: str = dspy.InputField()
    actions_left: int = dspy.InputField(desc="look-ups and moves; a split takes none")
    max_parts: int = dspy.InputField(desc="sub-questions at the most")
    action: str = dspy.OutputField()
    node_id: str = dspy.OutputField(desc="of the node to act on")
    sub_questions: list[str] = dspy.OutputField(
        desc="for ROLLOUT: questions in order, of one fact each if max_parts allows; {1} stands "
        f"for the answer of the first, as in: Who directed TITLE?, Where was {{1}} born?; {NAMED}"
    )


class RecursiveDecompose(dspy.Signature):
    """Answer the question from the passages, or split it into simpler questions."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    depth: int = dspy.InputField(desc="splits above this question")
    max_depth: int = dspy.InputField()
    max_parts: int = dspy.InputField(desc="sub-questions at the most")
    mode: Literal["direct", "decompose", "unknown"] = dspy.OutputField(
        desc="direct: the passages answer it; decompose: simpler questions would; unknown: neither"
    )
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty unless direct")
    sub_questions: list[str] = dspy.OutputField(
        desc="for decompose: questions that together give the answer, of one fact each if "
        "max_parts allows; each is searched and read alone; a later one may use {1}, {2} for the "
        f"answers of earlier ones; {NAMED}; else empty"
    )
    combine: str = dspy.OutputField(
        desc="for decompose: how the answers combine, with the facts of the passages needed for "
        'that, or "last" if the last one is the answer'
    )


_LOOK_UPS = """one look-up each
op lookup: a fact about a thing that the query names
op bridge: the thing that a later look-up is about
op filter: which of several things meet a condition
op compare: a comparison of what others find; it searches nothing but counts as one
op aggregate: a count or sum of what others find; it searches nothing but counts as one
op verify: whether a statement holds
confidence 0.6 or more: a passage on it very likely exists
confidence 0.3 to 0.6: it may exist
confidence under 0.3: a guess
cost 1: one search finds it
cost 2: it takes several passages
cost 3: it takes very many"""
_BUDGET = "the costs of all look-ups together at the most; later ones are left out beyond it"
_LEAST_CONFIDENCE = "a look-up of less that none waits for is left out"


# No example of a whole plan: a small model copies its names.
class DraftPlanGraph(OfQuestion):
    """Plan every look-up that the question needs, before anything is found.

    Give each thing that the question names a look-up of its own, whose query begins with that name.
    Where a query needs what an earlier look-up finds out, name that in `produces` there and write
    it as {name} in the query.
    """

    max_nodes: int = dspy.InputField(desc="look-ups at the most")
    budget: int = dspy.InputField(desc=_BUDGET)
    min_confidence: float = dspy.InputField(desc=_LEAST_CONFIDENCE)
    nodes: list[PlanNode] = dspy.OutputField(
        desc=_LOOK_UPS
        + '\nquery: such as "{person} birthplace", if an earlier look-up has produces ["person"]'
    )


class DraftQueryGraph(OfQuestion):
    """Plan every look-up that the question needs, before anything is found.

    Begin each query with the name of what is looked up. Each must make sense by itself.
    """

    max_nodes: int = dspy.InputField(desc="look-ups at the most")
    budget: int = dspy.InputField(desc=_BUDGET)
    min_confidence: float = dspy.InputField(desc=_LEAST_CONFIDENCE)
    nodes: list[LookUpNode] = dspy.OutputField(desc=_LOOK_UPS)


# The planner and the step definer of MA-RAG (Nguyen et al. 2025, arXiv:2505.20096). The definer
# folds earlier results in, since an aggregate is answered from its task alone.
class PlanSteps(OfQuestion):
    """Split the question into the fewest ordered steps that answer it, one fact each."""

    history: list[str] = dspy.InputField(
        desc="steps of earlier plans, with what they found and what failed; may be empty"
    )
    max_steps: int = dspy.InputField(desc="steps at the most")
    steps: list[str] = dspy.OutputField(
        desc="questions; later ones may refer to what earlier ones find out; none that the "
        "history answers"
    )


class DefineStep(OfQuestion):
    """Write the step of the plan as one question that makes sense by itself.

    Put the answers of earlier steps in where it needs them.
    """

    plan: list[str] = dspy.InputField(desc="all steps, in order")
    history: list[str] = dspy.InputField(desc="steps done, with their answers")
    step: str = dspy.InputField(desc="the step to write")
    kind: Literal["lookup", "aggregate"] = dspy.OutputField(
        desc="lookup: a fact must be found; aggregate: it follows from the answers of earlier steps"
    )
    task: str = dspy.OutputField(desc=f"one question; {NAMED}")
