"""`RagbenchLM`: a `dspy.LM` whose every call is in the ledger, whether sent or cached."""

from __future__ import annotations

import json
from typing import Any

import dspy
from dspy.lm15 import Response

from ragbench.context import current, use
from ragbench.ledger import current_ledger
from ragbench.lms.calls import (
    EVENTS,
    AsyncMeteredEngine,
    Meter,
    MeteredEngine,
    Middleware,
    count,
    file,
)
from ragbench.lms.in_flight import Waited, turn
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
    def middleware(self) -> list[Middleware]:
        """What may delay or refuse this LM's calls, asked in order; append to it."""
        return self.metered.middleware

    @property
    def pricing(self) -> Pricing:
        """How its calls are priced; `pricing.known` says whether a cost limit can be kept."""
        return self.metered.pricing

    def check(self) -> None:
        """Do nothing if calls can be made now; cheap, and makes no priced call.

        Raises:
            LMSetupError: a missing key, an unreachable server, a model it does not have.
            ModelError: the local model's file cannot be had.
        """
        self.metered.client.check()

    def close(self) -> None:
        """Let go of connections and of a local server; all copies of this LM share them."""
        self.metered.client.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `dspy.LM`; a rollout gets a seed of its own, or the server would repeat itself."""
        kwargs = self._seeded(kwargs)
        if not kwargs.get("cache", self.cache):
            return super().__call__(*args, **kwargs)
        # Two keys that are the same by chance cost a wait, no more: DSPy's cache compares them.
        with turn(hash(repr((self.model, self.kwargs, args, kwargs)))) as waited:
            if not waited.seconds:
                return super().__call__(*args, **kwargs)
            with use(current().plus(waited)):
                return super().__call__(*args, **kwargs)

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
        waited = current().get(Waited)
        waited_s = waited.seconds if waited else 0.0
        for candidate in response if isinstance(response, tuple) else (response,):
            if isinstance(candidate, Response):
                event = EVENTS.get(candidate.finish_reason)
                if event:
                    count(event)
                file(self.model, waited_s, cached=True, **Meter.of(candidate).to_dict())

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
