"""The planner's tree of sub-questions as plain data, and what makes an answer a poor one."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from ragbench.metrics import contains, tokens
from ragbench.passages import Passage
from ragbench.programs.core import Passages, each_once, is_answer, is_repeat
from ragbench.programs.core.text import answers_used, one_line, with_answers
from ragbench.signatures import TreeNode

ROOT = "n0"

#: Minimum confidence of the answer of a solved node.
SOLVED = 0.3
#: Minimum share of common words of a repeated question.
ALIKE = 0.85
#: Passages stored with a solved node and shown with its answer.
_PROOFS = 2

_SPAN = re.compile(r"[A-Z0-9][\w'.&-]*(?: (?:(?:of|the|and|de|la|von|van) )*[A-Z0-9][\w'.&-]*)*")
_YES_NO = re.compile(
    r"(is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may)\b",
    re.IGNORECASE,
)


class SubQuestion(TreeNode):
    """A sub-question. `number` is its position among its siblings, from 1, and 0 for the root.

    `filled` is the question with filled placeholders, as last asked. `refused` is the reason why
    its last split was rejected.
    """

    number: int = 0
    tries: int = 0
    filled: str = ""
    refused: str = ""
    passages: list[Passage] = Field(default=[])

    def record(self) -> dict[str, Any]:
        return self.model_dump(include=set(TreeNode.model_fields))

    def learn(self, answer: str, confidence: float, passages: Passages) -> None:
        """Store an answer and its proofs, unless the stored answer is more confident.

        Args:
            answer: Answer to the sub-question.
            confidence: Confidence in [0, 1]. The node is solved from `SOLVED` on.
            passages: Passages of the prompt. Those that contain the answer are its proofs.
        """
        if not is_answer(answer) or confidence < self.confidence:
            return
        self.answer = answer
        self.confidence = confidence
        proofs = [passage for passage in passages if contains(str(passage), answer)]
        self.passages = (proofs or list(passages))[:_PROOFS]
        if confidence >= SOLVED:
            self.status = "solved"

    @property
    def note(self) -> str:
        return f"{(self.filled or self.question).rstrip(' ?')}: {self.answer}"

    @property
    def line(self) -> str:
        relation = f" (part of {self.parent})" if self.parent else ""
        state = "not found" if self.tries else "open"
        if self.answer:
            state = f"{self.answer} (confidence {self.confidence:.1f})"
        if self.refused:
            state += f"; split refused: {self.refused}"
        return f"{self.id}{relation}: {self.filled or self.question} -> {state}"


class Tree:
    """Nodes by id, in order of creation. `active` is the id of the current node."""

    def __init__(self, question: str) -> None:
        self.nodes = {ROOT: SubQuestion(id=ROOT, question=question)}
        self.active = ROOT

    @property
    def root(self) -> SubQuestion:
        return self.nodes[ROOT]

    def children(self, node: SubQuestion) -> list[SubQuestion]:
        return [n for n in self.nodes.values() if n.parent == node.id]

    def solved(self) -> list[SubQuestion]:
        return [n for n in self.nodes.values() if n.status == "solved"]

    def has_open_leaf(self) -> bool:
        """Return True if a node below the root is open and has no children."""
        below = (n for n in self.nodes.values() if n.parent and n.status == "open")
        return any(not self.children(n) for n in below)

    def known_to(self, node: SubQuestion) -> list[SubQuestion]:
        """List the solved nodes that are relevant to `node`.

        These are its ancestors, their siblings and its own, and its children. A later sub-question
        usually asks about the answer of an earlier one.
        """
        earlier = []
        at = node
        while at.parent:
            parent = self.nodes[at.parent]
            earlier += [*reversed([n for n in self.children(parent) if n is not at]), parent]
            at = parent
        return [n for n in [*earlier[::-1], *self.children(node)] if n.status == "solved"]

    def asked(self, node: SubQuestion, count: Callable[[str], None]) -> str:
        """Return a sub-question with the answers of its siblings filled in.

        Args:
            node: The sub-question.
            count: Function that counts events.
        """
        if not node.parent:
            return node.question
        sisters = self.children(self.nodes[node.parent])
        questions = {n.number: n.question if n is node else n.filled or n.question for n in sisters}
        answers = {n.number: n.answer for n in sisters}
        return with_answers(node.question, questions, answers, count)

    def add(self, parent: SubQuestion, questions: Sequence[str], *, most: int) -> list[SubQuestion]:
        """Add children to `parent`, without repeats of existing questions.

        If a part refers to the answer of an omitted part, the entire split is rejected.

        Args:
            parent: The node to split.
            questions: Sub-questions. Each keeps its number, which placeholders refer to.
            most: Maximum number of children of `parent`.

        Returns:
            The new nodes.
        """
        sisters = self.children(parent)
        highest = max((child.number for child in sisters), default=0)
        new = dict[int, str]()
        for number, text in enumerate(questions, start=highest + 1):
            question = one_line(text)
            # {1} has a different meaning under each parent, so compare only siblings.
            earlier = sisters if answers_used(question) else list(self.nodes.values())
            existing = [*(node.question for node in earlier), *new.values()]
            if not question or any(
                is_repeat(question, existing_question, ALIKE) for existing_question in existing
            ):
                continue
            if len(sisters) + len(new) < most:
                new[number] = question
        numbers = {*new, *(child.number for child in sisters)}
        parent.refused = ""
        for number, question in new.items():
            lost = [used for used in answers_used(question) if used not in numbers - {number}]
            if lost:
                parent.refused = f"part {number} needs part {lost[0]}, which repeats a node"
                return []
        added = []
        for number, question in new.items():
            name = f"n{len(self.nodes)}"
            above = {"parent": parent.id, "depth": parent.depth + 1}
            self.nodes[name] = SubQuestion(id=name, question=question, number=number, **above)
            added.append(self.nodes[name])
        return added

    def close_above(self, node: SubQuestion) -> None:
        """Solve the ancestors of `node` below the root whose children are all solved.

        The answer is the last child's if that child uses an earlier answer, else those of all. Only
        the model answers the root.
        """
        parent = self.nodes.get(node.parent)
        if parent is None or not parent.parent or parent.status != "open":
            return
        children = self.children(parent)
        if any(child.status != "solved" for child in children):
            return
        chain = bool(answers_used(children[-1].question))
        parent.filled = parent.filled or self.asked(parent, lambda _: None)
        parent.answer = "; ".join(n.answer for n in (children[-1:] if chain else children))
        parent.confidence = min(child.confidence for child in children)
        parent.passages = each_once(p for n in children for p in n.passages)
        parent.status = "solved"
        self.close_above(parent)

    def prune_active(self) -> bool:
        """Prune the active node and its subtree, and move to its parent. Not at the root."""
        node = self.nodes[self.active]
        if not node.parent:
            return False
        doomed = [node]
        for member in doomed:
            member.status = "pruned"
            doomed += self.children(member)
        self.active = node.parent
        return True

    def lines(self) -> list[str]:
        return [n.line for n in self.nodes.values() if n.status != "pruned"]


def is_poor(answer: str, question: str) -> bool:
    """Return True if an answer is blank, a refusal, or repeats only words of the question.

    Yes and no are poor if the question does not ask for them.

    Args:
        answer: Answer of a sub-question.
        question: Text of the sub-question.
    """
    words = tokens(answer)
    if words in (["yes"], ["no"]):
        return not _YES_NO.match(question.strip())
    return not is_answer(answer) or set(words) <= set(tokens(question))


def best_entity(question: str, solved: Sequence[SubQuestion]) -> str:
    """Return the capitalized span of the solved answers with the most support, or blank.

    The support is the summed confidence of the nodes whose answer contains the span. Spans of the
    question are excluded. If spans tie, the last one wins, because the last hop is nearest to the
    answer.

    Args:
        question: Text of the question.
        solved: Solved sub-questions.
    """
    padded = f" {' '.join(tokens(question))} "
    support: dict[str, float] = {}
    ordered = sorted(solved, key=lambda n: int(n.id[1:]))
    for span in (span for node in ordered for span in _SPAN.findall(node.answer)):
        name = " ".join(tokens(span))
        if name and f" {name} " not in padded:
            backing = [n.confidence for n in ordered if span in n.answer]
            support.pop(span, None)
            support[span] = sum(backing) + 1e-6 * len(backing)
    return max(reversed(support), key=lambda span: support[span], default="")
