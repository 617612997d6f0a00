"""`RagbenchLM`: a `dspy.LM` whose every call is in the ledger, whether sent or cached."""

from __future__ import annotations

import json
from typing import Any

import dspy
from dspy.lm15 import Response

from ragbench.errors import LMSetupError
from ragbench.ledger import count, current_ledger, file_lm_call
from ragbench.lms.cache import begin_reply
from ragbench.lms.calls import EVENTS, AsyncMeteredEngine, Meter, MeteredEngine
from ragbench.lms.prices import Pricing


class RagbenchLM(dspy.LM):
    """A metered LM; make one with `make_lm`.

    Its `model` names provider, model, and where it matters weights, build and server, because
    DSPy's cache tells models apart by that string alone.
    """

    #: What is added to the number of a rollout, so that two compiles draw different samples.
    first_rollout = 0

    def __init__(self, engine: MeteredEngine, **settings: Any) -> None:
        super().__init__(
            engine.identity,
            engine=engine,
            async_engine=AsyncMeteredEngine(engine),
            num_retries=0,  # the engine's own: DSPy's are not counted
            **settings,
        )

    @property
    def metered(self) -> MeteredEngine:
        """The engine, shared by all copies of this LM."""
        engine = self.engine
        assert isinstance(engine, MeteredEngine)
        return engine

    @property
    def pricing(self) -> Pricing:
        """How its calls are priced; `pricing.known` says whether a cost limit can be kept."""
        return self.metered.pricing

    def check(self, what: str = "") -> None:
        """Do nothing if calls can be made now; cheap, and makes no priced call.

        `what` this LM is, such as "the teacher", begins the message where it is not the main one.

        Raises:
            LMSetupError: a missing key, an unreachable server, a model it does not have.
            ModelError: the local model's file cannot be had.
        """
        try:
            self.metered.client.check()
        except LMSetupError as error:
            raise LMSetupError(f"{what} ({self.model}): {error}" if what else str(error)) from None

    def close(self) -> None:
        """Let go of connections and of a local server; all copies of this LM share them."""
        self.metered.client.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `dspy.LM`; a rollout gets a seed of its own, or the server would repeat itself."""
        begin_reply()
        return super().__call__(*args, **self._seeded(kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """As `__call__`."""
        return await super().acall(*args, **self._seeded(kwargs))

    def update_history(self, entry: dict[str, Any]) -> None:
        """File a cached answer; the engine has filed the others. No history is kept.

        What was sent and replied goes to the ledger, which keeps it if it is asked to.
        """
        if not entry["usage"]:
            self._file_cached(entry["response"])
        ledger = current_ledger()
        if ledger is not None:
            sent = entry["messages"] or [{"role": "user", "content": entry["prompt"]}]
            reply = {"role": "assistant", "content": entry["outputs"]}
            ledger.keep_texts(map(_text, sent), _text(reply))

    def _file_cached(self, response: Any) -> None:
        for candidate in response if isinstance(response, tuple) else (response,):
            if isinstance(candidate, Response):
                event = EVENTS.get(candidate.finish_reason)
                if event:
                    count(event)
                file_lm_call(self.model, cached=True, **Meter.of(candidate).to_dict())

    def copy(self, **kwargs: Any) -> Any:
        """As `dspy.LM`; rollouts are counted from `first_rollout` on."""
        if kwargs.get("rollout_id") is not None:
            kwargs["rollout_id"] += self.first_rollout
        return super().copy(**kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> RagbenchLM:
        copied = self.copy()
        assert isinstance(copied, RagbenchLM)
        return copied

    def _seeded(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        rollout = kwargs.get("rollout_id", self.kwargs.get("rollout_id"))
        seed = self.kwargs.get("seed")
        if rollout is None or seed is None or "seed" in kwargs:
            return kwargs
        return {**kwargs, "seed": seed + int(rollout)}


def _text(message: object) -> str:
    return json.dumps(message, ensure_ascii=False, sort_keys=True, default=str)
