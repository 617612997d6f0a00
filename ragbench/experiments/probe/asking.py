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
    gold = gold_places(plan)
    try:
        n, most = how_many(plan, gold)
    except RunError as error:
        on_message(f"no probe: {error}")
        return None
    on_message(f"probe: {n} training questions, at most {most:,} calls")
    if dry_run:
        return None
    folder = plan.folder / "probe"
    with store.locked(folder):
        plan.run_context.check_lms()
        answers, calls = _ask(plan, gold, n, most, folder, watch)
        if answers is None:
            on_message(f"no probe: its {most:,} calls were spent before {LEAST} questions")
            return None
        means = means_of(
            plan.optimizer, plan.run_context.program, answers, len(plan.train),
            teacher=plan.teacher is not None,
        )  # fmt: skip
        probe = judge(answers, means, plan.optimizer.name, settings.optimizer_metric)
        facts = {"format": FORMAT, "calls": calls, **asdict(answers), **asdict(probe)}
        store.write_json(folder / PROBE, facts)
    for line in probe.sentences:
        on_message(line)
    return probe


def gold_places(plan: Plan) -> dict[str, list[int]]:
    """Positions of the gold passages of training questions, by text; empty where few are known.

    Where there are any, only questions that have them are asked. A program with an index of its
    own would need another index, so it is given none.
    """
    places: dict[str, list[int]] = {}
    corpus = plan.run_context.dataset.corpus
    if isinstance(plan.run_context.program, IndexProgram):
        return places
    for example in plan.train:
        pids = list(map(str, example.get("gold_pids") or ()))
        if pids and all(pid in corpus.positions for pid in pids):
            places[example.question] = [corpus.positions[pid] for pid in pids]
    return places if len(places) >= LEAST else {}


def questions_of(plan: Plan, gold: Mapping[str, Sequence[int]]) -> list[dspy.Example]:
    """The training questions that may be asked, in the order of the seed."""
    chosen = for_optimizer(plan.train)
    if gold:
        chosen = [example for example in chosen if example.question in gold]
    random.Random(plan.settings.optimizer_seed).shuffle(chosen)
    return chosen


def how_many(plan: Plan, gold: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Questions that are asked, and the most calls they may take; asks no server.

    Raises:
        RunError: none can be asked.
    """
    program = plan.run_context.program
    questions = [example.question for example in plan.train]
    with plan.run_context.active():
        ahead = index_ahead(program, questions)
    if any(cost.calls.high for cost in ahead):
        raise RunError(
            "the index of this program is not made yet, which takes calls of its own; ask one "
            "question with `ragbench eval --limit 1` first"
        )
    budget = budgets.budget_of(plan)
    if budget is None:
        raise RunError(f"what {plan.optimizer.name} will spend is unknown, so a fifth of it is too")
    likely = budgets.estimate_compile(plan, budget).likely.calls
    calls = estimates.rehearse_questions(plan.run_context, plan.train).likely.calls
    calls_each = (4 + bool(gold)) * max(calls, 1)
    most = math.floor(SHARE * likely)
    fits = math.floor(most / calls_each)
    if fits < LEAST:
        raise RunError(
            f"the compile is likely to take {likely:,.0f} calls, and {LEAST} questions would take "
            f"{LEAST * calls_each:,.0f}, more than a fifth; compile at once, or with more questions"
        )
    n = min(MOST, fits, len(questions_of(plan, gold)))
    if n < LEAST:
        raise RunError(f"there are {n} training questions, and a probe asks {LEAST} at the least")
    return n, most


def _ask(
    plan: Plan, gold: Mapping[str, Sequence[int]], n: int, most: int, folder: Path, watch: Watch
) -> tuple[Answers | None, int]:
    """The answers, None where calls ran out before `LEAST` questions, and the calls it took."""
    run_context = plan.run_context
    chosen = questions_of(plan, gold)[:n]
    arms = _arms(run_context.program, run_context.dataset.corpus, gold)
    done: list[dspy.Example] = []
    journal = store.CallJournal(folder / store.CALLS)
    with journal.open() as ledger, run_context.active():
        with use(current().plus(Side(store.PREPARATION_SIDE))):  # a compile takes it as well
            run_context.retriever.build(IndexStore(), watch.prepare)
            run_context.program.prepare([example.question for example in chosen], watch.prepare)
        with spending(Limits(calls=most)) as spent:
            for start in range(0, len(chosen), _BATCH):
                batch = chosen[start : start + _BATCH]
                needed = spent.total.calls * len(batch) / max(1, len(done))
                if spent.total.calls + needed > most:
                    break
                try:
                    scores = _scores(plan, arms, batch, folder)
                except (RunError, LMError) as error:
                    # The probe's own calls are spent, and not those of the command.
                    if spent.error is None and spent.stopped_by == spent.limits.option("calls"):
                        break
                    stop_if_refused(ledger, failed=True)
                    raise RunError(redact(str(error))) from None
                for arm, row in zip(arms, scores, strict=True):
                    arm.scores.extend(row.scores)
                    arm.failed += row.failed
                done.extend(batch)
                watch.count("training questions", len(done), len(chosen))
    if len(done) < LEAST:
        return None, spent.total.calls
    if arms[0].failed == len(done):
        raise RunError(
            "every question failed, so nothing can be said; run the same program with `ragbench "
            "eval` to see why"
        )
    return _answers(plan, arms, done, gold), spent.total.calls


def _arms(plain: RAGProgram, corpus: Corpus, gold: Mapping[str, Sequence[int]]) -> list[_Arm]:
    """Every way of asking: zero-shot, form repaired, the second and third sample, and with gold.

    Each has a copy of the program of its own.
    """
    programs: list[RAGProgram] = [plain.deepcopy(), repair_form(plain.deepcopy())]
    for number in (1, 2):
        programs.append(Sampled(plain.deepcopy(), number))
    if gold:
        program = plain.deepcopy()
        inside = [program]
        while inside:
            inner = inside.pop()
            inner.retriever = GoldPassages(corpus, gold)
            inside.extend(inner.inside())
        programs.append(repair_form(program))
    return list(map(_Arm, programs))


def _scores(
    plan: Plan, arms: Sequence[_Arm], batch: Sequence[dspy.Example], folder: Path
) -> list[optimizers.Scores]:
    """The scores of each arm over `batch`."""
    scorer = optimizers.make_scorer(plan.settings.optimizer_metric)
    rows = []
    for arm in arms:

        def noted(example: dspy.Example, prediction: Any, arm: _Arm = arm) -> float:
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
            rows.append(optimizers.measure(arm.program, batch, task))
    return rows


def _answers(
    plan: Plan, arms: Sequence[_Arm], done: Sequence[dspy.Example], gold: Mapping[str, Any]
) -> Answers:
    zero_shot, form, *samples = arms[:4]
    full = {example.question: example for example in plan.train}
    exact = 0
    own_queries = False
    numbers = set()
    for example in done:
        prediction = zero_shot.predictions.get(example.question)
        if prediction is None or not prediction.keys():  # it failed
            continue
        exact += is_exact(example, prediction)
        searches = prediction.get("searches") or ()
        numbers.add(len(searches))
        own_queries |= not all(example.question.startswith(search.query) for search in searches)
    gold_scores = None
    gold_found = None
    if gold:
        gold_found = _with_gold(zero_shot, done, full)
        if _with_gold(arms[-1], done, full) >= _GIVEN * len(done):
            gold_scores = arms[-1].scores
    clusters = [str(full[example.question].get("cluster") or "") for example in done]
    return Answers(
        zero_shot=zero_shot.scores,
        form=form.scores,
        gold=gold_scores,
        samples=[sample.scores for sample in samples],
        exact=exact,
        own_queries=own_queries or len(numbers) > 1,  # whether to search is a choice too
        failed=sum(arm.failed for arm in arms),
        found=gold_found,
        clusters=usable_clusters(clusters),
    )


def _with_gold(arm: _Arm, done: Sequence[dspy.Example], full: Mapping[str, dspy.Example]) -> int:
    """Questions of `done` to whose prediction all their gold passages got."""
    number = 0
    for example in done:
        passages = getattr(arm.predictions.get(example.question), "passages", None) or ()
        got = {str(passage.pid) for passage in passages}
        pids = set(map(str, full[example.question].get("gold_pids") or ()))
        number += bool(pids) and pids <= got
    return number
