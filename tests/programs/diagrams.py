"""How a question goes through each program, as a page of the documentation.

python -m tests.programs.diagrams
"""

from pathlib import Path

from ragbench.experiments.diagrams import diagram
from ragbench.programs import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "diagrams.md"
HEAD = """# The programs as diagrams

`ragbench show program NAME --diagram` prints these: boxes are the program's predictors with the
fields that they take and give, arrows come from a rehearsal in which every reply is made up (no
model is asked). A solid arrow is gone whenever its box was reached, a dotted one sometimes; a box
without an arrow was not reached by a made-up reply. Each is of the program's first variant; your
own `FILE.py:Class` has one too.
"""


def chart(name: str) -> str:
    """The diagram of the program called `name`."""
    program = PROGRAMS.get(name)
    return diagram(program, next(iter(program.variants)))


def main() -> None:
    """Write the page."""
    parts = [HEAD]
    for name in sorted(PROGRAMS.names()):
        parts.append(f"## {name}\n\n```mermaid\n{chart(name)}\n```\n")
    PAGE.write_text("\n".join(parts), "utf-8")


if __name__ == "__main__":
    main()
