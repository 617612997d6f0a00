"""The code stays as plain as it is: densities of the package's syntax trees."""

import ast
from collections import Counter

from tests.trees import trees

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Names that say nothing of what they are bound to.
VAGUE_LINES = (
    "made given told said shown kept found one each other others more whole part parts mine theirs",
    "his it what of about names left rest some known wanted asked took last first like",
)
VAGUE = frozenset(" ".join(VAGUE_LINES).split())


def _counts() -> Counter[str]:
    counts: Counter[str] = Counter()
    for path, tree in trees().items():
        lines = path.read_text("utf-8").splitlines()
        counts["lines"] += sum(bool(line.strip()) for line in lines)
        for node in ast.walk(tree):
            counts["nodes"] += 1
            counts["statements"] += isinstance(node, ast.stmt)
            counts["conditionals"] += isinstance(node, ast.IfExp)
            if isinstance(node, COMPREHENSIONS):
                counts["comprehensions"] += 1
                counts["nested"] += sum(isinstance(n, COMPREHENSIONS) for n in ast.walk(node)) - 1
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                pair = (node.targets[0], node.value)
                counts["tuples"] += all(isinstance(side, ast.Tuple) for side in pair)
            name = ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            counts["bound"] += bool(name)
            counts["vague"] += name in VAGUE
    return counts


def test_the_code_is_plain() -> None:
    counts = _counts()
    thousand = counts["lines"] / 1000
    densities = {
        "nodes a statement": (counts["nodes"] / counts["statements"], 10.9),
        "comprehensions in 1,000 lines": (counts["comprehensions"] / thousand, 30),
        "comprehensions within another": (counts["nested"], 0),
        "conditional expressions in 1,000 lines": (counts["conditionals"] / thousand, 14),
        "tuple assignments in 1,000 lines": (counts["tuples"] / thousand, 1.2),
        "vague names in 100": (100 * counts["vague"] / counts["bound"], 0.6),
    }
    too_dense = {name: pair for name, pair in densities.items() if pair[0] > pair[1]}
    assert not too_dense, "write it in plain statements, and name things by what they are"
