"""Grounding by a judge: which claims of a program its passages support, as a model sees it.

The claims are the sentences of the thoughts, and of the answer (`metrics.judged`); a short answer
is put as an answer to its question. The judge labels at most `MOST_CLAIMS` at once; where a claim
has no usable label, the question is unscored in what it concerns. What no passage was retrieved for
is not supported, and not asked about.

How far the judge can be believed is measured on claims whose labels are known (`calibrate`). They
are made from facts, the single hops of the generated world. Each fact gives a true claim and a
false one of one of four kinds: subject and object `reversed`, the object of a `sibling`, `negated`,
or another `relation` (born for died, father for mother). The judged metrics are then corrected for
its errors.
"""

import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ragbench.data import DataSpec, load_dataset
from ragbench.experiments.score.annotation import (
    Annotated,
    Annotation,
    Unit,
    annotate_units,
    number,
    numbered,
    shown,
    spending,
)
from ragbench.experiments.score.asking import Asking, UnusableError
from ragbench.metrics import (
    GROUNDED,
    JudgeErrors,
    claims_of_answer,
    claims_of_chain,
    corrected_share,
    says_something,
    share,
)
from ragbench.record import Record, ShownPassage
from ragbench.signatures import LabelClaims

MOST_CLAIMS = 8
#: Tokens of passages shown with them; later ones are left out, and the cut is counted.
CONTEXT_TOKENS = 8000

#: Whether the passages support a claim; None for unscored.
Label = bool | None


@dataclass(frozen=True)
class Group:
    """Claims as the judge sees them, and the passages that they are held against.

    `kinds` are those of labelled claims, of which only those of kind `true` are true.
    """

    qid: str
    claims: Sequence[str]
    passages: Sequence[ShownPassage]
    kinds: Sequence[str] = ()

    def units(self) -> list[Unit]:
        """Parts of at most `MOST_CLAIMS` claims."""
        if not self.passages or not self.claims:
            return []
        context, cut = shown(self.passages, max_tokens=CONTEXT_TOKENS)
        units = []
        for start in range(0, len(self.claims), MOST_CLAIMS):
            claims = list(self.claims[start : start + MOST_CLAIMS])
            inputs = {"context": context, "claims": numbered(claims)}
            units.append(Unit(self.qid, (context, claims), inputs, len(claims), cut))
        return units

    def labels(self, values: Iterator[Any]) -> list[Label]:
        """The label of each claim, from as many of `values` as the group has units."""
        if not self.passages:
            return [False] * len(self.claims)
        labels: list[Label] = []
        while len(labels) < len(self.claims):
            n = min(MOST_CLAIMS, len(self.claims) - len(labels))
            value = next(values, None)
            labels += value if value is not None and len(value) == n else [None] * n
        return labels


class Grounding(Annotation):
    """Fills the judged chain fidelity and hallucination rate."""

    name = "grounding"
    signature = LabelClaims

    def units(self, record: Record) -> Sequence[Unit]:
        """The claims of the thoughts, and those of the answer."""
        return [unit for group in groups_of(record) for unit in group.units()]

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[bool]:
        """Whether each claim is supported."""
        if len(reply.verdicts) != unit.data:
            raise UnusableError("another number of verdicts than of claims")
        return [label == "supported" for label in reply.verdicts]

    def scores(self, record: Record, values: Sequence[Any]) -> dict[str, float | None]:
        """Both metrics; None where a claim has no label, or there is no claim."""
        every = iter(values)
        chain, answer = (
            None if None in labels else share(labels.count(True), len(labels))
            for labels in (group.labels(every) for group in groups_of(record))
        )
        return {
            "chain_fidelity_judged": chain,
            "hallucination_rate_judged": None if answer is None else 1 - answer,
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: how many claims are supported, are not, and have no label."""
        labels: list[Label] = []
        for record in records:
            if not record.failed:
                values = iter(annotated.values(record.qid))
                labels += [one for group in groups_of(record) for one in group.labels(values)]
        return {
            **annotated.counts(),
            "claims": len(labels),
            "supported": labels.count(True),
            "unsupported": labels.count(False),
            "unscored": labels.count(None),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """What it labelled, and where it was calibrated its errors and the corrected metrics."""
        lines = [
            f"{summary['claims']} claims judged by {summary['model']}: {summary['supported']} "
            f"supported, {summary['unsupported']} not; {spending(summary)}"
        ]
        if (labelled := summary.get("labelled")) is None:
            return lines
        errors = JudgeErrors(**labelled["errors"])
        kinds = ", ".join(
            f"{kind} {rate['right']} of {rate['n']}"
            for kind, rate in labelled["false_by_kind"].items()
        )
        lines.append(
            f"  on {labelled['claims']} labelled claims it catches {errors.caught} of "
            f"{errors.false} false ones ({kinds}) and passes {errors.passed} of {errors.true} true "
            f"ones; {labelled['unscored']} unscored"
        )
        if not summary["corrected"]:
            lines.append("  it is no better than chance on them, so its scores cannot be corrected")
        return lines + [
            f"  {metric}: {number(row['mean'])} [{number(row['low'])}, {number(row['high'])}] "
            f"corrected for these errors, {number(row['judged'])} as judged, over {row['n']} "
            "answered questions"
            for metric, row in summary["corrected"].items()
        ]


def groups_of(record: Record) -> tuple[Group, Group]:
    """The claims of a record's thoughts, and of its answer, in words."""
    answer = [
        text if says_something(text) else f'The answer to "{record.question}" is: {text}'
        for text in claims_of_answer(record)
    ]
    chain = claims_of_chain(record)
    return Group(record.qid, chain, record.passages), Group(record.qid, answer, record.passages)


def label_claims(
    folder: Path, groups: Sequence[Group], asking: Asking
) -> tuple[list[list[Label]], Annotated]:
    """The label of each claim of each group, and what the asking came to.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    units = {str(i): units for i, group in enumerate(groups) if (units := group.units())}
    annotated = annotate_units(folder, units, Grounding(), asking)
    labels = [group.labels(iter(annotated.values(str(i)))) for i, group in enumerate(groups)]
    return labels, annotated


_FALSE = ("reversed", "sibling", "negated", "relation")
#: Questions of which each is answered by another fact than the other; `{x}` is the subject.
_PAIRS = (
    ("When was {x} born?", "When did {x} die?"),
    ("Who was the father of {x}?", "Who was the mother of {x}?"),
)
_OTHER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
#: Passages of other questions shown beside those of a generated fact.
_OTHERS = 3
_WORLD = 2000  # passages of the generated world, enough for some 500 facts


class Fact(NamedTuple):
    """A fact that `passages` state; `question` has `{x}` where the subject stands."""

    qid: str
    question: str
    subject: str
    answer: str
    passages: Sequence[ShownPassage]


def calibrate(folder: Path, records: Sequence[Record], asking: Asking, n: int) -> dict[str, Any]:
    """The judge's errors on `n` labelled claims, and the judged metrics of `records` corrected.

    `records` have their judged scores. JSON-ready; part of the summary of `Grounding`.

    Raises:
        RagbenchError: the judge cannot be asked, or the journal cannot be written.
    """
    made = labelled_claims(n)
    labels, annotated = label_claims(folder, made, asking)
    said = Counter(
        (kind, label)
        for group, row in zip(made, labels, strict=True)
        for kind, label in zip(group.kinds, row, strict=True)
    )
    rates = {
        kind: {"right": said[kind, kind == "true"], "n": said[kind, True] + said[kind, False]}
        for kind in sorted({kind for kind, label in said if label is not None})
    }
    true = rates.pop("true", {"right": 0, "n": 0})
    errors = JudgeErrors(
        caught=sum(rate["right"] for rate in rates.values()),
        false=sum(rate["n"] for rate in rates.values()),
        passed=true["right"],
        true=true["n"],
    )
    means: dict[str, Any] = {}
    for name in GROUNDED:
        scores = [r.scores.get(name) for r in records if not r.failed]
        values = [score for score in scores if score is not None]
        supported = name == "chain_fidelity_judged"  # else the share of false claims
        found = corrected_share([1 - v for v in values] if supported else values, errors)
        if found is None:
            continue
        mean, low, high = found
        if supported:
            mean, low, high = 1 - mean, 1 - high, 1 - low
        plain = sum(values) / len(values)
        means[name] = {"judged": plain, "mean": mean, "low": low, "high": high, "n": len(values)}
    labelled = {
        "claims": errors.false + errors.true,
        "unscored": sum(count for (_, label), count in said.items() if label is None),
        "errors": errors._asdict(),
        "false_by_kind": rates,
        "as_if": asdict(annotated.as_if),
        "billed": asdict(annotated.billed),
    }
    return {"labelled": labelled, "corrected": means}


def labelled_claims(n: int) -> list[Group]:
    """At least `n` claims, half of them true, or as many as there are facts for."""
    dice = random.Random(0)
    facts = list(_facts_of_world(dice))
    dice.shuffle(facts)
    siblings: dict[str, list[str]] = defaultdict(list)
    for fact in facts:
        siblings[fact.question].append(fact.answer)
    used = Counter(dict.fromkeys(_FALSE, 0))
    made: list[Group] = []
    for fact in facts[: -(-n // 2)]:
        possible = _false_claims(fact, siblings[fact.question], dice)
        kind = min(possible, key=used.__getitem__)
        used[kind] += 1
        pairs = [("true", _claim(fact.question, fact.subject, fact.answer)), (kind, possible[kind])]
        dice.shuffle(pairs)  # the place says nothing
        kinds, claims = zip(*pairs, strict=True)
        made.append(Group(fact.qid, claims, fact.passages, kinds))
    return made


def _facts_of_world(dice: random.Random) -> Iterator[Fact]:
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


def _false_claims(fact: Fact, siblings: Sequence[str], dice: random.Random) -> dict[str, str]:
    """The false claims that can be made of `fact`, by kind."""
    negated = _claim(fact.question, fact.subject, fact.answer, "is not")
    claims: dict[str, str] = {"negated": negated}
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
