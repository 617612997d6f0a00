"""The verdict on compiling: what the finished arms of a design show together.

`verdict.json` is computed from the records and sidecars of the arms; see `design` for the folders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import RunError
from ragbench.experiments.artifacts import PROGRAM, Sidecar, assert_held_out, read_sidecar
from ragbench.experiments.compare.arms import (
    GroupDifference,
    clusters_of,
    compare_arms,
    group_differences,
    mostly_right,
    shared_questions,
)
from ragbench.experiments.compare.design import (
    COMPILED,
    COMPILED_FORM,
    VOTES,
    VOTES_USD,
    ZERO_SHOT,
    Design,
    Pair,
    conclusion,
    subject,
)
from ragbench.experiments.compare.spending import Spending, per_question, spending_of
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.experiments.store import read_object, write_json
from ragbench.metrics import GROUPINGS, Comparison, Method, correct
from ragbench.programs import PROGRAMS
from ragbench.programs.wrappers import FORM_INSTRUCTION
from ragbench.retrievers import Corpus, make_retriever

VERDICT = "verdict.json"


@dataclass(frozen=True)
class Look:
    """What was seen after `questions` of at most `most` that there are.

    `difference` and `p` (corrected; it holds whenever one stops) are of compiled against zero-shot
    on the first metric; `votes` are those of the votes arms.
    """

    questions: int
    most: int
    decided: bool
    votes: tuple[float, float]
    metric: str
    difference: float
    p: float


@dataclass(frozen=True)
class PromptChange:
    """One predictor: its instructions before and after, and the demonstrations added."""

    predictor: str
    signature: str
    before: str
    after: str
    demos: tuple[Mapping[str, Any], ...]
    demo_tokens: int


@dataclass(frozen=True)
class Verdict:
    """What the arms show; p-values are Holm's over all contrasts and metrics.

    `groups` breaks compiled against zero-shot down, with intervals and no verdict. `fixed` and
    `broken` are the questions that more than half of the seeds, or the zero-shot arm alone, got
    exactly right. `looks` are those at growing numbers of questions, where it was asked for so.
    """

    folder: Path
    design: Design
    arms: Mapping[str, Sequence[Evaluation]]
    sidecars: Sequence[Sidecar]
    contrasts: Mapping[Pair, Mapping[str, Comparison]]
    groups: Sequence[GroupDifference]
    fixed: Sequence[str]
    broken: Sequence[str]
    prompts: Sequence[Sequence[PromptChange]]
    spending: Spending
    looks: Sequence[Look] = ()

    @property
    def distinct_programs(self) -> int:
        """The number of different programs that the seeds led to."""
        return len({sidecar.program_sha256 for sidecar in self.sidecars})

    @property
    def subject(self) -> str:
        """What the verdict's sentences are on."""
        trained = len(self.sidecars[0].data.train.ids)
        return subject(self.design, self.distinct_programs, trained)

    @property
    def questions(self) -> int:
        """How many questions each arm was asked."""
        return len(self.arms[ZERO_SHOT][0].records)

    def conclusion(self, metric: str) -> str:
        """A sentence on compiling from all contrasts of `metric` together."""
        words = {pair: by_metric[metric].verdict for pair, by_metric in self.contrasts.items()}
        return conclusion(self.subject, words)

    def decided(self) -> bool:
        """Whether compiled against zero-shot shows something on every metric."""
        comparisons = self.contrasts[ZERO_SHOT, COMPILED].values()
        return not any(c.verdict.startswith("no difference") for c in comparisons)

    def matched(self) -> dict[str, float]:
        """Each votes arm's spending, of the kind that it matches, divided by the compiled arm's."""
        measures = {VOTES: ("prompt_tokens", "completion_tokens"), VOTES_USD: ("cost_usd",)}
        took = {
            arm: [per_question(self.arms.get(name, ()), *names) for name in (arm, COMPILED)]
            for arm, names in measures.items()
        }
        return {arm: mine / its for arm, (mine, its) in took.items() if mine is not None and its}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "design": asdict(self.design),
            "form_instruction": FORM_INSTRUCTION,
            "arms": {
                name: [{"folder": r.folder.name, "summary": r.summary.to_dict()} for r in runs]
                for name, runs in self.arms.items()
            },
            "contrasts": [
                {"a": a, "b": b, "metric": metric, **asdict(comparison)}
                for (a, b), by_metric in self.contrasts.items()
                for metric, comparison in by_metric.items()
            ],
            "subject": self.subject,
            "conclusions": {metric: self.conclusion(metric) for metric in self.design.metrics},
            "groups": list(map(asdict, self.groups)),
            "matched": self.matched(),
            "looks": list(map(asdict, self.looks)),
            "fixed": list(self.fixed),
            "broken": list(self.broken),
            "distinct_programs": self.distinct_programs,
            "prompts": [list(map(asdict, seed)) for seed in self.prompts],
            "spending": self.spending.to_dict(),
        }


def reread(folder: Path) -> Verdict:
    """The verdict in `folder`, computed again from its records; asks nothing.

    Raises:
        RunError: it holds no finished verdict.
    """
    path = folder / VERDICT
    if not path.is_file():
        raise RunError(f"{folder} holds no finished verdict: it has no {VERDICT}")
    stored = read_object(path)
    try:
        design = Design.from_dict(stored["design"])
        looks = looks_of(stored)
    except (TypeError, KeyError):
        raise RunError(f"cannot read {path}: it has no design; run the verdict again") from None
    return assemble(folder, design, looks)


def looks_of(stored: Mapping[str, Any]) -> list[Look]:
    """The looks in what `verdict.json` holds."""
    return [Look(**{**look, "votes": tuple(look["votes"])}) for look in stored.get("looks", ())]


def assemble(folder: Path, design: Design, looks: Sequence[Look] = ()) -> Verdict:
    """The verdict on the finished runs in `folder`, by `design`, after `looks`.

    Raises:
        CompareError: the arms are over different questions.
        DataError: a question was used to compile.
        RunError: an arm is missing.
    """
    arms = {name: [reopen(folder / f) for f in names] for name, names in design.folders().items()}
    sidecars = [read_sidecar(folder / f"program-{seed}") for seed in design.seeds]
    _check(arms, sidecars)
    zero_shot, compiled = arms[ZERO_SHOT], arms[COMPILED]
    qids = sorted(zero_shot[0].records)
    distinct = len({sidecar.program_sha256 for sidecar in sidecars})
    method = Method(
        margin=design.margin,
        clusters=clusters_of(zero_shot[0].records),
        exact=design.exact,
        anytime=design.anytime,
        random_seeds=design.of_optimizer(distinct),
    )
    before, after = mostly_right(zero_shot, qids), mostly_right(compiled, qids)
    by = {name: GROUPINGS[name] for name in ("qtype", "hops")}
    by = {n: g for n, g in by.items() if len(set(zero_shot[0].records.column(g).values())) > 1}
    return Verdict(
        folder=folder,
        design=design,
        arms=arms,
        sidecars=sidecars,
        contrasts=_contrasts(arms, design, qids, method),
        groups=group_differences(zero_shot, compiled, by, design.metrics, qids, method),
        fixed=[qid for qid in qids if qid in after - before],
        broken=[qid for qid in qids if qid in before - after],
        prompts=[
            prompt_changes(folder / f"program-{seed}", sidecar)
            for seed, sidecar in zip(design.seeds, sidecars, strict=True)
        ],
        spending=spending_of(zero_shot[0], compiled, sidecars),
        looks=looks,
    )


def keep(verdict: Verdict) -> None:
    """Write `verdict.json`."""
    write_json(verdict.folder / VERDICT, verdict.to_dict(), sealed=True)


def _check(arms: Mapping[str, Sequence[Evaluation]], sidecars: Sequence[Sidecar]) -> None:
    base = arms[ZERO_SHOT][0]
    for runs in arms.values():
        for run in runs:
            shared_questions(base, run)
    asked = [dspy.Example(qid=q, question=r.question) for q, r in base.records.items()]
    for number, sidecar in enumerate(sidecars):
        assert_held_out(sidecar.data, asked, dataset=base.card.data.name)
        for name in (COMPILED, COMPILED_FORM):
            for run in arms.get(name, ())[number : number + 1]:
                if run.card.compiled != sidecar.program_sha256:
                    raise RunError(f"{run.folder} is a run of another compiled program; remove it")


def _contrasts(
    arms: Mapping[str, Sequence[Evaluation]], design: Design, qids: Sequence[str], method: Method
) -> dict[Pair, dict[str, Comparison]]:
    pairs, metrics = design.contrasts(), design.metrics
    found = [compare_arms(arms[a], arms[b], m, qids, method) for a, b in pairs for m in metrics]
    family = iter(correct(found))
    return {pair: {metric: next(family) for metric in metrics} for pair in pairs}


def prompt_changes(folder: Path, sidecar: Sidecar) -> list[PromptChange]:
    """One row per predictor of the compiled program in `folder`, in DSPy's order.

    Demos that are chosen anew for each question, as by knn, are not among them.

    Raises:
        RunError: the program cannot be read.
    """
    state = read_object(folder / PROGRAM)
    nothing = make_retriever("bm25", Corpus(()), setting="pooled")
    bare = PROGRAMS.get(sidecar.program)(nothing, **sidecar.knobs)  # as before it was compiled
    before = dict(bare.named_predictors())
    return [
        PromptChange(
            predictor=card.name,
            signature=card.signature,
            before=before[card.name].signature.instructions,
            after=state[card.name]["signature"]["instructions"],
            demos=tuple(dict(demo) for demo in state[card.name]["demos"]),
            demo_tokens=card.demo_tokens,
        )
        for card in sidecar.predictors
    ]
