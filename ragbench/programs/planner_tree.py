"""The planner's tree of sub-questions, as plain data with the moves that change it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ragbench.metrics.text import tokens
from ragbench.programs.drivers import is_answer
from ragbench.signatures.types import TreeNode

ROOT = "n0"

_SPAN = re.compile(r"[A-Z0-9][\w'.&-]*(?: (?:(?:of|the|and|de|la|von|van) )*[A-Z0-9][\w'.&-]*)*")


_YES_NO = re.compile(
    r"(is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may)\b",
    re.IGNORECASE,
)


class Tree:
    """Nodes by id, in the order made; `active` is the id of the one in focus."""

    def __init__(self, question: str) -> None:
        self.nodes = {ROOT: TreeNode(id=ROOT, question=question)}
        self.active = ROOT

    @property
    def root(self) -> TreeNode:
        """The node of the question itself."""
        return self.nodes[ROOT]

    def node(self, node_id: str) -> TreeNode:
        """The node called `node_id`; the active one if there is none."""
        return self.nodes.get(node_id.strip(), self.nodes[self.active])

    def children(self, node: TreeNode) -> list[TreeNode]:
        """The children of `node`, pruned ones included."""
        return [n for n in self.nodes.values() if n.parent == node.id]

    def solved(self) -> list[TreeNode]:
        """The solved nodes, children before parents, else in the order made."""
        found = [n for n in self.nodes.values() if n.status == "solved"]
        return sorted(found, key=lambda n: -n.depth)

    def deepest_open(self) -> TreeNode | None:
        """The first of the deepest nodes that are neither solved nor pruned."""
        found = [n for n in self.nodes.values() if n.status == "open"]
        return max(found, key=lambda n: n.depth, default=None)

    def known_to(self, node: TreeNode) -> list[TreeNode]:
        """Solved nodes that bear on `node`: its ancestors, their and its elder sisters, children.

        A later sub-question usually asks about the answer of an earlier one.
        """
        known, at = [], node
        while at.parent:
            sisters = self.children(self.nodes[at.parent])
            known += sisters[: sisters.index(at)][::-1]
            at = self.nodes[at.parent]
            known.append(at)
        return [n for n in [*known[::-1], *self.children(node)] if n.status == "solved"]

    def add(
        self,
        parent: TreeNode,
        questions: Sequence[str],
        *,
        most: int,
        alike: Callable[[str, str], bool],
    ) -> list[TreeNode]:
        """New children of `parent`, up to `most` in all; a question `alike` a node's is dropped."""
        added: list[TreeNode] = []
        for question in (" ".join(q.split()) for q in questions):
            if len(self.children(parent)) >= most:
                break
            if question and not any(alike(question, n.question) for n in self.nodes.values()):
                node = TreeNode(
                    id=f"n{len(self.nodes)}",
                    parent=parent.id,
                    depth=parent.depth + 1,
                    question=question,
                )
                self.nodes[node.id] = node
                added.append(node)
        return added

    def prune_active(self) -> bool:
        """Give up the active node and all below it, and go to its parent; False at the root."""
        node = self.nodes[self.active]
        if not node.parent:
            return False
        doomed = [node]
        for each in doomed:
            each.status = "pruned"
            doomed += self.children(each)
        self.active = node.parent
        return True

    def shown(self) -> list[TreeNode]:
        """The nodes as the model sees them: those given up are left out."""
        return [n for n in self.nodes.values() if n.status != "pruned"]


def notes_of(nodes: Sequence[TreeNode]) -> list[str]:
    """Solved nodes as notes, "question: answer"."""
    return [f"{node.question.rstrip(' ?')}: {node.answer}" for node in nodes]


def is_poor(answer: str, question: str) -> bool:
    """Whether `answer` names nothing: blank, generic, or only words of the question.

    Yes and no are generic unless the question asks for them.
    """
    said = tokens(answer)
    if said in (["yes"], ["no"]):
        return not _YES_NO.match(question.strip())
    return not is_answer(answer) or set(said) <= set(tokens(question))


def best_entity(question: str, solved: Sequence[TreeNode]) -> str:
    """The capitalised span of the solved answers with the most support; blank if there is none.

    Support is the sum of the confidences of the nodes whose answer holds the span. Spans of the
    question are no answers; of equals the last found wins, since the last hop is nearest to the
    answer.
    """
    asked = f" {' '.join(tokens(question))} "
    support: dict[str, float] = {}
    ordered = sorted(solved, key=lambda n: int(n.id[1:]))
    for node in ordered:
        for span in _SPAN.findall(node.answer):
            name = " ".join(tokens(span))
            if name and f" {name} " not in asked:
                backing = [n.confidence for n in ordered if span in n.answer]
                support.pop(span, None)
                support[span] = sum(backing) + 1e-6 * len(backing)
    return max(reversed(support), key=lambda span: support[span], default="")
