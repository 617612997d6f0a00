"""What a search over knobs is expected to spend, before it spends anything.

The first trials are drawn whatever comes of them, so they are drawn here as well and rehearsed with
their knobs. Of each later one it is only known that it lies in the same space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution

from ragbench.errors import KnobError
from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.compile import estimate_compile, make_plan
from ragbench.experiments.config import RunConfig, TuneConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all
from ragbench.experiments.runs import RunContext
from ragbench.experiments.store import read_records
from ragbench.experiments.tune.demos import DEMOS
from ragbench.experiments.tune.search import Search, direction
from ragbench.experiments.tune.search_space import Space
from ragbench.experiments.tune.study import (
    NEVER_PRUNED,
    STARTUP,
    STUDY,
    drawing_of,
    first_trial,
    is_claimed,
    prepare,
    prunes,
    rungs_of,
    sampler_of,
    storage_of,
    told,
)
from ragbench.ranges import Range

_NOTHING = Estimate(title="")


def estimate_tune(config: RunConfig, settings: TuneConfig) -> tuple[list[str], Estimate]:
    """What demonstrations take, in lines, and what the trials still to come do; asks no server.

    RagbenchError for what the user can mend.
    """
    search, lines = prepare(config, settings), list[str]()
    if settings.demos:
        lines = _of_demos(search)
        search = replace(search, space={**search.space, DEMOS: IntDistribution(0, settings.demos)})
    else:
        is_claimed(search)  # of another search, it is refused
    done, begun = _told(search), ""
    first = _Combination.of(search, {}, 0)
    drawn = [_Combination.of(search, knobs, number) for number, knobs in _drawn(search)]
    later = _later(search, [first, *drawn], max(0, settings.trials - max(done, STARTUP)))
    parts = [first.left(), *(each.left() for each in drawn if each.number >= done), later]
    if done:
        begun = f", {done} done before"
    title = f"{settings.trials} trials of {len(search.run_context.examples)} questions each{begun}"
    return lines, in_all(title, parts, [*first.whole.notes, *_notes(search, later)])


def _of_demos(search: Search) -> list[str]:
    drawn = drawing_of(search)
    if (search.folder / DEMOS / SIDECAR).is_file():
        return []
    made = make_plan(search.run_context.config, drawn, like=search.run_context)
    return ["demonstrations, drawn once", *estimate_compile(made).lines()]


def _told(search: Search) -> int:
    """Trials that came to their end before."""
    if not (search.folder / STUDY).is_file():
        return 0
    try:
        return told(optuna.load_study(study_name="tune", storage=storage_of(search.folder)))
    except KeyError:  # a kill came before it was made
        return 0


def _drawn(search: Search) -> list[tuple[int, Mapping[str, Any]]]:
    """Number and knobs of the trials that are drawn whatever comes of others; each once."""
    study = optuna.create_study(directions=[direction(name) for name in search.settings.objectives])
    first = first_trial(search)
    if first:
        study.enqueue_trial(first)
    drawn: list[tuple[int, Mapping[str, Any]]] = []
    for number in range(min(search.settings.trials, STARTUP)):
        study.sampler = sampler_of(search.settings, number)
        trial = study.ask(search.space)
        study.tell(trial, [0.0] * len(search.settings.objectives))
        if trial.params not in [first, *(knobs for _, knobs in drawn)]:
            drawn.append((number, trial.params))
    return drawn


@dataclass(frozen=True)
class _Combination:
    """A combination of knobs, what it takes as a whole, and the trial in which it first comes."""

    number: int
    run_context: RunContext | None  # None: it is refused
    whole: Estimate
    share: float  # of the questions that the trial asks at the least

    @classmethod
    def of(cls, search: Search, knobs: Mapping[str, Any], number: int) -> _Combination:
        n = len(search.run_context.examples)
        pruned = prunes(search.settings) and number >= NEVER_PRUNED
        share = rungs_of(n)[0] / n if pruned else 1.0
        try:
            run_context = search.made(knobs)
        except KnobError:
            return cls(number, None, _NOTHING, share)
        return cls(number, run_context, estimate_run(run_context, afresh=True), share)

    def left(self) -> Estimate:
        """What is left of it to ask."""
        if self.run_context is None:
            return _NOTHING
        if not read_records(self.run_context.config.folder()).finished:
            return _lowered(self.whole, self.share)
        # The questions that a trial asks before it is given up may be answered already.
        return _lowered(estimate_run(self.run_context), 1.0 if self.share == 1.0 else 0.0)


def _lowered(estimate: Estimate, share: float) -> Estimate:
    """`estimate` with so much of its lower ends."""
    calls, tokens = (
        Range(math.floor(share * part.low), part.high) for part in (estimate.calls, estimate.tokens)
    )
    cost = estimate.cost and (share * estimate.cost[0], estimate.cost[1])
    return estimate.model_copy(update={"calls": calls, "tokens": tokens, "cost": cost})


def _later(search: Search, known: Sequence[_Combination], trials: int) -> Estimate:
    """`trials` between the cheapest and the dearest of those `known`; a repeated one is free."""
    size = _size(search.space)
    most = int(min(trials, max(0, size - len(known))))
    if not most:
        return _NOTHING
    n = len(search.run_context.examples)
    share = rungs_of(n)[0] / n if prunes(search.settings) else 1.0
    least = trials if size == math.inf else 0
    whole = [_lowered(each.whole, share) for each in known if each.run_context is not None]
    calls, tokens = (
        Range(least * min(part.low for part in parts), most * max(part.high for part in parts))
        for parts in ([each.calls for each in whole], [each.tokens for each in whole])
    )
    costs = [each.cost for each in whole if each.cost is not None]
    cost = None
    if len(costs) == len(whole):
        cost = (least * min(low for low, _ in costs), most * max(high for _, high in costs))
    return Estimate(title="", calls=calls, tokens=tokens, cost=cost, questions=most)


def _size(space: Space) -> float:
    """How many combinations there are; infinite where a knob is a fraction."""
    size = 1.0
    for values in space.values():
        if isinstance(values, CategoricalDistribution):
            size *= len(values.choices)
        elif isinstance(values, IntDistribution):
            size *= (values.high - values.low) // values.step + 1
        else:
            return math.inf
    return size


def _notes(search: Search, later: Estimate) -> list[str]:
    lines = ["a combination of knobs that comes again is not asked again"]
    if later.questions:
        lines.append(
            f"trials after the first {STARTUP} depend on results: each is taken to be between the "
            "cheapest and the dearest of those"
        )
    if prunes(search.settings):
        lines.append("the lower ends have bad trials given up early")
    if search.settings.demos:
        lines.append("without the demonstrations that trials may add to their prompts")
    return lines
