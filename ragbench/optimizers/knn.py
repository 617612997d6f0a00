"""Demonstrations chosen anew for each question: its nearest training questions.

`dspy.KNNFewShot` bootstraps again at every question, a dozen calls each, and its program cannot be
saved. Here every training question is answered once when compiling; the right answers make a bank
that is saved as JSON beside the program, and a question is shown the demonstrations of its
neighbours. Nearness is the cosine of TF-IDF weights of words, so that loading needs no model.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import dspy
from pydantic import Field

from ragbench.errors import ConfigError, RunError
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.demonstrations import fit_demos, one_step_each
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range
from ragbench.words import words

BANK = "bank.json"


class KNNKnobs(OptimizerKnobs):
    """Knobs of `knn`."""

    k: int = Field(3, ge=1, le=32, description="neighbours whose demonstrations are shown")
    rounds: int = Field(1, ge=1, le=10, description="attempts per training question")


@OPTIMIZERS.register("knn")
class KNN(Optimizer):
    """A bank of bootstrapped demonstrations, of which each question is shown its neighbours'."""

    name = "knn"
    description = "for each question, demonstrations of the training questions nearest to it"
    source = "dspy.KNNFewShot, with a bank instead of a bootstrap per question"
    formula = "T to T x rounds program runs"
    sees = "no call of a prompt model"
    changes = "demonstrations"
    needs = Needs(teacher=True)
    Knobs = KNNKnobs
    presets = {"medium": {"k": 4, "rounds": 2}, "heavy": {"k": 6, "rounds": 3}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        """Every training question is run until it is answered, `rounds` times at the most."""
        return Budget(teacher_runs=Range(size.n_train, size.n_train * self.knobs.rounds))

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        entries = []
        metric = one_step_each(task.metric)
        for example in task.trainset:
            demos = self._right_answer(student, example, metric, task.teacher_settings)
            if demos:
                entries.append({"question": example.question, "demos": demos})
        if not entries:
            raise ConfigError(
                "optimizer knn found no right answer among the training questions; give more of "
                "them, or a --teacher"
            )
        content = {"k": self.knobs.k, "entries": entries}
        program = cast(RAGProgram, student.reset_copy())
        return SearchResult(program, files={BANK: content}, notes={"bank": len(entries)})

    def _right_answer(
        self, student: RAGProgram, example: dspy.Example, metric: Any, teacher: Mapping[str, Any]
    ) -> dict[str, Any]:
        # One question at a time: not every demonstration has its question among its fields.
        few_shot = dspy.BootstrapFewShot(
            metric=metric,
            teacher_settings=dict(teacher),
            max_bootstrapped_demos=1,
            max_labeled_demos=0,
            max_rounds=self.knobs.rounds,
        )
        bank = few_shot.compile(student, trainset=[example])
        fitted = {}
        for name, p in bank.named_predictors():
            fitted[name] = fit_demos(
                p.demos, p.signature, max_tokens=self.knobs.demo_context_tokens
            )
        return {name: demos for name, demos in fitted.items() if demos}

    @classmethod
    def attach(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Give `program` the bank among `files`."""
        try:
            use_bank(program, files[BANK])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise RunError(f"cannot use {BANK} ({reason}); compile again") from None


def use_bank(program: RAGProgram, bank: Mapping[str, Any]) -> None:
    """Let each call of `program` show the demonstrations of its question's `k` nearest entries."""
    nearest = _Nearest(bank["entries"], int(bank["k"]))
    kind = type(program)

    # A class of its own, not a method of the instance, so that a copy asks itself.
    class Banked(kind):  # type: ignore[misc, valid-type]
        fixed_demos = False

        def forward(self, question: str) -> dspy.Prediction:
            copy = cast(RAGProgram, self.deepcopy())
            copy.__class__ = kind
            chosen = nearest(question)
            for name, predictor in copy.named_predictors():
                predictor.demos = [d for entry in chosen for d in entry["demos"].get(name, ())]
            return copy.forward(question)

    Banked.__name__ = kind.__name__
    Banked.__doc__ = kind.__doc__
    program.__class__ = Banked


class _Nearest:
    """Finds the entries nearest to a question, by the cosine of TF-IDF weights of words."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], k: int) -> None:
        self._entries = entries
        self._k = k
        bags = [_words(entry["question"]) for entry in entries]
        seen = Counter(word for bag in bags for word in bag)
        self._weight = {word: 1.0 + math.log(len(entries) / n) for word, n in seen.items()}
        self._vectors = list(map(self._unit, bags))

    def __call__(self, question: str) -> list[Mapping[str, Any]]:
        """At most `k` entries, the nearest last, next to the question that is asked."""
        own = self._unit(_words(question))
        near = []
        for vector in self._vectors:
            near.append(sum(own.get(word, 0.0) * x for word, x in vector.items()))
        order = sorted(range(len(near)), key=lambda i: -near[i])  # of equals the first
        return [self._entries[i] for i in reversed(order[: self._k])]

    def _unit(self, bag: Counter[str]) -> dict[str, float]:
        vector = {word: n * self._weight.get(word, 0.0) for word, n in bag.items()}
        length = math.hypot(*vector.values()) or 1.0
        return {word: x / length for word, x in vector.items()}


def _words(text: str) -> Counter[str]:
    return Counter(words(text))
