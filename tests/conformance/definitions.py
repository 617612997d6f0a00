"""Published definitions of answer metrics, written a second time and in another way.

These are slow on purpose: characters are scanned one by one, bags are emptied word by word and
ratios are exact fractions, so that a slip in the package is not repeated here.
"""

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby, permutations

ASCII_PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
ARTICLES = ("a", "an", "the")


def words(text: str) -> list[str]:
    """Lower case; ASCII punctuation dropped; whole-word articles blanked; split at white space."""
    kept = [c for c in text.lower() if c not in ASCII_PUNCTUATION]
    out = ""
    for alphanumeric, run in groupby(kept, key=str.isalnum):
        piece = "".join(run)
        out += " " if alphanumeric and piece in ARTICLES else piece
    return out.split()


def exact(pred: str, gold: str) -> int:
    return 1 if words(pred) == words(gold) else 0


def overlap(pred: list[str], gold: list[str]) -> Fraction:
    """F1 of two bags as the harmonic mean of precision and recall, exactly."""
    left, shared = list(gold), 0
    for word in pred:
        if word in left:
            left.remove(word)
            shared += 1
    if shared == 0:
        return Fraction(0)
    precision, recall = Fraction(shared, len(pred)), Fraction(shared, len(gold))
    return 2 * precision * recall / (precision + recall)


def hotpot_f1(pred: str, gold: str) -> Fraction:
    sides = {" ".join(words(pred)), " ".join(words(gold))}
    if len(sides) == 2 and sides & {"yes", "no", "noanswer"}:
        return Fraction(0)
    return overlap(words(pred), words(gold))


def squad_f1(pred: str, gold: str) -> Fraction:
    return overlap(words(pred), words(gold))


def musique_f1(pred: str, gold: str) -> Fraction:
    if not words(pred) and not words(gold):
        return Fraction(1)
    return overlap(words(pred), words(gold))


def as_number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def drop_words(span: str) -> list[str]:
    out: list[str] = []
    for piece in span.lower().replace("-", " ").split(" "):
        if as_number(piece) is None:
            piece = "".join(c for c in piece if c not in ASCII_PUNCTUATION)
        number = as_number(piece)
        if number is not None:
            out.append(str(number))
        else:
            runs = [
                "".join(run) for _, run in groupby(piece, key=lambda c: c.isalnum() or c == "_")
            ]
            out += "".join(" " if run in ARTICLES else run for run in runs).split()
    return out


def drop_span_f1(pred: str, gold: str) -> Fraction:
    mine, theirs = set(drop_words(pred)), set(drop_words(gold))
    needed = {word for word in theirs if as_number(word) is not None}
    if needed and needed.isdisjoint(mine):
        return Fraction(0)
    precision = Fraction(len(mine & theirs), len(mine)) if mine else Fraction(1)
    recall = Fraction(len(mine & theirs), len(theirs)) if theirs else Fraction(1)
    return 2 * precision * recall / (precision + recall) if precision + recall else Fraction(0)


def drop_f1(pred: list[str], gold: list[str]) -> Fraction:
    """The best one-to-one match by trying all of them, before rounding."""
    size = max(len(pred), len(gold))
    rows: list[str | None] = [*gold, *[None] * (size - len(gold))]
    columns: list[str | None] = [*pred, *[None] * (size - len(pred))]
    totals = [
        sum(
            (
                drop_span_f1(p, g)
                for p, g in zip(order, rows, strict=True)
                if p is not None and g is not None
            ),
            Fraction(0),
        )
        for order in permutations(columns)
    ]
    return max(totals) / size


def drop_exact(pred: list[str], gold: list[str]) -> int:
    left = {" ".join(drop_words(p)) for p in pred}
    right = {" ".join(drop_words(g)) for g in gold}
    return 1 if left == right and len(pred) == len(gold) else 0


VOCABULARY = (
    "a", "an", "the", "A", "The", "THE", "yes", "no", "Yes", "NO", "noanswer", "No Answer",
    "yes.", "no!", "not", "York", "york", "New York", "new-york", "New-York City", "York's",
    "1", "1.0", "1.00", "01", "1,000", "1000", "1e3", "-5", "5", "$5", "5%", "nan", "inf",
    "infinity", "1_000", "\u0661\u0662", "\u00bd", "2nd", "12 May 1990", "May 12, 1990", "1990s",
    "caf\u00e9", "cafe\u0301", "CAF\u00c9", "\u00c5", "A\u030a", "\u0130stanbul", "stra\u00dfe",
    "STRASSE", "a\u2013b", "\u201cthe\u201d", "O\u2019Brien", "O'Brien", "a\u0301", "\ufb01n",
    "\u6771\u4eac", "\u3000", "\u00a0", "\t", "\n", "", " ", "...", "!?", "_", "a_b", "the_",
    "(the)", "[a, b]", '"x"', "\u200b", "the the", "x", "x x", "x x x", "y", "x y", "y x",
    "the answer is: x.", "so the answer is yes.",
)  # fmt: skip


def adversarial_pairs(n: int, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """`n` predictions with one to three gold answers, made of words that hit special cases."""
    rng = random.Random(seed)

    def text() -> str:
        glue = rng.choice([" ", " ", " ", "", "-", ", ", "  ", "\u2013"])
        return glue.join(rng.choices(VOCABULARY, k=rng.choice([0, 1, 1, 2, 3, 5])))

    for _ in range(n):
        pred = text()
        golds = [text() for _ in range(rng.choice([1, 1, 2, 3]))]
        if rng.random() < 0.4:  # near misses: the same words in another order, case or dress
            parts = pred.split(" ")
            rng.shuffle(parts)
            golds[0] = rng.choice([pred.upper(), " ".join(parts), f"the {pred}.", pred + " x"])
        yield pred, golds
