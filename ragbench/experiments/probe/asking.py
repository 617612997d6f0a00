"""Ask a few training questions before a compile, in the ways that tell where there is room.

Five runs of each question: zero-shot, form repaired, form repaired with the gold passages given,
and a second and a third sample. Together they take at most a fifth of the calls that the compile is
likely to take.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dspy
from dspy import LMError

from ragbench import optimizers
from ragbench.context import current, use
from ragbench.data import for_optimizer
from ragbench.errors import RunError
from ragbench.experiments import budgets, estimates, store
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.plans import Plan, make_plan
from ragbench.experiments.probe.judging import Answers, Judgement, cannot_help, judge, means_of
from ragbench.experiments.runs.context import stop_if_refused
from ragbench.experiments.watch import SILENT, Watch
from ragbench.ledger import Side
from ragbench.lms.calls import Limits, spending
from ragbench.metrics import usable_clusters
from ragbench.optimizers.scoring import is_exact
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.indexed import IndexProgram, index_ahead
from ragbench.programs.wrappers import Sampled, repair_form
from ragbench.redact import redact
from ragbench.retrievers import Corpus, IndexStore, Passage, Retriever

#: What a probe wrote, in the folder of the compile; its version.
PROBE, FORMAT = "probe.json", 1
#: The most and the fewest questions, and the share of the compile's likely calls.
MOST, LEAST, SHARE = 30, 10, 0.2
#: Questions between two looks at what was spent.
_BATCH = 5
#: Share of questions to which all gold passages must get, or they were not given.
_GIVEN = 0.9


class GoldPassages(Retriever):
    """Finds the gold passages of the question that is asked, whatever is searched for."""

    name = "gold"

    def __init__(self, corpus: Corpus, places: Mapping[str, Sequence[int]]) -> None:
        """`places` are positions in `corpus` by the text of the question."""
        super().__init__(corpus)
        self._places = places

    def for_question(self, question: str, qid: str | None = None) -> Retriever:
        own = self.corpus.subset(self._places.get(question, ()))
        return GoldPassages(own, {question: range(len(own))})

    def search(self, query: str, *, k: int) -> list[Passage]:
        """All of them, also where that is more than `k`: what is asked is what they are worth."""
        return [passage.scored(1.0) for passage in self.corpus]


@dataclass
class _Arm:
    """One way of asking, with what came of it by the text of the question."""

    program: RAGProgram
    scores: list[float] = field(default_factory=list)
    failed: int = 0
    predictions: dict[str, Any] = field(default_factory=dict)


def probe_program(
    config: RunConfig,
    settings: CompileConfig,
    *,
    dry_run: bool = False,
    on_message: Callable[[str], None] = print,
    watch: Watch = SILENT,
) -> Judgement | None:
    """Ask, say what came of it, and write it down beside where the compile would go.

    None where too few questions fit, or with `dry_run`: then nothing is asked. Nor is it where the
    optimizer can change nothing of the program.

    Raises:
        RagbenchError: as for a compile.
    """
    plan = make_plan(config, settings)
    useless = cannot_help(plan.optimizer, plan.run_context.program)
    if useless:
        advice = f"advice: do not compile; {useless}"
        on_message(advice)
        return Judgement(0.0, [advice])
    probe = _Probe(plan)
    try:
        most = probe.limit()
    except RunError as error:
        on_message(f"no probe: {error}")
        return None
    on_message(f"probe: {len(probe.chosen)} training questions, at most {most:,} calls")
    if dry_run:
        return None
    folder = plan.folder / "probe"
    with store.locked(folder):
        plan.run_context.check_lms()
        calls = probe.ask(most, folder, watch)
        if len(probe.done) < LEAST:
            on_message(f"no probe: its {most:,} calls were spent before {LEAST} questions")
            return None
        answers = probe.answers()
        means = means_of(
            plan.optimizer, plan.run_context.program, answers, len(plan.train),
            teacher=plan.teacher is not None,
        )  # fmt: skip
        judgement = judge(answers, means, plan.optimizer.name, settings.optimizer_metric)
        facts = {"format": FORMAT, "calls": calls, **asdict(answers), **asdict(judgement)}
        store.write_json(folder / PROBE, facts)
    for line in judgement.sentences:
        on_message(line)
    return judgement


class _Probe:
    """The ways of asking the training questions of a plan, and what came of each.

    `chosen` are the questions that may be asked, in the order of the seed, `done` those that were.
    Where enough of them have gold passages in the corpus, only these are asked. A program with an
    index of its own would need another index, so it is given none.
    """

    def __init__(self, plan: Plan) -> None:
        self.done: list[dspy.Example] = []
        self._plan = plan
        self._examples = {example.question: example for example in plan.train}
        self._gold: dict[str, list[int]] = {}
        places = plan.run_context.dataset.corpus.positions
        if not isinstance(plan.run_context.program, IndexProgram):
            for example in plan.train:
                pids = _gold_pids(example)
                if pids and places.keys() >= set(pids):
                    self._gold[example.question] = [places[pid] for pid in pids]
        self.chosen = for_optimizer(plan.train)
        if len(self._gold) < LEAST:
            self._gold = {}
        else:
            self.chosen = [e for e in self.chosen if e.question in self._gold]
        random.Random(plan.settings.optimizer_seed).shuffle(self.chosen)
        self._arms = self._ways()

    def _ways(self) -> list[_Arm]:
        """Every way: zero-shot, form repaired, the second and third sample, and with gold.

        Each has a copy of the program of its own.
        """
        plain = self._plan.run_context.program
        programs: list[RAGProgram] = [plain.deepcopy(), repair_form(plain.deepcopy())]
        for number in (1, 2):
            programs.append(Sampled(plain.deepcopy(), number))
        if self._gold:
            program = plain.deepcopy()
            inside = [program]
            while inside:
                inner = inside.pop()
                inner.retriever = GoldPassages(self._plan.run_context.dataset.corpus, self._gold)
                inside.extend(inner.inside())
            programs.append(repair_form(program))
        return list(map(_Arm, programs))

    def limit(self) -> int:
        """The most calls that may be made, by which so many questions are left; asks no server.

        Raises:
            RunError: no question can be asked.
        """
        plan = self._plan
        with plan.run_context.active():
            ahead = index_ahead(plan.run_context.program, list(self._examples))
        if any(cost.calls.high for cost in ahead):
            raise RunError(
                "the index of this program is not made yet, which takes calls of its own; ask one "
                "question with `ragbench eval --limit 1` first"
            )
        budget = budgets.budget_of(plan)
        if budget is None:
            raise RunError(
                f"what {plan.optimizer.name} will spend is unknown, so a fifth of it is too"
            )
        likely = budgets.estimate_compile(plan, budget).likely.calls
        calls = estimates.rehearse_questions(plan.run_context, plan.train).likely.calls
        calls_each = len(self._arms) * max(calls, 1)
        most = math.floor(SHARE * likely)
        fits = math.floor(most / calls_each)
        if fits < LEAST:
            raise RunError(
                f"the compile is likely to take {likely:,.0f} calls, and {LEAST} questions would "
                f"take {LEAST * calls_each:,.0f}, more than a fifth; compile at once, or with more "
                "questions"
            )
        del self.chosen[min(MOST, fits) :]
        n = len(self.chosen)
        if n < LEAST:
            raise RunError(
                f"there are {n} training questions, and a probe asks {LEAST} at the least"
            )
        return most

    def ask(self, most: int, folder: Path, watch: Watch) -> int:
        """Asks the questions, unless `most` calls run out before; returns the calls it took."""
        run_context = self._plan.run_context
        n = len(self.chosen)
        journal = store.CallJournal(folder / store.CALLS)
        with journal.open() as ledger, run_context.active():
            with use(current().plus(Side(store.PREPARATION_SIDE))):  # a compile takes it as well
                run_context.retriever.build(IndexStore(), watch.prepare)
                questions = [example.question for example in self.chosen]
                run_context.program.prepare(questions, watch.prepare)
            with spending(Limits(calls=most)) as spent:
                for start in range(0, n, _BATCH):
                    batch = self.chosen[start : start + _BATCH]
                    needed = spent.total.calls * len(batch) / max(1, len(self.done))
                    if spent.total.calls + needed > most:
                        break
                    try:
                        scores = [self._measured(arm, batch, folder) for arm in self._arms]
                    except (RunError, LMError) as error:
                        # The probe's own calls are spent, and not those of the command.
                        if spent.error is None and spent.stopped_by == spent.limits.option("calls"):
                            break
                        stop_if_refused(ledger, failed=True)
                        raise RunError(redact(str(error))) from None
                    for arm, row in zip(self._arms, scores, strict=True):
                        arm.scores.extend(row.scores)
                        arm.failed += row.failed
                    self.done.extend(batch)
                    watch.count("training questions", len(self.done), n)
        return spent.total.calls

    def _measured(
        self, arm: _Arm, batch: Sequence[dspy.Example], folder: Path
    ) -> optimizers.Scores:
        plan = self._plan
        scorer = optimizers.make_scorer(plan.settings.optimizer_metric)

        def noted(example: dspy.Example, prediction: Any) -> float:
            arm.predictions[example.question] = prediction
            return scorer(example, prediction)

        task = optimizers.Task(
            train=batch,
            val=batch,
            scorer=noted,
            lm=plan.run_context.lm,
            log_folder=folder,
            seed=plan.settings.optimizer_seed,
            workers=plan.run_context.config.workers,
        )
        with use(current().plus(Side("probe"))):
            return optimizers.measure(arm.program, batch, task)

    def answers(self) -> Answers:
        """What came of the questions that were asked.

        Raises:
            RunError: every one of them failed.
        """
        zero_shot, form, *samples = self._arms[:4]
        if zero_shot.failed == len(self.done):
            raise RunError(
                "every question failed, so nothing can be said; run the same program with "
                "`ragbench eval` to see why"
            )
        exact = 0
        own_queries = False
        numbers = set()
        for example in self.done:
            prediction = zero_shot.predictions.get(example.question)
            if prediction is None or not prediction.keys():  # it failed
                continue
            exact += is_exact(example, prediction)
            searches = prediction.get("searches") or ()
            numbers.add(len(searches))
            own_queries |= not all(example.question.startswith(search.query) for search in searches)
        gold_scores = None
        gold_found = None
        if self._gold:
            gold_found = self._with_gold(zero_shot)
            if self._with_gold(self._arms[-1]) >= _GIVEN * len(self.done):
                gold_scores = self._arms[-1].scores
        examples = [self._examples[example.question] for example in self.done]
        return Answers(
            zero_shot=zero_shot.scores,
            form=form.scores,
            gold=gold_scores,
            samples=[sample.scores for sample in samples],
            exact=exact,
            own_queries=own_queries or len(numbers) > 1,  # whether to search is a choice too
            failed=sum(arm.failed for arm in self._arms),
            found=gold_found,
            clusters=usable_clusters([str(e.get("cluster") or "") for e in examples]),
        )

    def _with_gold(self, arm: _Arm) -> int:
        """The questions to whose prediction all their gold passages got."""
        number = 0
        for example in self.done:
            passages = getattr(arm.predictions.get(example.question), "passages", None) or ()
            pids = _gold_pids(self._examples[example.question])
            number += bool(pids) and {str(passage.pid) for passage in passages} >= set(pids)
        return number


def _gold_pids(example: dspy.Example) -> list[str]:
    return list(map(str, example.get("gold_pids") or ()))
