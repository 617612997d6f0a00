"""The page of diagrams is of the programs as they are."""

import re

import pytest

from ragbench.programs import PROGRAMS
from tests.programs.diagrams import PAGE, chart


def test_the_page_has_a_diagram_of_every_program() -> None:
    assert re.findall(r"^## (\w+)$", PAGE.read_text("utf-8"), re.MULTILINE) == sorted(
        PROGRAMS.names()
    )


@pytest.mark.parametrize("name", ["vanilla", "ircot", "planner", "reap", "lookahead"])
def test_a_changed_program_is_drawn_anew(name: str) -> None:
    diagram = f"## {name}\n\n```mermaid\n{chart(name)}\n```\n"
    assert diagram in PAGE.read_text("utf-8"), "write it by python -m tests.programs.diagrams"
