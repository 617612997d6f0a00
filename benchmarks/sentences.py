"""How far sentence splitters agree with HotpotQA's own sentence lists, and how fast they are.

`python -m benchmarks.sentences hotpot_train_v1.1.json` compares ragbench's splitter with a cut
after every full stop, and with those of pysbd, syntok, segtok, blingfire and sentence-splitter that
are installed. `paragraphs` is the share whose boundaries all agree; precision and recall are of the
boundaries inside paragraphs; `time` is a ratio to ragbench's.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from ragbench.data import DataSettings, load_dataset
from ragbench.sentences import split_sentences

Splitter = Callable[[str], Iterable[str]]


def splitters() -> dict[str, Splitter]:
    """The splitter of ragbench first, then the alternatives that can be imported."""
    found: dict[str, Splitter] = {
        "ragbench": split_sentences,
        "full stops": lambda text: re.split(r"(?<=[.!?])\s+", text),
    }
    makers: dict[str, Callable[[], Splitter]] = {
        "pysbd": lambda: import_module("pysbd").Segmenter(language="en", clean=False).segment,
        "syntok": _syntok,
        "segtok": lambda: import_module("segtok.segmenter").split_single,
        "blingfire": lambda: _lines(import_module("blingfire").text_to_sentences),
        "sentence-splitter": lambda: (
            import_module("sentence_splitter").SentenceSplitter(language="en").split
        ),
    }
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError:
            print(f"{name} is not installed", file=sys.stderr)
    return found


def boundaries(sentences: Iterable[str]) -> set[int]:
    """Where sentences end, counted in characters that are not white space; the last is left out."""
    ends, place = [], 0
    for sentence in sentences:
        size = len(re.sub(r"\s", "", sentence))
        place += size
        if size:
            ends.append(place)
    return set(ends[:-1])


def main(path: Path) -> None:
    """Print one line per splitter."""
    data = load_dataset(DataSettings(dataset="hotpotqa", data_file=path, setting="pooled"))
    paragraphs = [(p.text, boundaries(p.sentences)) for p in data.corpus]
    print(f"{len(paragraphs)} paragraphs, {sum(len(b) + 1 for _, b in paragraphs)} sentences")
    print(f"{'splitter':18} paragraphs precision recall    time")
    base = 0.0
    for name, split in splitters().items():
        start = time.perf_counter()
        found = [boundaries(split(text)) for text, _ in paragraphs]
        spent = time.perf_counter() - start
        base = base or spent
        pairs = list(zip(found, (gold for _, gold in paragraphs), strict=True))
        both = sum(len(a & b) for a, b in pairs)
        precision = both / max(sum(len(a) for a, _ in pairs), 1)
        recall = both / max(sum(len(b) for _, b in pairs), 1)
        exact = sum(a == b for a, b in pairs) / len(pairs)
        print(f"{name:18} {exact:10.3f} {precision:9.3f} {recall:6.3f} {spent / base:6.1f}x")


def _syntok() -> Splitter:
    analyze = import_module("syntok.segmenter").analyze
    return lambda text: [
        "".join(token.spacing + token.value for token in sentence)
        for paragraph in analyze(text)
        for sentence in paragraph
    ]


def _lines(split: Callable[[str], str]) -> Splitter:
    return lambda text: split(text).split("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
