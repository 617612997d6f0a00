"""What scoring a run by models is expected to spend, before it spends anything."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragbench.experiments.estimates import ASKED_TWICE, MARGIN, Estimate
from ragbench.experiments.score.annotate.annotator import Annotation, Unit
from ragbench.experiments.score.annotate.asking import Asking, key_of, read_journal
from ragbench.experiments.score.annotate.calibration import labelled_claims
from ragbench.experiments.score.annotate.grounding import Grounding
from ragbench.experiments.score.protocols.catalog import get_protocol
from ragbench.experiments.score.scoring import ScoreRequest, annotations_of
from ragbench.experiments.store import read_records
from ragbench.lms import priced
from ragbench.lms.calls import UNBOUNDED_REPLY
from ragbench.ranges import Range
from ragbench.record import Record
from ragbench.tokens import estimate_tokens

#: Tokens of a prompt beside instructions and inputs: the names and forms of its fields.
_FRAME = 150


def estimate_scoring(folder: Path, request: ScoreRequest) -> Estimate:
    """What the judge and the attributor of `request` would take on the run in `folder`.

    What is in the run's journal is not asked again. A reply has one token at the least, and what
    the LM is allowed at the most.

    Raises:
        RagbenchError: something the user can mend.
    """
    known = {row["key"] for row in read_journal(folder) if not row["provider_failed"]}
    records = [record for record in read_records(folder).values() if not record.failed]
    calls = low = high = 0
    cheap: float | None = 0.0
    dear: float | None = 0.0
    for asking, annotation, unit in _to_ask(records, request):
        lm = asking.lm
        key = key_of(annotation.name, lm.model, *unit.parts)
        if key in known:
            continue
        known.add(key)
        n = annotation.calls(unit)
        inputs = json.dumps(dict(unit.inputs), ensure_ascii=False, default=str)
        prompt = estimate_tokens(annotation.signature.instructions + inputs) + _FRAME
        longest = int(lm.kwargs.get("max_tokens") or UNBOUNDED_REPLY)
        calls, low, high = calls + n, low + n * (prompt + 1), high + n * (prompt + longest)
        cheap = _plus(cheap, priced(lm.pricing, None, prompt, 1), n)
        dear = _plus(dear, priced(lm.pricing, None, prompt, longest), n)
    cost = None
    if cheap is not None and dear is not None:
        cost = (MARGIN[0] * cheap, 2 * MARGIN[1] * dear)
    return Estimate(
        title=f"scoring {folder}: {calls} questions to models",
        calls=Range(calls, 2 * calls),
        tokens=Range(int(MARGIN[0] * low), int(2 * MARGIN[1] * high)),
        cost=cost,
        notes=(ASKED_TWICE,),
    )


def _to_ask(
    records: Sequence[Record], request: ScoreRequest
) -> Iterator[tuple[Asking, Annotation, Unit]]:
    """Everything that `request` asks about `records`, with what asks it."""
    protocol = get_protocol(request.protocol) if request.protocol else None
    for asking, annotation in annotations_of(request, protocol):
        if annotation.concerns(records):
            for record in records:
                yield from ((asking, annotation, unit) for unit in annotation.units(record))
    judge = request.judge
    if judge and judge.rule == "grounding" and judge.labelled:
        for made in labelled_claims(records, judge.labelled):
            yield from ((judge.asking, Grounding(), unit) for unit in made.group.units())


def _plus(sum_of: float | None, price: float | None, n: int) -> float | None:
    return None if sum_of is None or price is None else sum_of + n * price
