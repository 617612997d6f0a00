"""Outcome of a compile: the selected program, the messages, and the candidates.

An optimizer that does not find a better program may return a longer prompt. On a validation tie
ragbench therefore selects the uncompiled program, unless a third-party optimizer made the choice.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ragbench import optimizers
from ragbench.data import find_clusters
from ragbench.experiments import artifacts, store
from ragbench.experiments.config import candidate_folder, compiled_digest
from ragbench.experiments.plans import Plan
from ragbench.experiments.runs.context import RunContext
from ragbench.metrics import corrected_best, mean_interval, normalise_answer, paired_interval
from ragbench.optimizers.candidate_log import fingerprint
from ragbench.outputs import write_whole
from ragbench.programs.core import RAGProgram

CANDIDATES = "candidates.jsonl"
#: Two means closer than this are a tie.
_TIE = 1e-9
#: Shortest answer that counts as a leak, in characters. Shorter ones occur in many texts.
_LEAST_ANSWER = 4


@dataclass(frozen=True)
class Outcome:
    """Result of a compile. Scores before and after are on the same validation questions.

    `word` is better, worse, tie (third-party optimizer), kept (the uncompiled program, on a tie),
    no room (it already had the full score), or nothing (there was no other program).
    """

    result: optimizers.SearchResult
    before: optimizers.Scores
    after: optimizers.Scores
    seconds: float
    word: str = ""

    @property
    def tried(self) -> int:
        """Number of candidates that were scored on a validation question."""
        return len(self.result.candidates)


def judge(plan: Plan, outcome: Outcome) -> Outcome:
    """Return the outcome with its word, and with the uncompiled program if that is selected.

    Args:
        plan: Plan of the compile.
        outcome: Outcome of the compile.
    """
    plain = plan.run_context.program
    result = outcome.result
    gain = outcome.after.mean - outcome.before.mean
    changed = bool(result.files) or fingerprint(plain) != fingerprint(result.program)
    candidates = []
    for candidate in result.candidates:
        if fingerprint(candidate.program) != fingerprint(plain):
            candidates.append(candidate)
    result = replace(result, candidates=candidates)
    word = ""
    if gain > _TIE:
        word = "better"
    elif gain < -_TIE:
        word = "worse"
    elif plan.optimizer.keeps_ties:
        word = "tie"
    if changed and word:
        return replace(outcome, result=result, word=word)
    word = "nothing"
    if outcome.before.mean > 1 - _TIE:
        word = "no room"
    elif changed or candidates:
        word = "kept"
    result = replace(result, program=plain, files={})
    return replace(outcome, result=result, after=outcome.before, word=word)


def outcome_sentences(plan: Plan, outcome: Outcome) -> list[str]:
    """Describe the outcome, one sentence per line.

    Args:
        plan: Plan of the compile.
        outcome: Outcome of the compile.
    """
    gain = outcome.after.mean - outcome.before.mean
    n = len(outcome.before.scores)
    metric = plan.settings.optimizer_metric
    sentences = {
        "better": f"better on validation: {metric} {gain:+z.3f} on {n} questions that it was "
        "chosen by; ask the test split what was gained",
        "worse": f"worse on validation: {metric} {gain:+z.3f}; the program was not chosen by these "
        "questions, and the plain one scores higher",
        "tie": "a tie on validation: what the optimizer gave is kept, and costs more where its "
        "prompts are longer",
        "kept": "the plain program is kept: nothing that was tried scores higher on validation",
        "no room": "no room: the plain program has the full score on validation, and is kept; "
        "give harder or more validation questions (--val-limit)",
        "nothing": "nothing was found: no demonstration and no instruction that differs; the "
        "plain program is kept; give more training questions (--train-limit), or another "
        "--optimizer-metric",
    }
    lines = [f"outcome: {sentences[outcome.word]}"]
    lost = len(outcome.result.left_out)
    if outcome.tried or lost:
        lines.append(
            f"{outcome.tried} programs were tried on validation; {lost} replies of the prompt LM "
            "were left out, cut twice or unreadable"
        )
    without = outcome.result.notes.get("no_demonstrations_for")
    if without:
        lines.append(
            f"no demonstrations for {', '.join(without)}: the data has not all that they take and "
            "give, such as passages; bootstrap makes them from right answers"
        )
    leaks = leak_of(plan, outcome.result.program)
    if leaks:
        lines.append(
            f"leak: {leaks} instructions hold an answer of a training question; read them before "
            "you trust the gain"
        )
    return lines


def leak_of(plan: Plan, program: RAGProgram) -> int:
    """Count the instructions that gained an answer of a training question.

    Args:
        plan: Plan of the compile.
        program: The compiled program.
    """
    answers = set()
    for example in plan.train:
        for answer in map(normalise_answer, example.answers):
            if len(answer) >= _LEAST_ANSWER:
                answers.add(answer)
    leaks = 0
    plain = dict(plan.run_context.program.named_predictors())
    for name, predictor in program.named_predictors():
        before = f" {normalise_answer(plain[name].signature.instructions)} "
        after = f" {normalise_answer(predictor.signature.instructions)} "
        leaks += any(f" {answer} " in after and f" {answer} " not in before for answer in answers)
    return leaks


def save(plan: Plan, outcome: Outcome, journal: store.CallJournal) -> None:
    """Write the program, the candidates and finally the sidecar, which completes the folder.

    Args:
        plan: Plan of the compile.
        outcome: Outcome of the compile.
        journal: Calls of the compile.
    """
    folder = plan.folder
    sidecar = _sidecar(plan, outcome, journal)
    _write_candidates(plan, outcome, sidecar)
    _write(folder, outcome.result.program, dict(outcome.result.files), sidecar)


def _write(
    folder: Path, program: RAGProgram, files: dict[str, Any], sidecar: artifacts.Sidecar
) -> None:
    artifacts.save_program(program, folder / artifacts.PROGRAM)
    for name, content in files.items():
        store.write_json(folder / name, content)
    facts = {"program_sha256": compiled_digest(folder, files), "files": sorted(files)}
    artifacts.write_sidecar(folder, sidecar.model_copy(update=facts))


def described(run_context: RunContext, program: RAGProgram) -> dict[str, Any]:
    """Return what the sidecar of a compiled program has from its run, by field.

    Args:
        run_context: Context of the run, with the program before the compile.
        program: The compiled program.
    """
    config = run_context.config
    knobs = run_context.program.knobs
    return {
        "format": artifacts.FORMAT,
        "program": run_context.program.name,
        "variant": knobs.variant,
        "knobs": knobs.model_dump(mode="json"),
        "predictors": artifacts.fields_of(program),
        "config": config.identity(),
        "given": config.sources(),
        "versions": artifacts.versions(),
    }


def _sidecar(plan: Plan, outcome: Outcome, journal: store.CallJournal) -> artifacts.Sidecar:
    identity = plan.asked()
    return artifacts.Sidecar(
        **described(plan.run_context, outcome.result.program),
        program_sha256="",
        data=plan.data,
        optimizer=identity["optimizer"],
        lms=identity["lms"],
        scores=_scores(plan, outcome),
        cost={"seconds": round(outcome.seconds, 3), **journal.to_dict()},
        outcome=outcome.word,
        left_out=list(outcome.result.left_out),
        leak=leak_of(plan, outcome.result.program),
        notes=dict(outcome.result.notes),
    )


def _write_candidates(plan: Plan, outcome: Outcome, sidecar: artifacts.Sidecar) -> None:
    """Write `candidates.jsonl` and a folder for each candidate.

    0 is the uncompiled program. The others follow in the order of the result.
    """
    result = outcome.result
    shipped = fingerprint(result.program)
    plain = optimizers.Candidate(plan.run_context.program, outcome.before.scores, None, None)
    rows = [plain, *result.candidates]
    if result.files or shipped not in {fingerprint(row.program) for row in rows}:
        rows.append(optimizers.Candidate(result.program, outcome.after.scores, None, None))
    lines = []
    for number, row in enumerate(rows):
        measured_scores = row.known
        is_shipped = fingerprint(row.program) == shipped
        if result.files:
            is_shipped = number == len(rows) - 1
        lines.append({
            "number": number, "program": fingerprint(row.program), "shipped": is_shipped,
            "mean": row.score if measured_scores else None, "n": len(measured_scores),
            "scores": list(row.scores), "order": row.order, "calls": row.calls,
            "tokens": row.tokens,
        })  # fmt: skip
        files = dict(result.files) if is_shipped else {}
        measured = optimizers.Scores(tuple(measured_scores))
        card = sidecar.model_copy(
            update={
                "candidate": number,
                "outcome": "",
                "leak": leak_of(plan, row.program),
                "scores": _compared(plan, outcome.before, measured, full=row.is_whole),
            }
        )
        _write(candidate_folder(plan.folder, number), row.program, files, card)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_whole(plan.folder / CANDIDATES, text.encode())


def _scores(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    scores = _compared(plan, outcome.before, outcome.after)
    candidates = [outcome.before.scores]
    for candidate in outcome.result.candidates:
        if candidate.is_whole:
            candidates.append(tuple(score or 0.0 for score in candidate.scores))
    if len(candidates) > 2:  # Correct the best for selection.
        best = corrected_best(candidates, clusters=find_clusters(plan.val))
        if best:
            scores["corrected"] = asdict(best)
    return scores


def _compared(
    plan: Plan, before: optimizers.Scores, after: optimizers.Scores, *, full: bool = True
) -> dict[str, Any]:
    """Compare the scores of a program with those of the uncompiled one, for a sidecar."""
    clusters = find_clusters(plan.val)
    interval = None
    if full:
        interval = paired_interval(before.scores, after.scores, clusters=clusters)
    return {
        "metric": plan.settings.optimizer_metric,
        "split": "validation",
        "n": len(after.scores),
        "zero_shot": scored(before, clusters),
        "compiled": scored(after, clusters if full else None),
        "difference": after.mean - before.mean,
        "interval": asdict(interval) if interval else None,
        # The optimizer selected on these questions, so only a held-out run measures the gain.
        "selected_on_these_questions": True,
    }


def scored(scores: optimizers.Scores, clusters: Sequence[int] | None = None) -> dict[str, Any]:
    """Return mean, failed runs and interval in the format of a sidecar.

    Args:
        scores: Scores of a program.
        clusters: Cluster of each question. None: questions are independent.
    """
    interval = mean_interval(scores.scores, (0.0, 1.0), clusters)
    return {
        "mean": scores.mean,
        "failed": scores.failed,
        "interval": asdict(interval) if interval else None,
    }


def in_words(scores: optimizers.Scores, plan: Plan) -> str:
    """Return the interval, the number of questions and the failed runs as text.

    Args:
        scores: Scores on the validation set.
        plan: Plan of the compile.
    """
    words = f"{len(scores.scores)} questions"
    ends = mean_interval(scores.scores, (0.0, 1.0), find_clusters(plan.val))
    if ends:
        words = f"95 % interval [{ends.low:z.3f}, {ends.high:z.3f}], {words}"
    if scores.failed:
        words += f", {scores.failed} failed"
    return words
