"""Letters of programs in tables, figures and sentences: A scores most."""

from collections.abc import Sequence

#: Minimum number of letters of a range.
_RANGE = 4


def letter_of(rank: int) -> str:
    """Return the letter of the program at `rank`: A to Z, then AA, AB and so on."""
    letter = ""
    rank += 1
    while rank:
        rank, place = divmod(rank - 1, 26)
        letter = chr(ord("A") + place) + letter
    return letter


def rank_of(letter: str) -> int:
    """Return the rank of the program with this letter."""
    rank = 0
    for character in letter:
        rank = 26 * rank + ord(character) - ord("A") + 1
    return rank - 1


def joined(words: Sequence[str]) -> str:
    """Return words as a list in a sentence, such as "A, B and C"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def letter_ranges(letters: Sequence[str]) -> str:
    """Return letters as a list with ranges, such as "A, C to F and H"."""
    ranges: list[list[int]] = []
    for rank in sorted(map(rank_of, letters)):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1].append(rank)
        else:
            ranges.append([rank])
    words = []
    for together in ranges:
        names = list(map(letter_of, together))
        words += names if len(names) < _RANGE else [f"{names[0]} to {names[-1]}"]
    return joined(words)
