"""A `dspy.RLM` whose every call goes through the question's trace.

Zhang, Kraska and Khattab 2025 (arXiv:2512.24601): the model does not see the passages but a
variable that holds them, and writes code to look at it. `dspy.RLM` runs the loop; this subclass
lets the trace count and limit its turns and `llm_query` calls, runs the code in `Sandbox`, offers
no sub-agents (which could not be limited), and ends a model that repeats itself.

It overrides methods that DSPy does not document; `dspy` is pinned for that reason too, and
tests/programs/test_rlm.py fails if one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dspy
from dspy import ContextWindowExceededError

from ragbench.context import current, use
from ragbench.dspy_internals import SUB_AGENT_INSTRUCTIONS, REPLHistory, strip_code_fences
from ragbench.ledger import calling
from ragbench.programs.core import BudgetSpentError, Described, StopReason, Trace, role_lm
from ragbench.programs.rlm.sandbox import Limits, SandboxFactory
from ragbench.signatures import AnswerFromContext

#: The calls that the model's code makes.
SUB = Described("llm_query", "llm_query", "sub")
#: Turns in a row without new code, after which the loop is given up.
_PATIENCE = 3


class EndedError(Exception):
    """The loop is over without a submitted answer."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class _NoTurns(REPLHistory):
    """A history without turns; DSPy's sentence for it is taken for code by small models."""

    def format(self) -> str:
        return "none yet"


@dataclass
class _Session:
    """The trace of one question's loop, what its variable holds, and where the loop stands."""

    trace: Trace
    description: str = ""
    idle: int = 0
    last_code: str = ""
    provider_error: dspy.LMError | None = None


@contextmanager
def session(trace: Trace, description: str) -> Iterator[None]:
    """The block's REPL and tools belong to `trace`; `description` is of the variable."""
    with use(current().plus(_Session(trace, description))):
        yield


def _session() -> _Session:
    opened = current().get(_Session)
    assert opened is not None
    return opened


def current_trace() -> Trace:
    """The trace of the question whose code is running."""
    return _session().trace


class TracedRLM(dspy.RLM):
    """Explore the passages with code, then submit the answer."""

    def __init__(
        self,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        limits: Limits,
        max_turns: int,
        max_sub_calls: int,
        prompt_chars: int,
    ) -> None:
        self._prompt_chars = prompt_chars
        super().__init__(
            AnswerFromContext,
            max_iters=max_turns,
            max_llm_calls=max_sub_calls,
            max_output_chars=limits.output_chars,
            tools=list(tools),
            interpreter_factory=SandboxFactory(limits),
        )
        self.generate_action.rb_signature, self.generate_action.rb_role = "RLMAction", "reason"
        self.extract.rb_signature, self.extract.rb_role = "RLMExtract", "answer"

    def explore(self, trace: Trace, variable: Sequence[str], description: str) -> dspy.Prediction:
        """The prediction of the loop over `variable`; forced where it ends without an answer."""
        trace.step("plan", observation=description)
        with session(trace, description):
            try:
                reply = self(context=list(variable), question=trace.question)
            except EndedError as ended:
                return trace.prediction(self.forced(trace, variable), ended.reason)
        answer = str(reply.answer or "").strip()
        trace.step("answer", thought=reply.final_reasoning, observation=answer)
        if answer:
            return trace.prediction(answer, "answered")
        return trace.prediction(self.forced(trace, variable), "no_progress")

    def forced(self, trace: Trace, context: Sequence[str]) -> str:
        """The answer extracted from the turns noted in `trace`: one last call."""
        turns = [step for step in trace.steps if step.action == "code"]
        history = REPLHistory(max_output_chars=self.max_output_chars)
        for turn in turns:
            history = history.append(
                reasoning=turn.thought, code=turn.input, output=turn.observation
            )
        variables = self._build_variables(context=list(context), question=trace.question)
        return trace.answer(
            self.extract,
            last=True,
            variables_info=[variable.format() for variable in variables],
            repl_history=history,
        )

    def _build_variables(self, **input_args: Any) -> list[Any]:
        now = current().get(_Session)
        described = {"context": now.description} if now is not None else {}
        return [
            variable.model_copy(update={"desc": described.get(variable.name, variable.desc)})
            for variable in super()._build_variables(**input_args)
        ]

    def _build_signatures(self) -> tuple[Any, Any]:
        action, extract = super()._build_signatures()
        said = action.instructions.replace(
            "(~500K char capacity)", f"(at most {self._prompt_chars:,} characters)"
        )
        # DSPy names the output alone, so that what is submitted would be of any form.
        wanted = self.signature.output_fields["answer"].json_schema_extra["desc"]
        said = said.replace("- {answer}", f"- {{answer}}: {wanted}")
        return action.with_instructions(said), extract

    @staticmethod
    def _format_interpreter_rules(execution_instructions: str, sub_agent_rules: str) -> str:
        return f"\nExecution environment:\n{execution_instructions}\n"

    def _setup_facade(self, repl: Any, budget: Any, interpreter_factory: Any) -> str:
        return str(SUB_AGENT_INSTRUCTIONS)  # as construction assumed; the rules leave it out

    def _make_llm_tools(self, budget: Any = None, max_workers: int = 8) -> dict[str, Any]:
        plain = super()._make_llm_tools(budget, max_workers)["llm_query"]

        def llm_query(prompt: str) -> str:
            """Query the LLM with a prompt string."""
            reply: str = self._sub_call(plain, prompt)
            return reply

        def llm_query_batched(prompts: list[str]) -> list[str]:
            """Query the LLM with several prompts at once."""
            trace = _session().trace
            try:
                replies = trace.fan_out(lambda prompt: self._sub_call(plain, prompt), list(prompts))
            except BudgetSpentError:
                raise RuntimeError("no LLM call is left") from None
            return replies + ["[ERROR] no LLM call is left"] * (len(prompts) - len(replies))

        return {"llm_query": llm_query, "llm_query_batched": llm_query_batched}

    def _sub_call(self, plain: Callable[[str], str], prompt: str) -> str:
        now = _session()
        if len(prompt) > self._prompt_chars:
            raise ValueError(f"a prompt has at most {self._prompt_chars} characters")
        try:
            now.trace.budget.spend_call()
            with dspy.context(lm=role_lm(SUB.role)), calling(SUB.signature, SUB.role):
                reply = plain(prompt)
        except BudgetSpentError:
            raise RuntimeError("no LLM call is left") from None
        except ContextWindowExceededError:
            raise ValueError("the prompt is too long for the model") from None
        except dspy.LMError as error:  # raised again as soon as the sandbox hands back
            now.provider_error = error
            raise RuntimeError("the model cannot be reached") from None
        now.trace.step("sub", input=prompt, observation=reply)
        return reply

    def _execute_iteration(
        self,
        repl: Any,
        variables: list[Any],
        history: Any,
        iteration: int,
        input_args: dict[str, Any],
        output_field_names: list[str],
        interpreter_factory: Any,
        sub_agent_rules: str,
    ) -> Any:
        action = self._act(variables, history, iteration, interpreter_factory, sub_agent_rules)
        try:
            code = strip_code_fences(action.code)
            result = self._run(repl, code, input_args) if code else "[Error] no code was given"
        except SyntaxError as error:
            code, result = action.code, f"[Error] {error}"
        after = self._process_execution_result(action, code, result, history, output_field_names)
        entry = after.trajectory[-1] if isinstance(after, dspy.Prediction) else after.entries[-1]
        output = entry["output"] if isinstance(entry, dict) else entry.output
        _session().trace.step("code", input=code, thought=action.reasoning, observation=output)
        return after

    def _act(
        self, variables: list[Any], history: Any, iteration: int, factory: Any, rules: str
    ) -> Any:
        now = _session()
        action = now.trace.ask(
            self.generate_action,
            otherwise={"reasoning": "", "code": ""},
            signature=self._action_signature_for_current_factory(factory, rules),
            variables_info=[variable.format() for variable in variables],
            repl_history=history or _NoTurns(),
            iteration=f"{iteration + 1}/{self.max_iters}",
        )
        fresh = action.code.strip() not in ("", now.last_code)
        now.idle = 0 if fresh else now.idle + 1
        now.last_code = action.code.strip()
        if now.idle == _PATIENCE:
            raise EndedError("parse_fallback" if action.get("parse_fallback") else "no_progress")
        return action

    def _run(self, repl: Any, code: str, input_args: dict[str, Any]) -> Any:
        result = self._execute_code(repl, code, input_args)
        error = _session().provider_error
        if error is not None:
            raise error
        return result

    def _extract_fallback(self, *_: Any) -> Any:
        raise EndedError("max_steps")
