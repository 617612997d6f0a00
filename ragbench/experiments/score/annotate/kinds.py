"""The kinds of annotation by the name of their summary, for those who show one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragbench.experiments.score.annotate.annotator import Annotation
from ragbench.experiments.score.annotate.attribution import Attribution
from ragbench.experiments.score.annotate.calibration import describe_calibration
from ragbench.experiments.score.annotate.evidence import Evidence
from ragbench.experiments.score.annotate.grounding import Grounding
from ragbench.experiments.score.annotate.judging import METRIC_OF, Judging
from ragbench.experiments.score.annotate.statements import Statements

KINDS: Mapping[str, type[Annotation]] = {
    **{kind.name: kind for kind in (Attribution, Evidence, Grounding, Statements)},
    **dict.fromkeys(METRIC_OF.values(), Judging),
}


def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
    """The lines that a person reads of the summary called `name` in a scored run."""
    return [*KINDS[name].describe(name, summary), *describe_calibration(summary)]
