"""MA-RAG: a planner, a step definer, an extractor and an answerer, one step after another.

Nguyen et al. 2025 (arXiv:2505.20096). The question is split into steps. Each step is written as a
task of its own with what earlier steps found out; a look-up is searched, notes are taken of each
passage, and the task is answered from the notes; an aggregate is answered from its task alone. The
steps end at the first that fails, and a summary answers the question. Variants:

- `official`: the authors' k = 10, one extracting call per passage.
- `arag`: as A-RAG's table ran it (Du et al. 2026), k = 5.

Departures: a plan has at most `max_steps` steps; a step that repeats one of the plan is dropped;
notes are a typed list, empty where a passage has none. The authors' code has no second plan,
though its planner could take one: `max_replans` is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    distinct,
    is_answer,
    predict,
    render,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import AnswerTask, DefineStep, PlanSteps, SynthesizeAnswer, TakeNotes


class MARAGKnobs(ProgramKnobs):
    """Knobs of `ma_rag`."""

    k: int = Field(10, ge=1, le=100, description="passages per search")
    planner: bool = Field(True, description="split the question; else it is the only step")
    extract: Literal["each", "batch", "off"] = Field(
        "each", description="notes of each passage, of all at once, or the passages themselves"
    )
    max_steps: int = Field(4, ge=1, le=20, description="steps of a plan at the most")
    max_replans: int = Field(0, ge=0, le=5, description="new plans after a step that failed")
    temperature: float = Field(
        0.3, ge=0, le=2, description="of planner, step definer and answers to look-ups"
    )


@dataclass(frozen=True)
class Done:
    """A step that was tried: its task, the answer, and how good the model says it is."""

    task: str
    answer: str
    success: bool
    rating: int

    @property
    def line(self) -> str:
        """The step as later calls see it."""
        return f"{self.task.rstrip(' ?')}: {self.answer or 'unknown'}"


@PROGRAMS.register("ma_rag")
class MARAG(RAGProgram):
    """Plan steps, look each up and answer it from notes, then answer from the steps."""

    name = "ma_rag"
    family = "workflow"
    paper = "arXiv:2505.20096"
    calls = "2 + steps (2 + k); 2 per step that looks nothing up"
    autonomy = Autonomy("partly", "yes", "partly")
    Knobs = MARAGKnobs
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        heat = self.knobs.temperature
        if self.knobs.planner:
            self.plan = predict(PlanSteps, temperature=heat)
            self.define = predict(DefineStep, temperature=heat)
        if self.knobs.extract != "off":
            self.extract = predict(TakeNotes)
        self.answer_task = predict(AnswerTask, temperature=heat)
        self.summarize = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Plans until one succeeds or none is left, then the summary."""
        failed: list[str] = []
        for _ in range(self.knobs.max_replans + 1):
            plan = self._plan(trace, failed)
            done = self._follow(trace, plan)
            if done[-1].success:
                break
            failed += [step.line for step in done]
        reason: StopReason = "answered" if done[-1].success else "no_progress"
        tasks = [{"id": f"s{n}", "question": step} for n, step in enumerate(plan, start=1)]
        return trace.prediction(self.force(trace), reason, plan=tasks)

    def force(self, trace: Trace) -> str:
        """The summary of the steps done so far."""
        return trace.answer(
            self.summarize,
            last=True,
            notes=[step.notes["line"] for step in trace.steps if step.action == "task"],
            question=trace.question,
            instruction="",
        )

    def _plan(self, trace: Trace, failed: list[str]) -> list[str]:
        if not self.knobs.planner:
            return [trace.question]
        reply = trace.ask(
            self.plan,
            otherwise={"steps": []},
            question=trace.question,
            failed=failed,
            max_steps=self.knobs.max_steps,
        )
        steps = distinct(reply.steps)[: self.knobs.max_steps]
        if not steps:
            trace.count("bad_plan")
        trace.step("plan", observation="\n".join(steps))
        return steps or [trace.question]

    def _follow(self, trace: Trace, plan: list[str]) -> list[Done]:
        """The steps of `plan` tried, up to the first that fails."""
        done: list[Done] = []
        for step in plan:
            kind, task = self._defined(trace, plan, step, done)
            notes = self._notes(trace, task) if kind == "lookup" else []
            done.append(self._answered(trace, kind, task, notes))
            if not done[-1].success:
                break
        return done

    def _defined(
        self, trace: Trace, plan: list[str], step: str, done: list[Done]
    ) -> tuple[str, str]:
        if not self.knobs.planner:
            return "lookup", step
        reply = trace.ask(
            self.define,
            otherwise={"kind": "lookup", "task": ""},
            question=trace.question,
            plan=plan,
            history=[f"{text}: {one.answer}" for text, one in zip(plan, done, strict=False)],
            step=step,
        )
        task = " ".join(reply.task.split()) or step
        trace.step("define", input=step, observation=task, notes={"kind": reply.kind})
        return reply.kind, task

    def _notes(self, trace: Trace, task: str) -> list[str]:
        passages = trace.search(task, k=self.knobs.k)
        if self.knobs.extract == "off":
            return render(passages, max_tokens=self.knobs.context_tokens)
        groups = [[passage] for passage in passages]
        if self.knobs.extract == "batch":
            groups = [passages] if passages else []
        taken = trace.fan_out(lambda group: self._noted(trace, task, group), groups)
        notes = list(dict.fromkeys(note for group in taken for note in group))
        pids = tuple(passage.pid for passage in passages)
        trace.step("extract", input=task, observation="\n".join(notes), pids=pids)
        return notes

    def _noted(self, trace: Trace, task: str, passages: list[Passage]) -> list[str]:
        context = render(passages, max_tokens=self.knobs.context_tokens)
        reply = trace.ask(self.extract, otherwise={"notes": []}, context=context, question=task)
        return [text for note in reply.notes if is_answer(text := " ".join(note.split()))]

    def _answered(self, trace: Trace, kind: str, task: str, notes: list[str]) -> Done:
        cold: dict[str, Any] = {"config": {"temperature": 0.0}} if kind == "aggregate" else {}
        reply = trace.ask(
            self.answer_task,
            otherwise={"answer": "", "success": False, "rating": 0},
            notes=notes,
            question=task,
            **cold,
        )
        answer = str(reply.answer or "").strip()
        rating = min(max(int(reply.rating), 0), 10)
        done = Done(task, answer, bool(reply.success) and is_answer(answer), rating)
        line = f"{done.line} (rated {rating} of 10)"
        trace.step(
            "task",
            input=task,
            observation=answer,
            notes={"kind": kind, "success": done.success, "rating": rating, "line": line},
        )
        return done
