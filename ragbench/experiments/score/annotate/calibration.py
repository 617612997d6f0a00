"""How far a judge of claims can be believed: its errors on claims whose labels are known.

The claims are made from facts: the gold triples of a run's own records whose passage was retrieved
(2WikiMultiHopQA), and where these are too few, the single hops of the generated world. Each fact
gives a true claim and a false one of one of four kinds: subject and object `reversed`, the object
of a `sibling`, `negated`, or another `relation` (born for died, father for mother). A claim is put
as the judge sees a short answer: as the answer to a question. The judged metrics are then corrected
for these errors.
"""

import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ragbench.data import DataSpec, load_dataset
from ragbench.experiments.score.annotate.annotator import number
from ragbench.experiments.score.annotate.asking import Asking
from ragbench.experiments.score.annotate.grounding import Group, label_claims
from ragbench.metrics import GROUNDED, JudgeErrors, corrected_share, gold_triples, stands_in
from ragbench.record import Record, ShownPassage

Kind = Literal["true", "reversed", "sibling", "negated", "relation"]

_FALSE: tuple[Kind, ...] = ("reversed", "sibling", "negated", "relation")
#: Questions of which each is answered by another fact than the other; `{x}` is the subject.
_PAIRS = (
    ("When was {x} born?", "When did {x} die?"),
    ("Who was the father of {x}?", "Who was the mother of {x}?"),
    ("What is the date of birth of {x}?", "What is the date of death of {x}?"),
    ("What is the father of {x}?", "What is the mother of {x}?"),
)
_OTHER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
#: Passages of other questions shown beside those of a generated fact.
_OTHERS = 3
_WORLD = 2000  # passages of the generated world, enough for some 500 facts


@dataclass(frozen=True)
class Fact:
    """A fact that `passages` state; `question` has `{x}` where the subject stands."""

    qid: str
    question: str
    subject: str
    answer: str
    passages: Sequence[ShownPassage]


@dataclass(frozen=True)
class Labelled:
    """Claims about the same passages, each with its kind; only those of kind `true` are true."""

    group: Group
    kinds: Sequence[Kind]


def calibrate(folder: Path, records: Sequence[Record], asking: Asking, n: int) -> dict[str, Any]:
    """The judge's errors on `n` labelled claims, and the judged metrics of `records` corrected.

    `records` have their judged scores. JSON-ready; part of the summary of `Grounding`.

    Raises:
        RagbenchError: the judge cannot be asked, or the journal cannot be written.
    """
    made = labelled_claims(records, n)
    labels, annotated = label_claims(folder, [one.group for one in made], asking)
    said = Counter(
        (kind, label)
        for one, row in zip(made, labels, strict=True)
        for kind, label in zip(one.kinds, row, strict=True)
    )
    kinds = sorted({kind for kind, label in said if label is not None})
    rates = {
        kind: {"right": said[kind, kind == "true"], "n": said[kind, True] + said[kind, False]}
        for kind in kinds
    }
    true = rates.pop("true", {"right": 0, "n": 0})
    errors = JudgeErrors(
        caught=sum(rate["right"] for rate in rates.values()),
        false=sum(rate["n"] for rate in rates.values()),
        passed=true["right"],
        true=true["n"],
    )
    return {
        "labelled": {
            "claims": errors.false + errors.true,
            "unscored": sum(count for (_, label), count in said.items() if label is None),
            "errors": errors._asdict(),
            "false_by_kind": rates,
            "as_if": asdict(annotated.as_if),
            "billed": asdict(annotated.billed),
        },
        "corrected": _corrected(records, errors),
    }


def _corrected(records: Sequence[Record], errors: JudgeErrors) -> dict[str, Any]:
    means: dict[str, Any] = {}
    for name in GROUNDED:
        scores = [r.scores.get(name) for r in records if not r.failed]
        values = [score for score in scores if score is not None]
        supported = name == "chain_fidelity_judged"  # else the share of false claims
        corrected = corrected_share([1 - v for v in values] if supported else values, errors)
        if corrected is None:
            continue
        mean, low, high = corrected
        if supported:
            mean, low, high = 1 - mean, 1 - high, 1 - low
        plain = sum(values) / len(values)
        means[name] = {"judged": plain, "mean": mean, "low": low, "high": high, "n": len(values)}
    return means


def describe_calibration(summary: Mapping[str, Any]) -> list[str]:
    """Lines of what `calibrate` found; none where it was not asked for."""
    if "labelled" not in summary:
        return []
    labelled = summary["labelled"]
    errors = JudgeErrors(**labelled["errors"])
    kinds = ", ".join(
        f"{kind} {rate['right']} of {rate['n']}" for kind, rate in labelled["false_by_kind"].items()
    )
    lines = [
        f"  on {labelled['claims']} labelled claims it catches {errors.caught} of {errors.false} "
        f"false ones ({kinds}) and passes {errors.passed} of {errors.true} true ones; "
        f"{labelled['unscored']} unscored"
    ]
    lines += [
        f"  {name}: {number(row['mean'])} [{number(row['low'])}, {number(row['high'])}] corrected "
        f"for these errors, {number(row['judged'])} as judged, over {row['n']} answered questions"
        for name, row in summary["corrected"].items()
    ]
    if not summary["corrected"]:
        lines.append("  it is no better than chance on them, so its scores cannot be corrected")
    return lines


def labelled_claims(records: Sequence[Record], n: int, *, seed: int = 0) -> list[Labelled]:
    """At least `n` claims, half of them true, or as many as there are facts for."""
    dice = random.Random(seed)
    facts = list(facts_of(records))
    if len(facts) < n:
        facts += facts_of_world(dice)
    dice.shuffle(facts)
    siblings: dict[str, list[str]] = defaultdict(list)
    for fact in facts:
        siblings[fact.question].append(fact.answer)
    used: Counter[Kind] = Counter(dict.fromkeys(_FALSE, 0))
    made: list[Labelled] = []
    for fact in facts:
        if 2 * len(made) >= n:
            break
        possible = _false_claims(fact, siblings[fact.question], dice)
        kind = min(possible, key=used.__getitem__)
        used[kind] += 1
        kinds: list[Kind] = ["true", kind]
        claims = [_claim(fact.question, fact.subject, fact.answer), possible[kind]]
        if dice.random() < 0.5:  # the place says nothing
            kinds.reverse()
            claims.reverse()
        made.append(Labelled(Group(fact.qid, claims, claims, fact.passages), kinds))
    return made


def facts_of(records: Sequence[Record]) -> Iterator[Fact]:
    """The gold triples of `records` whose subject's passage was retrieved and states the object."""
    for record in records:
        for triple in gold_triples(record):
            subject, relation, answer = (names[0] for names in triple)
            about = [passage for passage in record.passages if passage.title == subject]
            if about and stands_in(answer, about):
                question = f"What is the {relation} of {{x}}?"
                yield Fact(record.qid, question, subject, answer, record.passages)


def facts_of_world(dice: random.Random) -> Iterator[Fact]:
    """The single hops of the generated world, each with its passage and some others."""
    dataset = load_dataset(DataSpec("synthetic", setting="pooled", size=_WORLD))
    by_title = {p.title: ShownPassage(p.pid, p.title, p.text, p.sentences) for p in dataset.corpus}
    every = list(by_title.values())
    for example in itertools.chain.from_iterable(dataset.splits.values()):
        for hop in example.decomposition:
            titles = [title for title, _ in example.support if _bare(title) in hop["question"]]
            if len(titles) != 1 or titles[0] not in by_title:
                continue
            passages = [by_title[titles[0]], *dice.sample(every, _OTHERS)]
            dice.shuffle(passages)
            subject = _bare(titles[0])
            question = hop["question"].replace(subject, "{x}")
            yield Fact(example.qid, question, subject, hop["answer"], passages)


def _false_claims(fact: Fact, siblings: Sequence[str], dice: random.Random) -> dict[Kind, str]:
    """The false claims that can be made of `fact`, by kind."""
    negated = _claim(fact.question, fact.subject, fact.answer, "is not")
    claims: dict[Kind, str] = {"negated": negated}
    if fact.answer[:1].isalpha():
        claims["reversed"] = _claim(fact.question, fact.answer, fact.subject)
    if fact.question in _OTHER:
        claims["relation"] = _claim(_OTHER[fact.question], fact.subject, fact.answer)
    others = [answer for answer in siblings if answer.casefold() != fact.answer.casefold()]
    if others:
        claims["sibling"] = _claim(fact.question, fact.subject, dice.choice(others))
    return claims


def _claim(question: str, subject: str, answer: str, verb: str = "is") -> str:
    return f'The answer to "{question.replace("{x}", subject)}" {verb}: {answer}'


def _bare(title: str) -> str:
    """A title without what tells it from others of its name."""
    return re.sub(r"\s*\([^)]*\)$", "", title)
