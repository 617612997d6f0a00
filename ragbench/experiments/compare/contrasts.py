"""Contrasts that an experiment names in advance, tested together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import Arm, Shared
from ragbench.metrics import Comparison, Method, correct


@dataclass(frozen=True)
class Contrast:
    """Comparison of an arm with its baseline, by metric.

    If the two cannot be compared, `why` has the reason and `scores` is empty.
    """

    cell: str
    baseline: str
    scores: Mapping[str, Comparison] = field(default_factory=dict)
    why: str = ""


def compare_arms(
    pairs: Iterable[tuple[str, str]],
    arms: Mapping[str, Arm | str],
    metrics: Sequence[str],
    method: Method,
) -> list[Contrast]:
    """Compare arms with their baselines. All tests are one family (Holm).

    Args:
        pairs: Name of an arm and of its baseline.
        arms: Runs of each arm, or the reason that it has none.
        metrics: Metrics to compare.
        method: Statistical method.
    """
    tests: dict[tuple[str, str, str], Comparison] = {}
    reasons: dict[tuple[str, str], str] = {}
    for pair in pairs:
        b, a = (arms[name] for name in pair)
        try:
            if isinstance(a, str) or isinstance(b, str):
                raise CompareError(a if isinstance(a, str) else str(b))
            shared = Shared.by([*a, *b], common=False)
            tests |= {(*pair, name): shared.compare(a, b, name, method) for name in metrics}
            reasons[pair] = ""
        except CompareError as error:
            reasons[pair] = str(error)
    corrected = dict(zip(tests, correct(list(tests.values())), strict=True))
    contrasts = []
    for pair, why in reasons.items():
        scores = {} if why else {name: corrected[(*pair, name)] for name in metrics}
        contrasts.append(Contrast(*pair, scores, why))
    return contrasts
