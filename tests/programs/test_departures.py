"""Check the deviations of programs from their sources.

`python -m tests.programs.test_departures` rewrites the section of docs/programs.md.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragbench.programs import PROGRAMS
from ragbench.programs.core.departures import Source, sources

DOCS = Path(__file__).parents[2] / "docs/programs.md"
HEADING = "## Deviations from the sources\n"


def markdown(source: Source) -> Iterator[str]:
    """Yield the lines that document `source`."""
    yield f"Source: {source.source}."
    yield ""
    if not source.departures:
        yield "No deviation."
        return
    for departure in source.departures:
        undo = f" (undo: `{departure.undo}`)" if departure.undo else ""
        yield f"- {departure.theirs} → {departure.ours}{undo}"


def section() -> str:
    """Return the section of docs/programs.md that lists the deviations."""
    lines = [
        HEADING,
        "Generated from `ragbench/programs/programs.yaml`. `ragbench show program NAME` also",
        "prints the place in the source. A protocol prints the deviations that apply to a run.",
        "Each line has the form: behavior of the source → behavior here (parameters that undo it).",
        "",
    ]
    for name, source in sources().items():
        lines += [f"### {name}", "", *markdown(source), ""]
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
