"""Demonstrations selected per question: those of the nearest training questions.

`dspy.KNNFewShot` bootstraps for every question, a dozen calls each, and cannot be saved. Here
compiling answers every training question once. The right answers form a bank, saved as JSON next to
the program, and a question gets the demonstrations of its nearest neighbours. BM25 ranks the
neighbours, so that loading needs no model.
"""

from collections.abc import Mapping
from typing import Any, cast

import dspy
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.demonstrations import fit_demos, one_call_per_predictor
from ragbench.optimizers.students import answer_by
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range
from ragbench.retrievers.bm25 import make_postings
from ragbench.text_normalization import words

BANK = "bank.json"


class KNNKnobs(OptimizerKnobs):
    """Parameters of `knn`."""

    k: int = Field(3, ge=1, le=32, description="neighbours whose demonstrations are shown")
    rounds: int = Field(1, ge=1, le=10, description="attempts per training question")


@OPTIMIZERS.register("knn")
class KNN(Optimizer):
    """A bank of bootstrapped demonstrations, from which each question gets its neighbours'."""

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
        """Return the cost: every training question runs until answered, at most `rounds` times."""
        return Budget(teacher_runs=Range(size.n_train, size.n_train * self.knobs.rounds))

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        entries = []
        metric = one_call_per_predictor(task.metric)
        tokens = self.knobs.demo_context_tokens
        for example in task.trainset:
            # Compile one question at a time, because some demonstrations lack the question.
            few_shot = dspy.BootstrapFewShot(
                metric=metric,
                teacher_settings=task.teacher_settings,
                max_bootstrapped_demos=1,
                max_labeled_demos=0,
                max_rounds=self.knobs.rounds,
            )
            demos = {}
            for name, p in few_shot.compile(student, trainset=[example]).named_predictors():
                if p.demos:
                    demos[name] = fit_demos(p.demos, p.signature, max_tokens=tokens)
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

    @classmethod
    def use(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Make `program` show each question the demonstrations of its nearest entries."""
        use_bank(program, files[BANK])


def use_bank(program: RAGProgram, bank: Mapping[str, Any]) -> None:
    """Make `program` show the demonstrations of the `k` entries nearest to each question.

    Args:
        program: The program. Changed in place.
        bank: `k` and the entries: questions with demonstrations by predictor.
    """
    k = int(bank["k"])
    entries = bank["entries"]
    postings = make_postings([words(entry["question"]) for entry in entries], k1=0.9, b=0.4)

    def answer(plain: RAGProgram, question: str) -> dspy.Prediction:
        places = []
        if postings:
            places += [place for place, _ in postings.search(words(question), len(entries), k)]
        places += range(len(entries))  # if few share a word, use the first entries
        nearest = list(dict.fromkeys(places))[:k]
        for name, predictor in plain.named_predictors():
            demos = []
            for place in reversed(nearest):  # nearest last, next to the question
                demos += entries[place]["demos"].get(name, ())
            predictor.demos = demos
        return plain.forward(question)

    answer_by(program, answer)
