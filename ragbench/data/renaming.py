"""Rename names and years one to one, by a key: the same questions about an unknown world.

A strong model has memorized Wikipedia. If every name in questions, passages and answers is a new
word, only the passages support an answer. No language model takes part.

- A word is a name if it has a capital inside sentences. Its new word has as many letters and is the
  same in every place and form (`Ada`, `ADA`, `Ada's`). No two names share a new word.
- A title that has only common words (`Range War`) is renamed where its words appear in sequence,
  except the word that is most frequent elsewhere: a question and a passage may share it.
- A country and its adjective get words that show their relation.
- Years move by one number of decades, so that ages, orders and "the 1990s" stay correct.

Unchanged are months, days, the words of `_KEPT` (parts of names such as `United States` are common
words), and words that are as often common words as names. Renaming them would change the question.

The idea of questions about replaced entities is from SeedRG (arXiv:2605.08838).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

#: A run of letters of any script; an apostrophe ends it, so that `Ada's` is `Ada` and `s`.
_WORD = re.compile(r"[^\W\d_]+")
#: Years, also of a decade (`1990s`); two digits behind a dash (`1939-45`) are the end of a span.
_YEAR = re.compile(r"(?<!\d)(1[0-9]{3}|20[0-9]{2})(?!\d)(?:([-\u2013/])(\d{2})(?!\d))?")
#: A word after one of these, or at the start of the text, may be capitalized for that reason.
_SENTENCE_END = re.compile(r"[.!?:;\u2026\"\u201c(\[]\s*$")
_BRACKETS = re.compile(r"\s*\([^()]*\)$")
#: Maximum share of lower-case uses of a name.
_COMMON_SHARE = 0.2
#: Shifts of years, in decades: never 0, and few years move to before 1000.
_DECADES = (-13, -11, -9, -7, -6, -4, 4, 6, 7)
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeiou"
_SHORTEST = 3
_KEPT_LINES = (
    "january february march april may june july august september october november december",
    "monday tuesday wednesday thursday friday saturday sunday",
    "america american united states kingdom britain british england english",
    "africa african asia asian europe european latin roman",
    "ii iii iv vi vii viii ix xi xii xiii xiv xv xvi bc ad",
)
_KEPT = frozenset(" ".join(_KEPT_LINES).split())
#: Countries with their adjectives, which no spelling rule derives.
_COUNTRIES = """
france french, germany german, italy italian, spain spanish, russia russian,
china chinese, japan japanese, india indian, canada canadian, wales welsh,
australia australian, mexico mexican, brazil brazilian, netherlands dutch, poland polish,
greece greek, turkey turkish, sweden swedish, norway norwegian, denmark danish,
finland finnish, austria austrian, switzerland swiss, hungary hungarian, portugal portuguese,
korea korean, israel israeli, egypt egyptian, ireland irish, scotland scottish,
belgium belgian, argentina argentine, iran iranian, iraq iraqi, pakistan pakistani,
romania romanian, ukraine ukrainian, thailand thai, vietnam vietnamese, philippines filipino,
cuba cuban, chile chilean, nigeria nigerian
"""
#: Endings of the new words for a country and its adjective.
_COUNTRY_ENDINGS = ("land", "landish")


class Renaming:
    """Renaming of the names in `texts`, by `key`.

    The same texts and key give the same words. Another key gives other words.
    """

    def __init__(self, texts: Iterable[str], titles: Iterable[str], key: str) -> None:
        if not key.strip():
            raise ValueError("the key of a renaming is blank")
        chance = random.Random(f"ragbench renaming {key}")
        uses = _count_uses(texts)
        titles = sorted(set(titles))
        titled = set()
        for title in titles:
            for word in _WORD.findall(title):
                titled.add(word.lower())
        self._uses = uses
        name_words = sorted(word for word in uses if uses[word].is_name(word in titled))
        self.years = 10 * chance.choice(_DECADES)
        new_words = _NewWords(frozenset(uses) | _KEPT, chance)
        self.words: Mapping[str, str] = new_words.of_names(name_words)
        self._titles = self._rename_titles(titles, new_words)
        self._back = self._plain_words()

    def __call__(self, text: str) -> str:
        """Replace every name, title of common words and year in `text`."""
        matches = list(_WORD.finditer(text))
        renamed = []
        end = 0
        titled: Mapping[int, str] = {}
        for place, match in enumerate(matches):
            titled = {**self._title_at(matches, place), **titled}
            renamed.append(text[end : match.start()])
            renamed.append(titled.get(place) or _replaced(match.group(), self.words))
            end = match.end()
        renamed.append(text[end:])
        return _YEAR.sub(lambda match: self._move_year(match, self.years), "".join(renamed))

    def undo(self, text: str) -> str:
        """Translate `text` of the renamed world back into the original words.

        An original name becomes its new word, so that a search for a memorized name finds nothing.
        """

        def plain(match: re.Match[str]) -> str:
            return _replaced(match.group(), self._back)

        def earlier(match: re.Match[str]) -> str:
            return self._move_year(match, -self.years)

        return _YEAR.sub(earlier, _WORD.sub(plain, text))

    def of(self, value: object) -> object:
        """Rename every text in `value`, which is JSON-like. Keys of objects are unchanged."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, list):
            return list(map(self.of, value))
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        return value

    def _rename_titles(
        self, titles: Iterable[str], new_words: _NewWords
    ) -> dict[str, dict[tuple[str, ...], dict[int, str]]]:
        """Return first word -> words of a title -> new words by place, for titles without a name.

        Words are in lower case. A final bracket is not part of a title.
        """
        renamed: dict[str, dict[tuple[str, ...], dict[int, str]]] = {}
        for title in sorted(titles, key=len, reverse=True):
            words = _WORD.findall(_BRACKETS.sub("", title))
            folded = tuple(word.lower() for word in words)
            if len(words) < 2 or folded in renamed.get(folded[0], {}):
                continue
            if not self.words.keys().isdisjoint(folded):
                continue
            places = []
            for place, word in enumerate(words):
                if len(word) >= _SHORTEST and word[0].isupper() and word.lower() not in _KEPT:
                    places.append(place)
            if len(places) > 1:
                common_uses = [
                    getattr(self._uses.get(folded[place]), "small", 0) for place in places
                ]
                del places[common_uses.index(max(common_uses))]
                renamed.setdefault(folded[0], {})[folded] = {
                    place: new_words.make(len(words[place])) for place in places
                }
        return renamed

    def _title_at(self, matches: Sequence[re.Match[str]], start: int) -> dict[int, str]:
        """Return the new words, by place, of the longest title that begins at `start`."""
        for words, changed in self._titles.get(matches[start].group().lower(), {}).items():
            span = [match.group() for match in matches[start : start + len(words)]]
            if tuple(word.lower() for word in span) == words:
                new_words = {}
                for place, new in changed.items():
                    new_words[start + place] = _in_letters_of(span[place], new)
                return new_words
        return {}

    def _plain_words(self) -> dict[str, str]:
        """Return new word -> original word, and for a name also the reverse."""
        plain = dict(self.words)
        for name, new in self.words.items():
            plain[new] = name
        for titles in self._titles.values():
            for words, places in titles.items():
                for place, new in places.items():
                    plain[new] = words[place]
        return plain

    def _move_year(self, match: re.Match[str], years: int) -> str:
        year = int(match.group(1))
        moved = str(year + years)
        if match.group(2) is None:
            return moved
        end = year - year % 100 + int(match.group(3)) + years
        return f"{moved}{match.group(2)}{end % 100:02d}"


class _Uses:
    """Uses of a word: capitalized inside or at the start of sentences, and in lower case."""

    __slots__ = ("capital", "opening", "small")

    def __init__(self) -> None:
        self.capital = 0
        self.opening = 0
        self.small = 0

    def is_name(self, titled: bool) -> bool:
        """Return True if the word is a name. Sentence openers must also be in a title."""
        if self.capital == 0:
            return titled and self.opening > 0 and self.small == 0
        return self.small <= _COMMON_SHARE * (self.small + self.capital)


def _count_uses(texts: Iterable[str]) -> dict[str, _Uses]:
    uses: dict[str, _Uses] = {}
    for text, copies in Counter(texts).items():
        for match in _WORD.finditer(text):
            word = match.group()
            folded = word.lower()
            if folded in _KEPT or len(folded) < _SHORTEST:
                continue
            use = uses.setdefault(folded, _Uses())
            if not word[0].isupper():
                use.small += copies
            elif match.start() == 0 or _SENTENCE_END.search(text, 0, match.start()):
                use.opening += copies
            else:
                use.capital += copies
    return uses


def _replaced(word: str, new_words: Mapping[str, str]) -> str:
    """Return the new word for `word` in the same case, or `word` if there is none."""
    new = new_words.get(word.lower())
    if new is None:
        return word
    return _in_letters_of(word, new)


def _in_letters_of(word: str, new: str) -> str:
    """Return `new` in the case of `word`: upper, capitalized or lower."""
    if word.isupper() and len(word) > 1:
        return new.upper()
    if word[0].isupper():
        return new.capitalize()
    return new


class _NewWords:
    """Generator of distinct pronounceable words that are not `taken`."""

    def __init__(self, taken: frozenset[str], chance: random.Random) -> None:
        self._used = set(taken)
        self._chance = chance

    def of_names(self, old_words: Iterable[str]) -> dict[str, str]:
        """Return a new word in lower case for each of `old_words`."""
        words: dict[str, str] = {name: self.make(len(name)) for name in old_words}
        for pair in _COUNTRIES.split(","):
            country, adjective = pair.split()
            if country in words or adjective in words:
                stem = self.make(4)
                words[country] = stem + _COUNTRY_ENDINGS[0]
                words[adjective] = stem + _COUNTRY_ENDINGS[1]
        return words

    def make(self, length: int) -> str:
        """Return a new word of `length` letters, or a longer one if those run out."""
        tries = 0
        word = self._pronounceable(length)
        while word in self._used:
            tries += 1
            if tries % 50 == 0:
                length += 1
            word = self._pronounceable(length)
        self._used.add(word)
        return word

    def _pronounceable(self, length: int) -> str:
        letters = []
        vowel = self._chance.random() < 0.25
        for _ in range(length):
            if vowel:
                letters.append(self._chance.choice(_VOWELS))
            else:
                letters.append(self._chance.choice(_CONSONANTS))
            vowel = not vowel
        return "".join(letters)
