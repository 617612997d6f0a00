"""Prose of the package and its documentation stays as plain as it is; see CONTRIBUTING.md.

Each ceiling falls as a package is rewritten, down to `GOAL`. No ceiling may rise.
"""

import re
from pathlib import Path

import pytest

from tests.prose import measure, paragraphs_of, rate_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ragbench"
#: Matches per 1,000 words of docstrings and comments, and percent of docstrings that are clauses.
GOAL = (2.0, 2.5)
#: Package -> its ceilings, while they are above `GOAL`.
CEILINGS = {"signatures": (6.0, 2.8)}
#: Matches per 1,000 words of the worst page of the documentation, and of all pages together.
PAGES = (5.0, 1.5)


#: Former names of terms. The glossary (docs/glossary.md) has the current ones.
RETIRED = re.compile(
    r"\b(?:reads_all|bare_index|gave_up|not_shown|refused_rightly|refused_wrongly|right_of_answered|"
    r"without_evidence|departures?|handed_over|no difference shown)\b|--worth\b|--renamed\b"
)


@pytest.mark.parametrize(
    "folder", sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()),
    ids=lambda path: path.name,
)  # fmt: skip
def test_prose_of_package_is_below_its_ceiling(folder: Path) -> None:
    figures = measure(folder)
    dialect, clauses = CEILINGS.get(folder.name, GOAL)
    assert figures["dialect"] <= dialect, "rewrite what tests/prose.py matches"
    assert figures["clauses"] <= clauses, "begin a docstring with a verb or a noun"


def test_prose_of_documentation_is_below_its_ceiling() -> None:
    everything = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        paragraphs = list(paragraphs_of(page.read_text("utf-8")))
        assert rate_of(paragraphs) <= PAGES[0], page.name
        everything += paragraphs
    assert rate_of(everything) <= PAGES[1]


def test_terms_if_renamed_have_no_former_name() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.yaml"), *texts]:
        assert RETIRED.findall(path.read_text("utf-8")) == [], path


def test_measure_counts_dialect_and_not_code() -> None:
    plain = "Return the folder of a run. Raises an error if it does not exist."
    assert rate_of([plain]) == 0
    assert rate_of(["It is told what a person gave, where there is none."]) > 200
    assert rate_of(["Use `what it is` or ``where there is none``."]) == 0
