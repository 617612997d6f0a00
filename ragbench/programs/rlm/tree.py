"""The tree of sub-questions that `rlm` grows: its nodes and its size."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragbench.data import question_key
from ragbench.programs.core import is_answer
from ragbench.signatures import TreeNode


@dataclass
class Solved:
    """A node's answer, the calls it took, and the nodes it made."""

    answer: str
    calls: int
    nodes: list[TreeNode] = field(default_factory=list)


@dataclass(frozen=True)
class Branch:
    """A node to be solved: what it asks, where it stands, and the calls it may spend."""

    question: str
    id: str
    calls: int
    depth: int = 0
    ancestors: tuple[str, ...] = ()

    def child(self, number: int, question: str, calls: int) -> Branch:
        """The branch of sub-question `number`, which may spend `calls`."""
        key = question_key(self.question)
        return Branch(
            question, f"{self.id}.{number}", calls, self.depth + 1, (*self.ancestors, key)
        )

    def node(self, answer: str) -> TreeNode:
        """What the record keeps of it."""
        return TreeNode(
            id=self.id,
            parent=self.id.rpartition(".")[0],
            depth=self.depth,
            question=self.question,
            status="solved" if is_answer(answer) else "open",
            answer=answer,
        )


def full_tree(breadth: int, levels: int) -> int:
    """LM calls of a tree in which every node above the last level splits: nodes + combinations."""
    widths = [1]
    for _ in range(levels):
        widths.append(widths[-1] * breadth)
    return sum(widths) + sum(widths[:-1])
