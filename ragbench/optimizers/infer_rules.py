"""Rules in words, induced from training questions and answers (InferRules, of DSPy)."""

from __future__ import annotations

import logging
import random
from typing import Any, cast

import dspy
from dspy import AdapterParseError, LMError
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer
from ragbench.optimizers.bootstrap import BootstrapKnobs, bootstrap_runs, few_shot_arguments
from ragbench.optimizers.task import NEVER, Budget, Candidate, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

logger = logging.getLogger("dspy.ragbench")


class InferRulesKnobs(BootstrapKnobs):
    """Knobs of `infer_rules`."""

    candidates: int = Field(3, ge=1, le=50, description="sets of rules tried")
    rules: int = Field(5, ge=1, le=50, description="rules per predictor")
    shown: int = Field(20, ge=1, le=1000, description="questions shown to the prompt model at once")


@OPTIMIZERS.register("infer_rules")
class InferRules(Optimizer):
    """`dspy.InferRules` over a bootstrap, with its best candidate kept."""

    name = "infer_rules"
    description = "rules that a prompt model reads out of training answers, over a bootstrap"
    source = "dspy.InferRules"
    formula = (
        "candidates x V program runs, one bootstrap of at most T x rounds runs; "
        "candidates x P prompt calls, more where a prompt does not fit"
    )
    needs = Needs(prompt_lm=True, teacher=True)
    Knobs = InferRulesKnobs
    presets = {  # noqa: RUF012
        "medium": {"candidates": 6, "rules": 10},
        "heavy": {"candidates": 10, "rules": 10},
    }

    def estimate(self, size: Size) -> Budget:
        """One bootstrap, a set of rules per candidate and predictor, and their validation."""
        sets = self.knobs.candidates
        halvings = max(self.knobs.shown.bit_length(), 1)
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train),
            student_runs=Range.exactly(sets * size.n_val),
            prompt_calls=Range(1, halvings).times(sets * size.n_predictors),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The rules with the highest mean score on the validation set; the first of equals."""
        search = _InferRules(
            writer=task.writer,
            shown=self.knobs.shown,
            seed=task.seed,
            metric=task.metric,
            num_candidates=self.knobs.candidates,
            num_rules=self.knobs.rules,
            num_threads=task.workers,
            teacher_settings=task.teacher_settings,
            max_errors=NEVER,
            **few_shot_arguments(self.knobs),
        )
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        return SearchResult(best, search.tried)


class _InferRules(dspy.InferRules):
    """DSPy's writes rules into a signature that all its candidates share, so the last one wins."""

    def __init__(self, *, writer: dspy.LM, shown: int, seed: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.writer, self.shown = writer, shown
        self.tried: list[Candidate] = []
        self.rules_induction_program.teacher_settings = {"lm": writer}
        self.rules_induction_program.rng = random.Random(seed)

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if not natural_language_rules:
            return
        predictor.signature = predictor.signature.append_instructions(
            f"Please adhere to the following rules when making your prediction:\n"
            f"{natural_language_rules}"
        )

    def induce_natural_language_rules(self, predictor: Any, trainset: Any) -> str:
        """Rules from at most `shown` examples, fewer if they do not fit; none if none do."""
        demos = self.get_predictor_demos(trainset[: self.shown], predictor)
        while demos:
            try:
                return str(
                    self.rules_induction_program(self.format_examples(demos, predictor.signature))
                )
            except (LMError, AdapterParseError) as error:
                logger.warning("no rules from %d examples: %s", len(demos), error)
                demos = demos[: len(demos) // 2]
        return ""

    def evaluate_program(self, program: Any, dataset: Any) -> float:
        score = float(super().evaluate_program(program, dataset))
        note = f"rules {len(self.tried) + 1}"
        self.tried.append(Candidate(cast(RAGProgram, program.deepcopy()), score / 100, note))
        return score
