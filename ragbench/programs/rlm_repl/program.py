"""Recursive Language Models: the passages are a variable, which the model looks at with code.

Zhang, Kraska and Khattab 2025 (arXiv:2512.24601). The model never sees the passages but what its
code prints of them; `llm_query` asks a model about a part of them. `corpus`, as published:
`context` holds all passages of the corpus, or those that a search finds, filled up with others.
`tools`: it holds the question's top k, and `search` and `read` are functions. The loop ends with
SUBMIT; after `max_turns`, a spent budget, or three turns without new code an answer is extracted
from the turns.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import dspy
from dspy import CodeExecutionError, ContextWindowExceededError, FinalOutput
from pydantic import Field

from ragbench.ledger import calling
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    bounded,
    predict,
)
from ragbench.programs.core.program import CallKind
from ragbench.programs.core.trace import role_lm
from ragbench.programs.rlm_repl.sandbox import Limits, Sandbox, rules
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerFromCode, WriteCode

#: The calls that the model's code makes.
SUB = CallKind("llm_query", "llm_query", "sub")
#: Consecutive turns without new code that end the loop.
_PATIENCE = 3
_SNIPPET_CHARS = 200
#: Longest prompt of `llm_query`, in characters, from the authors' prompt. If the LM's context is
#: shorter, the code gets its error.
_PROMPT_CHARS = 500_000
_FENCED = re.compile(r"```(?:\w+)?\n(.*?)```", re.DOTALL)


class RLMReplKnobs(ProgramKnobs):
    """Knobs of `rlm_repl`."""

    max_calls: int = bounded(81, 1, 10_000, "maximum number of LM calls per question")
    max_turns: int = bounded(30, 1, 100, "blocks of code")
    max_sub_calls: int = bounded(50, 0, 1000, "llm_query calls")
    max_variable: int = Field(2000, ge=1, description="passages in the variable (corpus)")
    output_chars: int = bounded(10_000, 100, 1_000_000, "characters shown of a block's output")


@PROGRAMS.register("rlm_repl")
class RLMRepl(RAGProgram[RLMReplKnobs]):
    """Explore the passages with code, then submit the answer."""

    chooses = False
    variants = {"corpus": {}, "tools": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        self.write = predict(WriteCode)
        self.conclude = predict(AnswerFromCode)

    def other_calls(self) -> Sequence[CallKind]:
        return (SUB,)

    def solve(self, trace: Trace) -> dspy.Prediction:
        knobs = self.knobs
        turns = list[str]()
        passages, context, described = self._variable(trace)
        trace.step("plan", observation=described)
        limits = Limits(output_chars=knobs.output_chars, argument_chars=2 * _PROMPT_CHARS)
        calls = _Functions(trace, knobs, passages)
        functions: list[Callable[..., Any]] = [calls.llm_query, calls.llm_query_batched]
        if knobs.variant == "tools":
            functions += [calls.search, calls.read]
        sandbox = Sandbox(limits, {function.__name__: function for function in functions})
        descriptions = []
        for function in functions:
            arguments = ", ".join(inspect.signature(function).parameters)
            descriptions.append(f"{function.__name__}({arguments}): {function.__doc__}")
        size = sum(map(len, context))
        variables = f"context: a list of {described}; {size:,} characters in all"
        environment = [variables, rules(limits), *descriptions]
        try:
            answer, reason = trace.until_spent(
                lambda: self._turns(trace, sandbox, calls, turns, context, environment)
            )
        finally:
            sandbox.shutdown()
        if not answer:
            answer = trace.answer(
                self.conclude, last=True, environment=[variables], trajectory="\n\n".join(turns)
            )
        return trace.prediction(answer, reason)

    def _turns(
        self,
        trace: Trace,
        sandbox: Sandbox,
        calls: _Functions,
        turns: list[str],
        context: list[str],
        environment: list[str],
    ) -> tuple[str, StopReason]:
        """Return the submitted answer or blank, and the stop reason. Add turns to `turns`."""
        idle = 0
        previous = ""
        for turns_left in range(self.knobs.max_turns, 0, -1):
            reply = trace.ask(
                self.write,
                environment=environment,
                trajectory="\n\n".join(turns),
                turns_left=turns_left,
            )
            fenced = _FENCED.search(reply.code)
            code = (fenced[1] if fenced else reply.code).strip()
            idle = 0 if code not in ("", previous) else idle + 1
            previous = code
            if idle == _PATIENCE:
                return "", core.stalled(reply)
            try:
                if code:
                    result = sandbox.execute(code, {"context": context})
                else:
                    result = "no code was given"
            except (CodeExecutionError, SyntaxError) as error:
                result = f"Error: {error}"
            if calls.provider_error is not None:  # even if the code caught it
                raise calls.provider_error
            submitted = result.output if isinstance(result, FinalOutput) else result
            output = str(submitted or "(nothing was printed)")
            trace.step("code", input=code, thought=reply.reasoning, observation=output)
            calls_left = f"(llm_query calls left: {calls.left})"
            turns.append(
                f"Turn {len(turns) + 1}. {reply.reasoning}\n{code}\nshowed:\n{output}\n{calls_left}"
            )
            trace.show({"showed": output}, among=calls.passages)
            if isinstance(result, FinalOutput):
                if isinstance(submitted, dict):
                    submitted = submitted.get("answer")
                answer = "" if submitted is None else str(submitted).strip()
                trace.step("answer", thought=reply.reasoning, observation=answer)
                return answer, "answered" if answer else "no_progress"
        return "", "max_steps"

    def _variable(self, trace: Trace) -> tuple[list[Passage], list[str], str]:
        """Return the passages, the strings that the code sees, and their description."""
        corpus = trace.retriever.corpus
        knobs = self.knobs
        tools = knobs.variant == "tools"
        most = knobs.k if tools else knobs.max_variable
        if not tools and len(corpus) <= most:
            passages = list(corpus)
            described = f"{len(passages)} passages, all that there are"
        else:
            try:
                passages = trace.search(trace.question, k=most)
            except core.BudgetSpentError:
                passages = []
            described = f"{len(passages)} passages that a search for the question found, best first"
            if not tools:
                trace.count("corpus_cut")
                if len(passages) < most:
                    pids = {passage.pid for passage in passages}
                    passages += core.each_once(corpus, pids)
                passages = passages[:most]
                description = f"{len(passages)} of {len(corpus)} passages"
                described = f"{description}, those nearest to the question first"
        items = [f"{passage.pid} | {passage}" for passage in passages]
        return passages, items, f"{described}, each as 'pid | title | text'"


class _Functions:
    """The functions that the code can call. Prompts show their docstrings."""

    def __init__(self, trace: Trace, knobs: RLMReplKnobs, passages: Passages) -> None:
        self.trace = trace
        self.passages = passages
        self.left = knobs.max_sub_calls
        #: Provider error of a call by the code, which may have caught it.
        self.provider_error: dspy.LMError | None = None

    def llm_query(self, prompt: str) -> str:
        """Ask a language model, which sees the prompt alone, of 500,000 characters at the most."""
        self._take(1)
        return self._ask(prompt)

    def llm_query_batched(self, prompts: list[str]) -> list[str]:
        """Ask a language model several prompts at once."""
        self._take(len(prompts))
        try:
            replies = self.trace.fan_out(self._ask, prompts)
        except core.BudgetSpentError:
            raise RuntimeError("no LLM call is left") from None
        return replies + ["[ERROR] no LLM call is left"] * (len(prompts) - len(replies))

    def search(self, query: str, k: int = 5) -> list[dict[str, str]]:
        """Find passages; gives dicts with pid, title and the beginning of the text."""
        try:
            passages = self.trace.search(query, k=min(max(k, 1), 20))
        except core.BudgetSpentError:
            raise RuntimeError("no search is left") from None
        self.trace.step("search", input=query, of=passages)
        return [{"pid": p.pid, "title": p.title, "text": p.text[:_SNIPPET_CHARS]} for p in passages]

    def read(self, pid: str) -> str:
        """Give the full text of a passage that a search found."""
        passage = next((p for p in self.trace.passages if p.pid == pid), None)
        self.trace.step("read", input=pid, of=[passage] if passage else [])
        if passage is None:
            raise ValueError(f"no passage {pid[:80]!r} was found yet")
        return str(passage)

    def _take(self, n: int) -> None:
        if n > self.left:
            raise RuntimeError(f"{self.left} LLM calls are left")
        self.left -= n

    def _ask(self, prompt: str) -> str:
        if len(prompt) > _PROMPT_CHARS:
            raise ValueError(f"a prompt has at most {_PROMPT_CHARS:,} characters")
        self.trace.show({"prompt": prompt}, among=self.passages)
        try:
            self.trace.budget.spend_call()
            lm = role_lm(SUB.role)
            with dspy.context(lm=lm), calling(SUB.signature, SUB.role):
                (reply,) = lm(prompt)
        except core.BudgetSpentError:
            raise RuntimeError("no LLM call is left") from None
        except ContextWindowExceededError:
            raise ValueError("the prompt is too long for the model") from None
        except dspy.LMError as error:  # raised again after the sandbox returns
            self.provider_error = error
            raise RuntimeError("the model cannot be reached") from None
        text = str(reply["text"] if isinstance(reply, dict) else reply)
        self.trace.step("sub", input=prompt, observation=text)
        return text
