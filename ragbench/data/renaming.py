"""Names and years changed one to one by a key: the same questions about a world nobody has read of.

A strong model knows Wikipedia by heart. Where every name of a data set is another word, in
questions, passages and answers alike, what is left to answer from is the passages. No language
model takes part.

- A word is a name where it is written with a capital inside sentences. Its new word has as many
  letters, is the same in every place and form (`Ada`, `ADA`, `Ada's`), and no two names share one.
- A title of common words alone (`Range War`) is renamed wherever its words follow each other, but
  for the word that is used most by itself: a question and a passage may share it.
- A country and its adjective get words that show that they belong together.
- Years move by one number of decades, so that ages, orders and "the 1990s" stay right.

Kept are months and days, the words of `_KEPT` (whose parts, as in `United States`, are common
words), and words that are as often common words as names: the meaning of a question would go too.

The idea of asking about replaced entities is that of SeedRG (arXiv:2605.08838).
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
#: A word behind one of these, or at the start of the text, may have its capital from there.
_SENTENCE_END = re.compile(r"[.!?:;\u2026\"\u201c(\[]\s*$")
_BRACKETS = re.compile(r"\s*\([^()]*\)$")
#: Of the uses of a name inside sentences at most this share is in small letters.
_COMMON_SHARE = 0.2
#: Decades that years may move by, back or forth: never nothing, and few years to before 1000.
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
#: Countries with their adjectives, which no rule of spelling leads from one to the other.
_COUNTRIES = (
    *("france french", "germany german", "italy italian", "spain spanish", "russia russian"),
    *("china chinese", "japan japanese", "india indian", "canada canadian", "wales welsh"),
    *("australia australian", "mexico mexican", "brazil brazilian", "netherlands dutch"),
    *("poland polish", "greece greek", "turkey turkish", "sweden swedish", "norway norwegian"),
    *("denmark danish", "finland finnish", "austria austrian", "switzerland swiss"),
    *("hungary hungarian", "portugal portuguese", "korea korean", "israel israeli"),
    *("egypt egyptian", "ireland irish", "scotland scottish", "belgium belgian"),
    *("argentina argentine", "iran iranian", "iraq iraqi", "pakistan pakistani"),
    *("romania romanian", "ukraine ukrainian", "thailand thai", "vietnam vietnamese"),
    *("philippines filipino", "cuba cuban", "chile chilean", "nigeria nigerian"),
)
#: Endings of the new words for a country and its adjective.
_COUNTRY_ENDINGS = ("land", "landish")


class Renaming:
    """New words for the names that stand in `texts`, by `key`.

    The same texts and key give the same words; another key gives others.
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
        """Returns `text` with every name, title of common words and year replaced."""
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
        """Returns `text` of the renamed world in the words of the plain one.

        A plain name becomes its new word: who asks for one by heart finds nothing.
        """

        def plain(match: re.Match[str]) -> str:
            return _replaced(match.group(), self._back)

        def earlier(match: re.Match[str]) -> str:
            return self._move_year(match, -self.years)

        return _YEAR.sub(earlier, _WORD.sub(plain, text))

    def of(self, value: object) -> object:
        """Returns `value`, JSON-like, with every text in it renamed; keys of objects stay."""
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
        """Returns first word -> words of a title -> new words by place, of those without a name.

        Words are in small letters; what stands in brackets at the end of a title is not of it.
        """
        renamed: dict[str, dict[tuple[str, ...], dict[int, str]]] = {}
        for title in sorted(titles, key=len, reverse=True):
            words = _WORD.findall(_BRACKETS.sub("", title))
            folded = tuple(word.lower() for word in words)
            if len(words) < 2 or folded in renamed.get(folded[0], {}) or self._has_name(words):
                continue
            places = []
            for place, word in enumerate(words):
                if len(word) >= _SHORTEST and word[0].isupper() and word.lower() not in _KEPT:
                    places.append(place)
            if len(places) > 1:
                places.remove(max(places, key=lambda place: self._common_uses(folded[place])))
                renamed.setdefault(folded[0], {})[folded] = {
                    place: new_words.make(len(words[place])) for place in places
                }
        return renamed

    def _title_at(self, matches: Sequence[re.Match[str]], start: int) -> dict[int, str]:
        """Returns the new words, by place, of the longest title whose words begin at `start`."""
        for words, changed in self._titles.get(matches[start].group().lower(), {}).items():
            span = [match.group() for match in matches[start : start + len(words)]]
            if tuple(word.lower() for word in span) == words:
                new_words = {}
                for place, new in changed.items():
                    new_words[start + place] = _in_letters_of(span[place], new)
                return new_words
        return {}

    def _plain_words(self) -> dict[str, str]:
        """Returns new word -> plain word, and for a name also plain word -> new word."""
        plain = dict(self.words)
        for name, new in self.words.items():
            plain[new] = name
        for titles in self._titles.values():
            for words, places in titles.items():
                for place, new in places.items():
                    plain[new] = words[place]
        return plain

    def _common_uses(self, word: str) -> int:
        if word in self._uses:
            return self._uses[word].small
        return 0

    def _has_name(self, words: Iterable[str]) -> bool:
        return any(word.lower() in self.words for word in words)

    def _move_year(self, match: re.Match[str], years: int) -> str:
        year = int(match.group(1))
        moved = str(year + years)
        if match.group(2) is None:
            return moved
        end = year - year % 100 + int(match.group(3)) + years
        return f"{moved}{match.group(2)}{end % 100:02d}"


class _Uses:
    """How often a word stands inside sentences with a capital, and anywhere in small letters."""

    __slots__ = ("capital", "opening", "small")

    def __init__(self) -> None:
        self.capital = 0
        self.opening = 0
        self.small = 0

    def is_name(self, titled: bool) -> bool:
        """Returns whether the word is a name; one that only begins sentences must be in a title."""
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
    """Returns the new word for `word`, in its letters; `word` itself where there is none."""
    new = new_words.get(word.lower())
    if new is None:
        return word
    return _in_letters_of(word, new)


def _in_letters_of(word: str, new: str) -> str:
    """Returns `new` in capitals, with a capital or in small letters, as `word` is."""
    if word.isupper() and len(word) > 1:
        return new.upper()
    if word[0].isupper():
        return new.capitalize()
    return new


class _NewWords:
    """Words that can be spoken and that are not `taken`, each made once."""

    def __init__(self, taken: frozenset[str], chance: random.Random) -> None:
        self._used = set(taken)
        self._chance = chance

    def of_names(self, old_words: Iterable[str]) -> dict[str, str]:
        """Returns a word for each of `old_words`, in small letters."""
        words: dict[str, str] = {}
        for name in old_words:
            words[name] = self.make(len(name))
        for pair in _COUNTRIES:
            country, adjective = pair.split()
            if country in words or adjective in words:
                stem = self.make(4)
                words[country] = stem + _COUNTRY_ENDINGS[0]
                words[adjective] = stem + _COUNTRY_ENDINGS[1]
        return words

    def make(self, length: int) -> str:
        """Returns a new word of `length` letters, or of more where those are used up."""
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
