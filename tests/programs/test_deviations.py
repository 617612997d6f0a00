"""Check the deviations of programs from their sources.

`python -m tests.programs.test_deviations` rewrites the section of docs/programs.md.
"""

from pathlib import Path

import pytest

from ragbench.programs import PROGRAMS
from ragbench.programs.core.deviations import Source, sources

DOCS = Path(__file__).parents[2] / "docs/programs.md"
HEADING = "## Deviations from the sources\n"


def row(name: str, source: Source) -> str:
    """Return the row of the table that documents `source`."""
    cells = []
    for deviation in source.deviations:
        undo = f" (`{deviation.undo}`)" if deviation.undo else ""
        cells.append(f"{deviation.theirs} → {deviation.ours}{undo}")
    text = "<br>".join(cells).replace("|", r"\|")
    return f"| `{name}` | {text} |"


def section() -> str:
    """Return the section of docs/programs.md that lists the deviations."""
    lines = [
        HEADING,
        "Generated from `ragbench/programs/programs.yaml`: behavior of the source → behavior of",
        "ragbench (parameters that undo it). A protocol prints the deviations that apply to a run.",
        "",
        "| program | deviations |",
        "|---|---|",
        *(row(name, source) for name, source in sources().items() if source.deviations),
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
    for deviation in sources()[name].deviations:
        assert set(deviation.variants) <= set(program.variants)
        variant = {"variant": deviation.variants[0]} if deviation.variants else {}
        usual = program.resolve_knobs(variant).model_dump()
        assert deviation.holds(usual), "it is undone by default"
        if deviation.undo:
            undone = program.resolve_knobs({**variant, **deviation.knobs}).model_dump()
            assert not deviation.holds(undone)


if __name__ == "__main__":
    written = DOCS.read_text("utf-8").partition(HEADING)[0].rstrip() + "\n\n"
    DOCS.write_text(written + section(), "utf-8")
