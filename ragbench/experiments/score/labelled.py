"""Claims whose labels are known, which show how far a judge of claims can be believed.

They are made of facts of the fictional world, the single hops of its questions. Each fact gives a
true claim and a false one of one of four kinds: subject and object `reversed`, the object of a
`sibling`, `negated`, or another `relation` (born for died, father for mother). The judge's errors
on them correct the metrics that it fills.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ragbench.data import DataSettings, load_dataset
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.score.annotation import Annotated
from ragbench.metrics import corrected_share
from ragbench.passages import Passage

#: Questions of which each is answered by another fact than the other; `{}` is the subject.
_PAIRS = (
    ("When was {} born?", "When did {} die?"),
    ("Who was the father of {}?", "Who was the mother of {}?"),
)
_OTHER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
#: Passages of other facts shown beside a fact's own.
_OTHERS = 3
_WORLD = 2000  # passages of the world, enough for some 900 facts


class Pair(NamedTuple):
    """A true claim and a false one, in the order shown; `kinds` are `true` and the false one's."""

    claims: Sequence[str]
    kinds: Sequence[str]
    passages: Sequence[Passage]


def labelled_claims(n: int) -> list[Pair]:
    """Pairs of `n` claims, rounded up, or of as many as there are facts for: always the same."""
    if not n:
        return []
    world = load_dataset(DataSettings(dataset="synthetic", setting="pooled", size=_WORLD))
    passages = {p.title: p for p in world.corpus}
    dice = random.Random(0)
    facts = dict[str, tuple[str, str, str]]()
    siblings = defaultdict[str, list[str]](list)
    for example in chain.from_iterable(world.splits.values()):
        for hop in example.decomposition:
            text = hop["question"]
            answer = hop["answer"]
            subjects = [title for title, _ in example.support if title in text]
            if len(subjects) != 1 or text in facts or answer not in passages[subjects[0]].text:
                continue
            question = text.replace(subjects[0], "{}")
            facts[text] = (question, subjects[0], answer)
            siblings[question].append(answer)
    every = list(passages.values())
    pairs = list[Pair]()
    used = Counter[str]()
    for question, subject, answer in dice.sample([*facts.values()], min(-(-n // 2), len(facts))):
        false = {"negated": _claim(question, subject, answer, "is not")}
        if answer[0].isalpha():
            false["reversed"] = _claim(question, answer, subject)
        if question in _OTHER:
            false["relation"] = _claim(_OTHER[question], subject, answer)
        if answers := [sibling for sibling in siblings[question] if sibling != answer]:
            false["sibling"] = _claim(question, subject, dice.choice(answers))
        kind = min(false, key=used.__getitem__)
        used[kind] += 1
        both = [("true", _claim(question, subject, answer)), (kind, false[kind])]
        context = [passages[subject], *dice.sample(every, _OTHERS)]
        for order in (both, context):
            dice.shuffle(order)  # the place says nothing
        kinds, claims = zip(*both, strict=True)
        pairs.append(Pair(claims, kinds, context))
    return pairs


def _claim(question: str, subject: str, answer: str, verb: str = "is") -> str:
    return f'The answer to "{question.format(subject)}" {verb}: {answer}'


def corrected(annotated: Annotated, scores: Mapping[str, Sequence[float]]) -> AnnotationSummary:
    """The judge's errors, and the metrics of claims corrected for them, JSON-ready.

    `scores` are the judged ones, by question. Empty where nothing labelled was to be asked.
    """
    labelled = Counter[tuple[str, bool | None]]()  # how often claims of a kind got a label
    for unit, reply in chain.from_iterable(annotated.units.values()):
        labels = [None] * len(unit.data)
        if reply:
            labels = reply.value or labels
        labelled.update(zip(unit.data, labels, strict=False))  # a record's claims have no kinds
    if not labelled:
        return {}
    kinds = {}
    for kind in sorted({kind for kind, _ in labelled}):
        yes = labelled[kind, True]
        no = labelled[kind, False]
        kinds[kind] = (yes if kind == "true" else no, yes + no)
    true = kinds.pop("true")
    false = sum(n for n, _ in kinds.values()), sum(n for _, n in kinds.values())
    unscored = sum(times for (_, label), times in labelled.items() if label is None)
    rows: dict[str, Any] = {}
    for name, judged in scores.items():
        errors = (false, true)
        if name == "chain_fidelity_judged":
            errors = (true, false)
        if judged:
            row = {"judged": sum(judged) / len(judged), "n": len(judged), "mean": None}
            if share := corrected_share(judged, *errors):
                row |= {"mean": share[0], "low": share[1].low, "high": share[1].high}
            rows[name] = row
    counts = {"true": true, "false": false, "false_by_kind": kinds, "unscored": unscored}
    return {"labelled": counts, "corrected": rows}


def lines(summary: AnnotationSummary) -> list[str]:
    """What a person reads of what `corrected` gives."""
    labelled = summary["labelled"]
    by_kind = labelled["false_by_kind"].items()
    kinds = ", ".join(f"{kind} {n}/{total}" for kind, (n, total) in by_kind)
    (caught, false), (passed, true) = labelled["false"], labelled["true"]
    texts = [
        f"  of {false + true} labelled claims it catches {caught} of {false} false ones ({kinds}) "
        f"and passes {passed} of {true} true ones; {labelled['unscored']} unscored"
    ]
    for name, row in summary["corrected"].items():
        if row["mean"] is None:
            verdict = "not corrected, as it is no better than chance on labelled claims"
        else:
            ends = f"[{row['low']:.3f}, {row['high']:.3f}]"
            verdict = f"{row['mean']:.3f} {ends} corrected for these errors"
        texts.append(f"  {name}: {row['judged']:.3f} as judged, over {row['n']} answers; {verdict}")
    return texts
