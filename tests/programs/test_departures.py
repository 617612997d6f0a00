"""Check the deviations of programs from their sources.

`python -m tests.programs.test_departures` rewrites the section of docs/programs.md.
"""

from pathlib import Path

import pytest

from ragbench.programs import PROGRAMS
from ragbench.programs.core.departures import Source, sources

DOCS = Path(__file__).parents[2] / "docs/programs.md"
HEADING = "## Deviations from the sources\n"


def row(name: str, source: Source) -> str:
    """Return the row of the table that documents `source`."""
    cells = []
    for departure in source.departures:
        undo = f" (`{departure.undo}`)" if departure.undo else ""
        cells.append(f"{departure.theirs} → {departure.ours}{undo}")
    text = "<br>".join(cells).replace("|", r"\|")
    return f"| `{name}` | {text or 'none'} |"


def section() -> str:
    """Return the section of docs/programs.md that lists the deviations."""
    lines = [
        HEADING,
        "Generated from `ragbench/programs/programs.yaml`: behavior of the source → behavior of",
        "ragbench (parameters that undo it). A protocol prints the deviations that apply to a run.",
        "",
        "| program | deviations |",
        "|---|---|",
        *(row(name, source) for name, source in sources().items()),
        "",
    ]
    return "\n".join(lines)


def test_every_program_has_its_source_and_the_docs_are_made_from_it() -> None:
    assert set(sources()) == {name for name, _ in PROGRAMS}
    text = DOCS.read_text("utf-8")
    assert text[text.index(HEADING) :] == section()


@pytest.mark.parametrize("name", sources())
def test_what_undoes_a_departure_are_knobs_of_the_program(name: str) -> None:
    program = PROGRAMS.get(name)
    for departure in sources()[name].departures:
        assert set(departure.variants) <= set(program.variants)
        variant = {"variant": departure.variants[0]} if departure.variants else {}
        usual = program.resolve_knobs(variant).model_dump()
        assert departure.holds(usual), "it is undone by default"
        if departure.undo:
            undone = program.resolve_knobs({**variant, **departure.knobs}).model_dump()
            assert not departure.holds(undone)


if __name__ == "__main__":
    written = DOCS.read_text("utf-8").partition(HEADING)[0].rstrip() + "\n\n"
    DOCS.write_text(written + section(), "utf-8")
