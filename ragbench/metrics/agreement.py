"""How far raters agree beyond chance: Cohen's kappa (1960) and Krippendorff's alpha (2011)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def cohens_kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two raters over the same items, at most 1.

    None where it is not defined: no items, or both gave every item one and the same label.

    Raises:
        ValueError: the sequences differ in length.
    """
    pairs = list(zip(a, b, strict=True))
    if not pairs:
        return None
    n = len(pairs)
    observed = sum(x == y for x, y in pairs) / n
    left, right = Counter(a), Counter(b)
    expected = sum(left[label] * right[label] for label in left) / n**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(items: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Krippendorff's nominal alpha; `items` has the labels that each item got, None for missing.

    Items with fewer than two labels say nothing and are left out. None where it is not defined: no
    such item, or only one label in all.
    """
    rated = [[label for label in labels if label is not None] for labels in items]
    rated = [labels for labels in rated if len(labels) > 1]
    totals = Counter(label for labels in rated for label in labels)
    n = totals.total()
    if len(totals) < 2:
        return None
    observed = sum(_disagreeing(Counter(labels)) / (len(labels) - 1) for labels in rated) / n
    expected = _disagreeing(totals) / (n * (n - 1))
    return 1 - observed / expected


def _disagreeing(counts: Counter[Hashable]) -> int:
    """Ordered pairs of values that differ."""
    return counts.total() ** 2 - sum(count**2 for count in counts.values())
