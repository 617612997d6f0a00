"""Comparisons of runs with the first one: scores, corrected over the family, and costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.family import SPENDING, comparable, make_family
from ragbench.experiments.compare.paired import MEASURES, Arm, Shared, read_for
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, HEADLINE, Evaluation
from ragbench.metrics import Comparison, Method, correct, get_metric

#: Condition of a gate: it refuses a run that is worse, or one that is not better.
Gate = Literal["worse", "not-better"]


@dataclass(frozen=True)
class RunComparison:
    """Comparison of run B with run A over the same questions.

    Attributes:
        a: Run A. Its first repeat, if it has several.
        b: Run B, likewise.
        scores: Comparison by metric, with p-values corrected over the family (Holm).
        costs: Comparison by measure of cost, with an interval and without a verdict.
        fixed: Questions that only B answered exactly right.
        broken: Questions that only A answered exactly right.
        gold_in_context: Comparison of gold passages in context. None if unknown.
        arms: All repeats of A and of B, on which `scores` are based.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    gold_in_context: Comparison | None = None
    arms: tuple[Arm, Arm] = ((), ())

    @property
    def places(self) -> tuple[str, str]:
        """Folder of each side, with the number of repeats if there are several."""
        words = []
        for run, arm in ((self.a, self.arms[0]), (self.b, self.arms[1])):
            if len(arm) > 1:
                words.append(f"{run.folder.parent}, {len(arm)} repeats")
            else:
                words.append(str(run.folder))
        return words[0], words[1]

    def refused(self, gate: Gate) -> str:
        """Return why `gate` refuses run B, in one line; empty if it passes.

        A difference that is significantly within the margin counts as none.
        """
        for name, c in self.scores.items():
            outcome = "equivalent" if c.slight else c.outcome
            if outcome == "worse" or (gate == "not-better" and outcome != "better"):
                return (
                    f"gate {gate}: {name} of {self.b.folder} against {self.a.folder}, "
                    f"{c.gain}: {c.verdict}"
                )
        return ""


def check_gate(metrics: Sequence[str]) -> None:
    """Refuse a gate on a metric that is not tested.

    Raises:
        ConfigError: One of `metrics` has no bounds, such as a cost.
    """
    for name in metrics:
        if get_metric(name).score_range is None:
            raise ConfigError(
                f"--gate cannot judge {name}: it has no bounds, so it is not tested; "
                "give --metric f1 or em"
            )


def compare_all(
    runs: Sequence[Evaluation | Arm],
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    margin: float | None = None,
) -> list[RunComparison]:
    """Compare each further run with the first. The tests of a metric are one family.

    Args:
        runs: Runs, or the repeats of a run. The first is the baseline.
        metrics: Metrics to compare.
        common: True compares only the questions that all runs have.
        margin: Difference that is too small to matter, in metric units.

    Raises:
        CompareError: The runs have different data or questions, or different judges.
    """
    if len(runs) < 2:
        raise CompareError("give two runs or more; the first is the baseline")
    arms = [[run] if isinstance(run, Evaluation) else run for run in runs]
    for arm in arms:
        for run in arm:
            read_for(run, [*metrics, *SPENDING, GOLD_IN_CONTEXT])
    places, _ = comparable(arms)
    members = {at: number for number, at in enumerate(places)}
    questions: dict[int, Shared] = {}
    for at, arm in enumerate(arms[1:], 1):
        rivals = [arm]
        if common and 0 in members and at in members:
            rivals = [arms[place] for place in places]
        questions[at] = Shared.by(chain(arms[0], *rivals), common=common)
    scores: dict[int, dict[str, Comparison]] = {at: {} for at in questions}
    for metric in metrics:
        family = None
        if len(places) > 1:
            family = make_family([arms[at] for at in places], metric, common=common, margin=margin)
        outside = {}
        for at, shared in questions.items():
            test = family.between(members.get(0), members.get(at)) if family else None
            if test is None:
                outside[at] = shared.compare(arms[0], arms[at], metric, Method(margin=margin))
            else:
                scores[at][metric] = test
        extra = list(outside.values())
        corrected = family.beside(extra) if family else correct(extra)
        for at, test in zip(outside, corrected, strict=True):
            scores[at][metric] = test
    return [_compared(arms[0], arms[at], questions[at], scores[at]) for at in questions]


def _compared(a: Arm, b: Arm, shared: Shared, scores: Mapping[str, Comparison]) -> RunComparison:
    gold_in_context = None
    if GOLD_IN_CONTEXT not in scores and shared.complete([*a, *b], GOLD_IN_CONTEXT)[0]:
        gold_in_context = shared.compare(a, b, GOLD_IN_CONTEXT)
    costs = {name: shared.cost(a, b, measure) for name, measure in MEASURES.items()}
    fixed, broken = shared.changed(a, b)
    return RunComparison(a[0], b[0], scores, costs, fixed, broken, gold_in_context, (a, b))
