"""The design of a verdict on compiling: its arms, what they are compared by, and the words for it.

zero-shot/         the program as it is
form/              not compiled, with the answer's form repaired (`ragbench.programs.wrappers`)
program-S/         the program compiled with optimizer seed S
compiled-S/        its run
compiled-form-S/   its run with the answer's form repaired
votes-V/           not compiled, V votes a question: what the compiled arm's tokens would buy
votes-usd-V/       the same for its dollars, where they buy another number
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.experiments.compile import folder_name
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.runs import HEADLINE
from ragbench.metrics import LEAST_SEEDS

ZERO_SHOT, FORM = "zero-shot", "form"
COMPILED, COMPILED_FORM = "compiled", "compiled-form"
VOTES, VOTES_USD = "votes", "votes-usd"
#: Arm A and arm B; a difference is B minus A.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Design:
    """The arms' folders of a verdict, and how they are compared.

    `votes` and `votes_usd` are votes per question of the arms at equal tokens and equal dollars; 0
    for no such arm. `form_too` runs the compiled programs with the form repaired as well.
    `exact` and `anytime` are the methods of `ragbench.metrics.Method`.
    """

    seeds: tuple[int, ...]
    votes: float = 0
    metrics: tuple[str, ...] = HEADLINE
    margin: float | None = None
    votes_usd: float = 0
    form_too: bool = False
    exact: bool = False
    anytime: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Design:
        """The design that `dataclasses.asdict` gave.

        Raises:
            KeyError, TypeError: it is none.
        """
        lists = {name: tuple(data[name]) for name in ("seeds", "metrics")}
        return cls(**{**data, **lists})

    def folders(self) -> dict[str, list[str]]:
        """The folders of each arm, by its name."""
        arms = {ZERO_SHOT: [ZERO_SHOT], FORM: [FORM]}
        arms[COMPILED] = [f"{COMPILED}-{seed}" for seed in self.seeds]
        if self.form_too:
            arms[COMPILED_FORM] = [f"{COMPILED_FORM}-{seed}" for seed in self.seeds]
        for name, votes in ((VOTES, self.votes), (VOTES_USD, self.votes_usd)):
            if votes:
                arms[name] = [f"{name}-{votes:g}"]
        return arms

    def contrasts(self) -> list[Pair]:
        """Pairs of arms to compare."""
        beyond = (FORM, COMPILED_FORM) if self.form_too else (FORM, COMPILED)
        pairs = [(ZERO_SHOT, COMPILED), beyond, (ZERO_SHOT, FORM)]
        return [*pairs, *((arm, COMPILED) for arm in self.folders() if arm.startswith(VOTES))]

    def of_optimizer(self, distinct_programs: int) -> bool:
        """Whether the verdict is on the optimizer, and not on the compiled programs at hand.

        Only from three different programs on; betting speaks of those at hand.
        """
        return distinct_programs >= LEAST_SEEDS and not (self.exact or self.anytime)


@dataclass(frozen=True)
class VerdictRequest:
    """The settings of a verdict beside those of its run and its compile.

    `equal_cost` adds votes for what the compiled arm costs more; `form_too` runs the compiled
    programs with the form repaired as well. `max_questions` looks at growing numbers of questions,
    from the config's limit to this, until every metric is decided.
    """

    seeds: int = 1
    equal_cost: bool = True
    form_too: bool = True
    metrics: Sequence[str] = HEADLINE
    margin: float | None = None
    exact: bool = False
    max_questions: int | None = None


def verdict_folder(config: RunConfig, settings: CompileConfig) -> Path:
    """Where the verdict goes."""
    return config.out or Path("verdicts") / folder_name(config, settings)


def subject(design: Design, distinct_programs: int, trained: int) -> str:
    """The subject of the verdict's sentences; plural if there are several programs.

    All seeds have one training set, of `trained` questions: another would give other programs.
    """
    if design.of_optimizer(distinct_programs):
        return f"compiling on these {trained} questions"
    n = len(design.seeds)
    return "this compiled program" if n == 1 else f"these {n} compiled programs"


def conclusion(who: str, verdicts: Mapping[Pair, str]) -> str:
    """A sentence on all contrasts of one metric together."""
    many = who.startswith("these")
    helps, hurts, changes, is_ = (
        ("help", "hurt", "change", "are") if many else ("helps", "hurts", "changes", "is")
    )
    overall = verdicts[ZERO_SHOT, COMPILED]
    if overall.startswith("worse"):
        return f"{who} {hurts}{overall.removeprefix('worse')}"
    if overall.startswith("equivalent"):
        return f"{who} {changes} nothing that matters"
    if not overall.startswith("better"):
        said = f"{who} {is_} not shown to help or to hurt"
        rivals = [_VOTES[a] for (a, _), word in verdicts.items()
                  if a in _VOTES and word.startswith("worse")]  # fmt: skip
        return said + (f", and {is_} worse than {' and '.join(rivals)}" if rivals else "")
    clauses = [clause for pair, word in verdicts.items() if (clause := _clause(pair, word))]
    good, other = ([text for fine, text in clauses if fine is sort] for sort in (True, False))
    parts = [" and ".join(good)] if good else []
    parts += ["but " + " and ".join(other)] if other else []
    return f"{who} {helps}{overall.removeprefix('better')}, {', '.join(parts)}"


_VOTES = {VOTES: "votes for as many tokens", VOTES_USD: "votes for as many dollars"}


def _clause(pair: Pair, word: str) -> tuple[bool, str] | None:
    """Whether a contrast speaks for compiling, and how it says so; None for one that is none."""
    good, bad = word.startswith("better"), word.startswith("worse")
    if pair == (FORM, COMPILED_FORM):
        said = "also" if good else "the reverse" if bad else "not shown to help"
        return good, f"{said} where the answer's form is repaired"
    rival = {FORM: "repairing the answer's form", **_VOTES}.get(pair[0])
    if rival is None or pair[1] != COMPILED:
        return None
    than = "more than" if good else "less than" if bad else "not shown to help more than"
    return good, f"{than} {rival}"
