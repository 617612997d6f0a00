"""MA-RAG: a planner, a step definer, an extractor and an answerer, one step after another.

Nguyen et al. 2025 (arXiv:2505.20096), collaborative chain of thought: planner and answerer reason
before they reply. The planner splits the question into steps. Each step becomes a separate task
that includes earlier results. For a look-up, the program searches, takes notes from the passages,
and answers the task from the notes. An aggregate is answered only from its task. After the first
failed step, the rest is planned again. A summary answers the question.
"""

from dataclasses import dataclass
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    one_line,
    predict,
)
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerTask, DefineStep, PlanSteps, SynthesizeAnswer, TakeNotes


class MARAGKnobs(ProgramKnobs):
    """Knobs of `ma_rag`."""

    k: int = bounded(10, 1, 100, "passages per search")
    planner: bool = Field(True, description="split the question, else it is the only step")
    extract: Literal["batch", "each", "off"] = Field(
        "batch", description="notes of all passages at once, of each, or the passages themselves"
    )
    max_steps: int = bounded(4, 1, 20, "maximum number of steps of a plan")
    max_replans: int = bounded(1, 0, 5, "new plans after a step that failed")
    temperature: float = bounded(0.3, 0, 2, "temperature of planner, step definer and look-ups")


@dataclass(frozen=True)
class CompletedStep:
    """A completed step: its task, its notes, and its answer."""

    task: str
    notes: tuple[str, ...]
    answer: str
    success: bool
    rating: int

    @property
    def line(self) -> str:
        """The step as one line for later calls: task, answer, rating and notes."""
        result = "unknown"
        before_notes = "; found: "
        if self.success:  # notes disambiguate entities of the same name
            result = f"{self.answer} (rated {self.rating} of 10)"
            before_notes = "; "
        if self.notes:
            result += before_notes + " ".join(self.notes)
        return f"{self.task.rstrip(' ?')}: {result}"


@PROGRAMS.register("ma_rag")
class MARAG(RAGProgram[MARAGKnobs]):
    """Plan steps, look each up and answer it from notes, then answer from the steps."""

    variants = {  # noqa: RUF012
        "official": {"extract": "each", "max_replans": 0},
        "arag": {"extract": "each", "max_replans": 0, "k": 5},
        "batched": {"extract": "batch", "max_replans": 1},
    }

    def make_predictors(self) -> None:
        heat = self.knobs.temperature
        if self.knobs.planner:
            self.plan = core.chain_of_thought(PlanSteps, temperature=heat)
            self.define = predict(DefineStep, temperature=heat)
        if self.knobs.extract != "off":
            self.extract = predict(TakeNotes)
        self.answer_task = core.chain_of_thought(AnswerTask, temperature=heat)
        self.summarize = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        done: list[CompletedStep] = []
        plan: list[str] = []
        reason: core.StopReason = "no_progress"
        # Without a planner, another attempt has the same plan.
        plans = self.knobs.max_replans + 1 if self.knobs.planner else 1
        try:
            while reason != "answered" and plans:
                plan = self._plan(trace, done)
                plans -= 1
                if self._follow(trace, plan, done):
                    reason = "answered"
        except core.BudgetSpentError:
            reason = "budget"
        notes = [step.line for step in done]
        answer = trace.answer(self.summarize, last=True, notes=notes)
        tasks = [{"id": f"s{n}", "question": step} for n, step in enumerate(plan, start=1)]
        return trace.prediction(answer, reason, plan=tasks)

    def _plan(self, trace: Trace, done: list[CompletedStep]) -> list[str]:
        if not self.knobs.planner:
            return [trace.question]
        history = [step.line for step in done]
        most = self.knobs.max_steps
        reply = trace.ask(self.plan, history=history, max_steps=most)
        steps = core.distinct(reply.steps)[:most]
        if not steps:
            trace.count("bad_plan")
        thought = reply.get("reasoning", "")
        trace.step("plan", thought=thought, observation="\n".join(steps))
        return steps or [trace.question]

    def _follow(self, trace: Trace, plan: list[str], done: list[CompletedStep]) -> bool:
        """Add the steps of `plan` to `done`. Return False at the first failed step."""
        for step in plan:
            kind, task = self._defined(trace, plan, step, done) if done else ("lookup", step)
            notes = self._notes(trace, task) if kind == "lookup" else []
            done.append(self._answered(trace, kind, task, notes))
            if not done[-1].success:
                return False
        return True

    def _defined(
        self, trace: Trace, plan: list[str], step: str, done: list[CompletedStep]
    ) -> tuple[str, str]:
        nothing = {"kind": "lookup"}
        history = [earlier.line for earlier in done]
        reply = trace.ask(self.define, otherwise=nothing, plan=plan, history=history, step=step)
        task = one_line(reply.task) or step
        trace.step("define", input=step, observation=task, notes={"kind": reply.kind})
        return reply.kind, task

    def _notes(self, trace: Trace, task: str) -> list[str]:
        passages = trace.search(task, k=self.knobs.k)
        most = self.knobs.context_tokens
        if self.knobs.extract == "off":
            return core.render(passages, max_tokens=most)

        def noted(group: list[Passage]) -> list[str]:
            context = core.render(group, max_tokens=most)
            reply = trace.ask(self.extract, context=context, question=task)
            return [text for note in reply.notes if is_answer(text := one_line(note))]

        by_passage = self.knobs.extract == "each"
        if by_passage:
            groups = [[passage] for passage in passages]
        else:
            groups = [passages] if passages else []
        taken = trace.fan_out(noted, groups)
        notes = list(dict.fromkeys(note for group in taken for note in group))
        trace.step("extract", input=task, observation="\n".join(notes), of=passages)
        return notes

    def _answered(self, trace: Trace, kind: str, task: str, notes: list[str]) -> CompletedStep:
        cold: dict[str, Any] = {"config": {"temperature": 0.0}} if kind == "aggregate" else {}
        reply = trace.ask(self.answer_task, notes=notes, question=task, **cold)
        answer = reply.answer
        rating = min(max(int(reply.rating), 0), 10)
        done = CompletedStep(
            task, tuple(notes), answer, bool(reply.success) and is_answer(answer), rating
        )
        trace.step(
            "task",
            input=task,
            thought=reply.get("reasoning", ""),
            observation=answer,
            notes={"kind": kind, "success": done.success, "rating": rating},
        )
        return done
