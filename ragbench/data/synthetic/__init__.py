"""Data set `synthetic`: a fictional world of people, works, firms and places, from a seed.

`world` makes the facts, `render` the passages in a stream, and `questions` the questions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter

from ragbench.data.base import Dataset, data_set, make_example
from ragbench.data.load import Item, assemble, question_files
from ragbench.data.readers import Row
from ragbench.data.synthetic.questions import DECK, GeneratedQuestion, Graph, ask
from ragbench.data.synthetic.render import render
from ragbench.data.synthetic.world import CELL_SIZE, SeededRandom, build_cell
from ragbench.errors import ConfigError
from ragbench.passages import Passage
from ragbench.settings import DataSettings
from ragbench.text_normalization import question_key, words

MIN_SIZE, MAX_SIZE = 100, 1_000_000
CONTEXT_SIZE = 10
MAX_QUESTIONS = 4_000
_TRIES = 20


class _Page:
    """Cell of the world with its passages, in the order of its entities."""

    def __init__(self, seed: int, index: int) -> None:
        self.entities, dice = build_cell(seed, index), SeededRandom(f"{seed}:{index}:text")
        self.rendered = {id(entity): render(entity, dice) for entity in self.entities}
        self.passages = [page.passage for page in self.rendered.values()]

    @cached_property
    def words(self) -> list[set[str]]:
        """Set of words of each passage."""
        return [set(words(f"{passage.title} {passage.text}")) for passage in self.passages]


def stream_passages(size: int, seed: int) -> Iterator[Passage]:
    """Yield the first passages of a world, one cell at a time.

    A smaller size gives a prefix of a larger one. Memory does not depend on the size.

    Args:
        size: Number of passages, from 100 to 1,000,000.
        seed: Seed of the world.

    Raises:
        ConfigError: `size` is outside the range.
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ConfigError(f"size must be from {MIN_SIZE} to {MAX_SIZE:,} passages, not {size:,}")
    for index in range(-(-size // CELL_SIZE)):
        yield from _page(seed, index).passages[: size - index * CELL_SIZE]


@data_set("synthetic")
def load_synthetic(spec: DataSettings) -> Dataset:
    """Generate a fictional world that no model can know. Needs no download."""
    if question_files(spec) or spec.corpus_file or spec.hub:
        raise ConfigError("synthetic is generated: remove files and hub, or set --dataset")
    passages = list(stream_passages(spec.size, spec.seed_of_data))
    # `assemble` completes examples in place, so the cached ones are copied.
    cached = _items(spec.size, spec.seed_of_data)
    items = (item._replace(example=item.example.copy()) for item in cached)
    return assemble(spec, items, pool=passages)


#: Fits the whole default world, which is read as corpus and then for questions.
_page = lru_cache(maxsize=64)(_Page)


@lru_cache(maxsize=2)  # Most processes use one world.
def _items(size: int, seed: int) -> tuple[Item, ...]:
    """Return one question per four passages, at most 4,000, about complete cells only."""
    total = min(size // 4, MAX_QUESTIONS)
    cells = size // CELL_SIZE
    kinds = SeededRandom(f"{seed}:plan").shuffled([DECK[i % len(DECK)] for i in range(total)])
    plan: dict[int, list[str]] = defaultdict(list)  # spread evenly over the world
    for i, kind in enumerate(kinds):
        plan[i % cells if total >= cells else i * cells // total].append(kind)
    seen: set[str] = set()
    items = []
    for index in sorted(plan):
        pages = _page(seed, index), _page(seed, (index + 1) % cells)
        spread = Counter(chain(*pages[0].words, *pages[1].words))
        graph = Graph(pages[0].entities)
        dice = SeededRandom(f"{seed}:{index}:questions")
        for number, kind in enumerate(plan[index]):
            for _ in range(_TRIES):
                question = ask(graph, kind, dice)
                if question is None:
                    continue
                keys = {question.key, question_key(question.question)}
                if not keys & seen:
                    seen |= keys
                    qid = f"syn-{seed}-{index:05d}-{number:02d}"
                    items.append(_item(qid, question, pages, spread))
                    break
    return tuple(items)


def _item(
    qid: str, question: GeneratedQuestion, pages: tuple[_Page, _Page], spread: Counter[str]
) -> Item:
    own = pages[0].rendered
    gold = [own[id(entity)].passage for entity in question.gold]
    support = [(h.subject.title, own[id(h.subject)].stated[h.relation]) for h in question.hops]
    example = make_example(
        qid=qid,
        question=question.question,
        answers=question.answers,
        qtype=question.qtype,
        hops=len(gold),
        support=list(dict.fromkeys(support)),
        gold_pids=[passage.pid for passage in gold],
        decomposition=[{"question": hop.question, "answer": hop.answer} for hop in question.hops],
        logic=question.logic,
    )
    near = _near(question.question, gold, pages, spread)[: CONTEXT_SIZE - len(gold)]
    context = SeededRandom(f"{qid}:context").shuffled([*gold, *near])
    return Item(Row(qid, {"id": qid}), example, tuple(context))


def _near(
    question: str, gold: Sequence[Passage], pages: Sequence[_Page], spread: Counter[str]
) -> list[Passage]:
    """Return other passages, ordered by the words that they share with the question.

    A rare word has more weight. Titles of gold passages count as words of the question. `spread`
    counts the passages with each word.
    """
    wanted_words = set(words(" ".join([question, *(p.title for p in gold)])))
    taken = {p.pid for p in gold}
    ranked = []
    for page in pages:
        for passage, bag in zip(page.passages, page.words, strict=True):
            if passage.pid not in taken:
                shared = sorted(wanted_words & bag)
                ranked.append((-sum(1 / spread[word] for word in shared), passage))
    return [passage for _, passage in sorted(ranked, key=itemgetter(0))]
