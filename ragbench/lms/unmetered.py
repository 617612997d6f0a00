"""Calls that no engine of ragbench meters: an LM that a user's code makes while it runs.

An LM that a module holds is replaced by a metered one on the copy that runs. One that is made
inside `forward` is seen by a callback of DSPy, which cannot refuse a call. Such calls are counted
and their cost is unknown, and with a limit the first of them ends the command. They are not in the
cache of replies. A call in a thread without `dspy.context` is not seen.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.ledger import file_lm_call
from ragbench.lms.calls import Unmetered
from ragbench.lms.lm import RagbenchLM
from ragbench.text_normalization import estimate_tokens


class UnmeteredCalls:
    """Part of the context of a run and callback of DSPy: files the calls that pass ragbench."""

    def __init__(self) -> None:
        self.bypassing = Unmetered()
        self._begun: dict[str, tuple[dspy.BaseLM, int, float]] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignore every other event of DSPy."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note a call that begins.

        Args:
            call_id: Id of the call in DSPy.
            instance: The LM.
            inputs: Arguments of the call.
        """
        if not isinstance(instance, RagbenchLM):
            tokens = estimate_tokens(json.dumps(inputs, default=str))
            self._begun[call_id] = (instance, tokens, time.perf_counter())

    def on_lm_end(
        self, call_id: str, outputs: dict[str, Any] | None, exception: Exception | None = None
    ) -> None:
        """File a call that has ended. Its tokens are estimated.

        Args:
            call_id: Id of the call in DSPy.
            outputs: Result of the call. None if it failed.
            exception: Error of the call, if any.
        """
        if call_id not in self._begun:
            return
        lm, tokens, begun = self._begun.pop(call_id)
        self.bypassing.model = self.bypassing.model or str(lm.model)
        file_lm_call(
            str(lm.model),
            prompt_tokens=0 if exception else tokens,
            completion_tokens=0 if exception else estimate_tokens(str(outputs)),
            latency_s=round(time.perf_counter() - begun, 6),
            error=type(exception).__name__ if exception else None,
        )


@contextmanager
def noticing_unmetered() -> Iterator[None]:
    """Count calls inside the block that bypass ragbench. Only for user-provided code.

    DSPy calls modules differently while there is a callback, and tracebacks in prompts show that.
    """
    calls = current().get(UnmeteredCalls) or UnmeteredCalls()
    callbacks = [*filter(lambda entry: entry is not calls, dspy.settings.callbacks), calls]
    with use(current().plus(calls, calls.bypassing), callbacks=callbacks):
        yield
