"""The verdict on compiling: the arms it needs, each an ordinary run, and what they show together.

    zero-shot/      the program as it is
    form/           not compiled, with the answer's form repaired (`ragbench.programs.form`)
    program-S/      the program compiled with optimizer seed S
    compiled-S/     its run
    votes-N/        not compiled, N votes: what the compiled arm's tokens would buy instead
    verdict.json    computed from the records and sidecars of the others

Only held-out questions are asked. Everything cut off is continued by the same command, arm by arm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import DataError, RunError, StoppedError
from ragbench.experiments.artefact import Sidecar, assert_held_out, read_json, read_sidecar
from ragbench.experiments.compare import scores_of, shared_questions
from ragbench.experiments.compile import CompileConfig, Say, compile_program, folder_name, plan
from ragbench.experiments.config import RunConfig
from ragbench.experiments.evaluate import Evaluation, evaluate, reopen
from ragbench.experiments.prompts import PromptChange, prompt_changes
from ragbench.experiments.rundir import RunDir, write_json
from ragbench.experiments.runner import OnRecord, OnStart
from ragbench.experiments.spending import Spending, spending_of, tokens_per_question
from ragbench.experiments.summary import HEADLINE
from ragbench.metrics import get_metric
from ragbench.metrics.aggregate import GROUPINGS
from ragbench.metrics.stats import Comparison, compare_scores, correct
from ragbench.programs.form import FORM_INSTRUCTION

VERDICT = "verdict.json"
ZERO_SHOT, FORM, COMPILED, VOTES = "zero-shot", "form", "compiled", "votes"
#: Fewer votes than this cannot change an answer, since the first wins a tie.
LEAST_VOTES = 3


@dataclass(frozen=True)
class Design:
    """What a verdict is over: the arms' folders, and how they are compared."""

    seeds: tuple[int, ...]
    votes: int = 0  # 0: no such arm
    metrics: tuple[str, ...] = HEADLINE
    margin: float | None = None

    def folders(self) -> dict[str, list[str]]:
        """The folders of each arm, by its name."""
        return {
            ZERO_SHOT: ["zero-shot"],
            FORM: ["form"],
            COMPILED: [f"compiled-{seed}" for seed in self.seeds],
            **({VOTES: [f"votes-{self.votes}"]} if self.votes else {}),
        }

    def contrasts(self) -> list[tuple[str, str]]:
        """Pairs of arms (A, B) to compare; a difference is B minus A."""
        pairs = [(ZERO_SHOT, COMPILED), (FORM, COMPILED), (ZERO_SHOT, FORM)]
        return [*pairs, (VOTES, COMPILED)] if self.votes else pairs


@dataclass(frozen=True)
class Verdict:
    """What the arms show; p-values are Holm's over all contrasts and metrics.

    `groups` breaks compiled against zero-shot down (metric -> grouping -> group), with intervals
    and no verdict. `fixed` and `broken` are the questions that more than half of the seeds, or the
    zero-shot arm alone, got exactly right.
    """

    folder: Path
    design: Design
    arms: Mapping[str, Sequence[Evaluation]]
    sidecars: Sequence[Sidecar]
    contrasts: Mapping[tuple[str, str], Mapping[str, Comparison]]
    groups: Mapping[str, Mapping[str, Mapping[str, Comparison]]]
    fixed: Sequence[str]
    broken: Sequence[str]
    prompts: Sequence[Sequence[PromptChange]]
    spending: Spending

    @property
    def distinct_programs(self) -> int:
        """How many different programs the seeds came to."""
        return len({sidecar.program_sha256 for sidecar in self.sidecars})

    def conclusion(self, metric: str) -> str:
        """What all contrasts on `metric` say together of compiling, in words."""
        word = {pair: found[metric].verdict for pair, found in self.contrasts.items()}
        overall, beyond = word[ZERO_SHOT, COMPILED], word[FORM, COMPILED]
        if overall.startswith("worse"):
            return f"compiling hurts{overall.removeprefix('worse')}"
        if overall.startswith("equivalent"):
            return "compiling changes nothing that matters"
        if not overall.startswith("better"):
            return "compiling is not shown to help or to hurt"
        if beyond.startswith("better"):
            return "compiling helps, and more than repairing the answer's form does"
        if beyond.startswith("worse"):
            return "compiling helps, but less than repairing the answer's form does"
        return "compiling helps, but not shown to help more than repairing the answer's form"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "design": asdict(self.design),
            "form_instruction": FORM_INSTRUCTION,
            "arms": {
                name: [{"folder": run.folder.name, "summary": run.summary} for run in runs]
                for name, runs in self.arms.items()
            },
            "contrasts": [
                {"a": a, "b": b, "metric": metric, **asdict(comparison)}
                for (a, b), found in self.contrasts.items()
                for metric, comparison in found.items()
            ],
            "conclusions": {metric: self.conclusion(metric) for metric in self.design.metrics},
            "groups": {
                metric: {by: {k: asdict(c) for k, c in rows.items()} for by, rows in found.items()}
                for metric, found in self.groups.items()
            },
            "fixed": list(self.fixed),
            "broken": list(self.broken),
            "distinct_programs": self.distinct_programs,
            "prompts": [[asdict(change) for change in seed] for seed in self.prompts],
            "spending": self.spending.to_dict(),
        }


def run_verdict(
    config: RunConfig,
    how: CompileConfig,
    *,
    seeds: int = 1,
    equal_cost: bool = False,
    metrics: Sequence[str] = HEADLINE,
    margin: float | None = None,
    say: Say = print,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
) -> Verdict:
    """Run every arm, or continue them, and give the verdict, written to `verdict.json`.

    Raises:
        DataError: the questions asked are not held out.
        StoppedError: a limit of spending was reached; it shows the arms as far as they came.
        RagbenchError: something else the user can mend.
    """
    if config.split != "test":
        raise DataError(
            f"a verdict is on held-out questions; leave out --split {config.split}, "
            "which compiling uses"
        )
    for metric in metrics:
        get_metric(metric)
    plan(config, how)  # what compiling would refuse is refused before an arm is paid for
    folder = folder_of(config, how)
    first = how.optimizer_seed
    numbers = tuple(range(first, first + seeds))
    runs: list[Evaluation] = []

    def arm(name: str, **over: Any) -> Evaluation:
        say(f"arm {name}")
        fields = config.model_copy(update={**over, "out": folder / name})
        runs.append(evaluate(fields, on_start=on_start, on_record=on_record))
        if runs[-1].stopped_by:
            where = f"{runs[-1].stopped_by} in arm {name}, {runs[-1].progress.words()}"
            raise StoppedError(where, partial=runs)
        return runs[-1]

    with RunDir(folder).locked():
        zero_shot = arm("zero-shot")
        arm("form", form=True)
        compiled = []
        for number in numbers:
            each = {"optimizer_seed": number, "out": folder / f"program-{number}"}
            try:
                program = compile_program(config, how.model_copy(update=each), say=say)
            except StoppedError as stop:
                stop.partial = tuple(runs)
                raise
            compiled.append(arm(f"compiled-{number}", compiled=program))
        votes = _votes(zero_shot, compiled, say) if equal_cost else 0
        if votes:
            arm(f"votes-{votes}", votes=votes)
        return assemble(folder, Design(numbers, votes, tuple(metrics), margin))


def folder_of(config: RunConfig, how: CompileConfig) -> Path:
    """Where the verdict goes."""
    return config.out or Path("verdicts") / folder_name(config, how)


def reread(folder: Path) -> Verdict:
    """The verdict in `folder`, computed again from its records; asks nothing.

    Raises:
        RunError: it holds no finished verdict.
    """
    path = folder / VERDICT
    if not path.is_file():
        raise RunError(f"{folder} holds no finished verdict: it has no {VERDICT}")
    kept = read_json(path).get("design")
    try:
        design = Design(
            **{**kept, "seeds": tuple(kept["seeds"]), "metrics": tuple(kept["metrics"])}  # type: ignore[index, dict-item]
        )
    except (TypeError, KeyError):
        raise RunError(f"cannot read {path}: it has no design; run the verdict again") from None
    return assemble(folder, design)


def assemble(folder: Path, design: Design) -> Verdict:
    """The verdict on the finished runs in `folder`, written to `verdict.json`.

    Raises:
        CompareError: the arms are over different questions.
        DataError: a question was used to compile.
        RunError: an arm is missing.
    """
    arms = {name: [reopen(folder / f) for f in found] for name, found in design.folders().items()}
    sidecars = [read_sidecar(folder / f"program-{seed}") for seed in design.seeds]
    _check(arms, sidecars)
    base = arms[ZERO_SHOT][0]
    qids = sorted(base.records)
    contrasts = _contrasts(arms, design, qids)
    fixed, broken = _changed(arms, qids)
    verdict = Verdict(
        folder=folder,
        design=design,
        arms=arms,
        sidecars=sidecars,
        contrasts=contrasts,
        groups={metric: _groups(arms, metric, qids) for metric in design.metrics},
        fixed=fixed,
        broken=broken,
        prompts=[
            prompt_changes(folder / f"program-{seed}", sidecar)
            for seed, sidecar in zip(design.seeds, sidecars, strict=True)
        ],
        spending=spending_of(base, arms[COMPILED], sidecars),
    )
    write_json(folder / VERDICT, verdict.to_dict())
    return verdict


def _check(arms: Mapping[str, Sequence[Evaluation]], sidecars: Sequence[Sidecar]) -> None:
    base = arms[ZERO_SHOT][0]
    for runs in arms.values():
        for run in runs:
            shared_questions(base, run)
    asked = [dspy.Example(qid=q, question=r["question"]) for q, r in base.records.items()]
    for run, sidecar in zip(arms[COMPILED], sidecars, strict=True):
        assert_held_out(sidecar, asked, dataset=base.card["data"]["name"])
        if run.card["compiled"] != sidecar.program_sha256:
            raise RunError(f"{run.folder} is a run of another compiled program; remove it")


def _votes(zero_shot: Evaluation, compiled: Sequence[Evaluation], say: Say) -> int:
    """Votes whose tokens are no fewer than the compiled arm's; 0 if that has none to spare."""
    before = tokens_per_question([zero_shot])
    ratio = tokens_per_question(compiled) / before if before else 0.0
    if ratio <= 1:
        say("no equal-cost arm: compiled takes no more tokens than zero-shot")
        return 0
    return min(99, max(LEAST_VOTES, math.ceil(ratio)))


def _scores(runs: Sequence[Evaluation], metric: str, qids: Sequence[str]) -> dict[str, list[float]]:
    columns = [scores_of(run, metric, qids) for run in runs]
    return {qid: [column[qid] for column in columns] for qid in qids}


def _compare(
    a: Sequence[Evaluation], b: Sequence[Evaluation], metric: str, qids: Sequence[str],
    **how: Any,
) -> Comparison:  # fmt: skip
    kind = get_metric(metric)
    return compare_scores(
        _scores(a, metric, qids), _scores(b, metric, qids), **how,
        higher_is_better=kind.higher_is_better, score_range=kind.score_range,
    )  # fmt: skip


def _contrasts(
    arms: Mapping[str, Sequence[Evaluation]], design: Design, qids: Sequence[str]
) -> dict[tuple[str, str], dict[str, Comparison]]:
    keys = [(pair, metric) for pair in design.contrasts() for metric in design.metrics]
    family = correct(
        [_compare(arms[a], arms[b], metric, qids, margin=design.margin) for (a, b), metric in keys]
    )
    found: dict[tuple[str, str], dict[str, Comparison]] = {pair: {} for pair, _ in keys}
    for (pair, metric), comparison in zip(keys, family, strict=True):
        found[pair][metric] = comparison
    return found


def _groups(
    arms: Mapping[str, Sequence[Evaluation]], metric: str, qids: Sequence[str]
) -> dict[str, dict[str, Comparison]]:
    """Compiled against zero-shot by group; a grouping that knows of one group says nothing."""
    records = arms[ZERO_SHOT][0].records
    found = {}
    for name in ("qtype", "hops"):
        members: dict[str, list[str]] = {}
        for qid in qids:
            group = GROUPINGS[name](records[qid])
            members.setdefault("unknown" if group is None else str(group), []).append(qid)
        if len(members) > 1:
            found[name] = {
                group: _compare(arms[ZERO_SHOT], arms[COMPILED], metric, some, n_resamples=2_000)
                for group, some in sorted(members.items())
            }
    return found


def _changed(
    arms: Mapping[str, Sequence[Evaluation]], qids: Sequence[str]
) -> tuple[list[str], list[str]]:
    before = _scores(arms[ZERO_SHOT], "em", qids)
    after = _scores(arms[COMPILED], "em", qids)

    def right(scores: Sequence[float]) -> bool:
        return sum(scores) > len(scores) / 2

    fixed = [q for q in qids if right(after[q]) and not right(before[q])]
    return fixed, [q for q in qids if right(before[q]) and not right(after[q])]
