"""Verdict on compiling, computed from the finished cells, and its wording.

cells/zero-shot/         the uncompiled program
cells/form/              uncompiled, with the answer's form repaired (`ragbench.programs.wrappers`)
programs/program-S/      the program compiled with optimizer seed S
cells/compiled-S/        its run
cells/compiled-form-S/   its run with the answer's form repaired
cells/votes-V/           uncompiled, with V votes per question, for the tokens of the compiled arm
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from ragbench.errors import CompareError, RunError
from ragbench.experiments.artifacts import Sidecar, assert_held_out
from ragbench.experiments.compare.contrasts import compare_arms
from ragbench.experiments.compare.paired import (
    Floats,
    Shared,
    groups_of,
    question,
    shared_questions,
)
from ragbench.experiments.compare.spending import CompileCost, per_question, spending_of
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.plans import folder_name
from ragbench.experiments.runs.summary import HEADLINE, Evaluation
from ragbench.metrics import ALPHA, LEAST_SEEDS, Comparison, Method, get_metric, p_seeds_alike
from ragbench.metrics.stats.estimates import Clusters
from ragbench.programs.wrappers import FORM_INSTRUCTION

#: Arms whose costs differ by less than this share count as equal.
EQUAL = 0.1
ZERO_SHOT, FORM = "zero-shot", "form"
COMPILED, COMPILED_FORM = "compiled", "compiled-form"
VOTES = "votes"
#: Gives the run in a folder.
Opener = Callable[[Path], Evaluation]
#: Arm A and arm B; a difference is B minus A.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Design:
    """Settings of the comparisons of a verdict.

    `votes` is the number of votes per question of the arm at equal tokens, or 0 without such an
    arm.
    """

    votes: int = 0
    metrics: tuple[str, ...] = HEADLINE
    margin: float | None = None

    def contrasts(self) -> list[Pair]:
        pairs = [(ZERO_SHOT, COMPILED), (FORM, COMPILED_FORM), (ZERO_SHOT, FORM)]
        if self.votes:
            pairs.append((VOTES, COMPILED))
        return pairs

    def of_optimizer(self, distinct_programs: int) -> bool:
        """Return True if the verdict is on the optimizer, not on these compiled programs.

        It is from three different programs on.
        """
        return distinct_programs >= LEAST_SEEDS


@dataclass(frozen=True)
class VerdictRequest:
    """Settings of a verdict, in addition to those of its run and its compile.

    `equal_cost` adds an arm of votes if the compiled arm costs more. Each arm runs every question
    `repeats` times.
    """

    seeds: int = 1
    equal_cost: bool = True
    metrics: Sequence[str] = HEADLINE
    margin: float | None = None
    repeats: int = 1


def verdict_folder(config: RunConfig, settings: CompileConfig) -> Path:
    """Return the output folder of the verdict.

    Args:
        config: Config of the run.
        settings: Settings of the compile.
    """
    return config.out or Path("verdicts") / folder_name(config, settings)


def votes_in_words(matched: float | None) -> str:
    """Describe the arm of votes by its tokens, relative to the compiled arm."""
    if matched is None or abs(matched - 1) <= EQUAL:
        return "votes for as many tokens"
    return f"votes for {matched:.2f} times its tokens"


@dataclass(frozen=True)
class Verdict:
    """Results of the arms. P-values are corrected over all contrasts and metrics (Holm).

    `fixed` and `broken` are the questions that only the compiled arm, or only the zero-shot arm,
    answered exactly right in more than half of its runs.
    """

    folder: Path
    design: Design
    arms: Mapping[str, Sequence[Evaluation]]
    sidecars: Sequence[Sidecar]
    shared: Shared
    contrasts: Mapping[Pair, Mapping[str, Comparison]]
    fixed: Sequence[str]
    broken: Sequence[str]
    spending: CompileCost

    @property
    def distinct_programs(self) -> int:
        return len({sidecar.program_sha256 for sidecar in self.sidecars})

    @property
    def subject(self) -> str:
        """The subject of the verdict's sentences.

        All seeds have one training set: another would give other programs.
        """
        if self.design.of_optimizer(self.distinct_programs):
            return f"compiling on these {len(self.sidecars[0].data.train.ids)} questions"
        if len(self.sidecars) == 1:
            return "this compiled program"
        return f"this set of {len(self.sidecars)} compiled programs"

    @property
    def questions(self) -> int:
        return len(self.shared.qids)

    def share_of_seeds(self, metric: str) -> str:
        """Describe how many seeds agree with the sign of the mean gain.

        Returns "" if all of them do, or if the seeds differ no more than their questions explain.
        """
        before, after, groups = self._scores(metric)
        gains = after.mean(axis=1) - before.mean()
        alike = int((np.sign(gains) == (1 if gains.mean() > 0 else -1)).sum())
        if alike == len(gains) or p_seeds_alike(after, groups) > ALPHA:
            return ""
        return f"{alike} of {len(gains)} seeds"

    def seed_means(self, metric: str) -> list[float]:
        """Return the mean of each seed over the questions that all runs have."""
        means: list[float] = self._scores(metric)[1].mean(axis=1).tolist()
        return means

    def _scores(self, metric: str) -> tuple[Floats, Floats, Clusters]:
        """Return zero-shot `(repeats, questions)`, compiled `(seeds, questions)`, clusters."""
        before = self.arms[ZERO_SHOT]
        qids, scores = self.shared.scored([*before, *self.arms[COMPILED]], metric)
        after = scores[len(before) :].reshape(len(self.sidecars), -1, len(qids)).mean(axis=1)
        return scores[: len(before)], after, groups_of(self.shared.clusters, qids)

    def matched(self) -> float | None:
        """Return the tokens of the votes arm over those of the compiled arm, None if unknown."""
        votes = per_question(self.arms.get(VOTES, ()), "tokens")
        compiled = per_question(self.arms[COMPILED], "tokens")
        if votes is not None and compiled:
            return votes / compiled
        return None

    def to_dict(self) -> dict[str, Any]:
        contrasts = []
        for (a, b), by_metric in self.contrasts.items():
            for metric, comparison in by_metric.items():
                contrasts.append({"a": a, "b": b, "metric": metric, **asdict(comparison)})
        return {
            "design": asdict(self.design),
            "form_instruction": FORM_INSTRUCTION,
            "contrasts": contrasts,
            "subject": self.subject,
            "matched": self.matched(),
            "fixed": self.fixed,
            "broken": self.broken,
            "distinct_programs": self.distinct_programs,
            "spending": asdict(self.spending),
        }


def assemble(
    folder: Path,
    design: Design,
    arms: Mapping[str, Sequence[Evaluation]],
    sidecars: Sequence[Sidecar],
) -> Verdict:
    """Compute the verdict on finished runs.

    Args:
        folder: Folder of the verdict.
        design: Settings of the comparisons.
        arms: Runs of each arm.
        sidecars: Sidecar of each compiled program.

    Raises:
        CompareError: The arms have different questions, or a metric has no bounds.
        RunError: An arm is missing.
    """
    for name in design.metrics:
        if get_metric(name).score_range is None:
            raise CompareError(f"a verdict cannot judge {name}: it has no bounds; give f1 or em")
    missing = set(chain.from_iterable(design.contrasts())) - arms.keys()
    if missing or not sidecars:
        raise RunError(f"{folder} has no arm {', '.join(sorted(missing))}; run the verdict again")
    _check(arms, sidecars)
    zero_shot = arms[ZERO_SHOT]
    compiled = arms[COMPILED]
    distinct = len({sidecar.program_sha256 for sidecar in sidecars})
    method = Method(design.margin, random_seeds=design.of_optimizer(distinct))
    pairs = [(b, a) for a, b in design.contrasts()]
    contrasts: dict[Pair, Mapping[str, Comparison]] = {}
    for contrast in compare_arms(pairs, arms, design.metrics, method):
        if contrast.why:
            raise CompareError(contrast.why)
        contrasts[contrast.baseline, contrast.cell] = contrast.scores
    shared = Shared.within(zero_shot)
    fixed, broken = shared.changed(zero_shot, compiled)
    return Verdict(
        folder=folder,
        design=design,
        arms=arms,
        sidecars=sidecars,
        shared=shared,
        contrasts=contrasts,
        fixed=list(fixed),
        broken=list(broken),
        spending=spending_of(zero_shot, compiled, sidecars),
    )


def _check(arms: Mapping[str, Sequence[Evaluation]], sidecars: Sequence[Sidecar]) -> None:
    base = arms[ZERO_SHOT][0]
    for run in chain.from_iterable(arms.values()):
        shared_questions(base, run)
    questions = base.records.column(question)
    examples = [dspy.Example(qid=qid, question=text) for qid, text in questions.items()]
    for sidecar in sidecars:
        assert_held_out(sidecar.data, examples, dataset=base.card.data.name)
    for runs in (arms[COMPILED], arms[COMPILED_FORM]):
        for at, run in enumerate(runs):
            sidecar = sidecars[at * len(sidecars) // len(runs)]
            if run.card.compiled != sidecar.program_sha256:
                raise RunError(f"{run.folder} is a run of another compiled program; remove it")
