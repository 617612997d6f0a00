"""`RagbenchLM`: a `dspy.LM` over a metered engine, which keeps DSPy's interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import dspy
from dspy.lm15 import Request, Response

from ragbench.errors import LMSetupError
from ragbench.external import digest_of_texts
from ragbench.ledger import current_ledger, file_lm_call
from ragbench.lms.calls.other_clients import ASKED, CLIENT_SETTINGS, LMRequest
from ragbench.lms.engine import METER_KEY, AsyncMeteredEngine, MeteredEngine, count_ending
from ragbench.lms.prices import Pricing
from ragbench.lms.reply_cache import forget_reply, last_reply

#: Settings of a call that limits and the reading of a reply depend on.
_COUNTED = frozenset(
    {"n", "max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice", "response_format"}
)
#: DSPy setting that is set while a user-defined module answers a question.
OWN = "ragbench_own_module"


class RagbenchLM(dspy.LM):
    """A metered LM, made by `make_lm`.

    Its `model` names the provider, the model, and if relevant the weights, build and server,
    because DSPy's cache distinguishes models by that string only.
    """

    #: Offset of the rollout number, so that two compiles draw different samples.
    first_rollout = 0
    #: The LM object that answers, if the user passed one.
    given: dspy.BaseLM | None = None

    def __init__(self, engine: MeteredEngine, **settings: Any) -> None:
        super().__init__(
            engine.identity,
            engine=engine,
            async_engine=AsyncMeteredEngine(engine),
            num_retries=0,  # the engine's own: DSPy's are not counted
            **settings,
        )

    def mimic_lm(self, lm: dspy.BaseLM, changed: Mapping[str, Any]) -> None:
        """Represent `lm` to a module by its name, its history, and its settings except `changed`.

        DSPy's cache distinguishes it by the engine's identity, which is a part of the rollout.

        Args:
            lm: LM that answers.
            changed: Settings that replace those of `lm`.
        """
        self.given = lm
        self.model = lm.model
        self.model_type = lm.model_type
        self.use_developer_role = getattr(lm, "use_developer_role", False)
        self.callbacks = lm.callbacks
        self.history = lm.history  # because its owner reads it
        settings = {k: value for k, value in lm.kwargs.items() if k not in CLIENT_SETTINGS}
        self.kwargs = {**settings, **changed}

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the LM that this one represents."""
        answering = self.__dict__.get("given")
        if answering is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(answering, name)

    @property
    def metered(self) -> MeteredEngine:
        """The engine, shared by all copies of this LM."""
        engine = self.engine
        assert isinstance(engine, MeteredEngine)
        return engine

    @property
    def pricing(self) -> Pricing:
        """Prices of its calls. `pricing.known` is True if a cost limit can be kept."""
        return self.metered.pricing

    def check(self, purpose: str = "") -> None:
        """Do nothing if calls are possible now. Cheap. Sends no billed request.

        `purpose`, such as "the teacher", begins the message of an LM that is not the main one.

        Raises:
            LMSetupError: The key is missing, the server is unreachable, or it lacks the model.
            ModelError: The file of the local model is not available.
        """
        try:
            self.metered.client.check()
        except LMSetupError as error:
            prefix = f"{purpose} ({self.model}): " if purpose else ""
            raise LMSetupError(f"{prefix}{error}") from None

    def close(self) -> None:
        """Close connections and stop a local server. All copies of this LM share them."""
        self.metered.client.close()

    def __call__(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """Call like `dspy.LM`. A rollout gets its own seed, or the server would repeat itself."""
        last_reply.key = None
        settings = self._seeded(settings)
        if self.given is None:
            outputs = super().__call__(prompt, messages=messages, **settings)
        else:
            call = self._call_of(prompt, messages, settings)
            with dspy.context(**{ASKED: call}):
                outputs = super().__call__(prompt, messages=messages, **self._passed(call))
        if isinstance(outputs, list) and not any(map(_says_something, outputs)):
            forget_reply()  # another time it may say something
        return outputs

    async def acall(self, prompt: Any = None, *, messages: Any = None, **settings: Any) -> Any:
        """Call like `__call__`, asynchronously."""
        settings = self._seeded(settings)
        if self.given is None:
            return await super().acall(prompt, messages=messages, **settings)
        call = self._call_of(prompt, messages, settings)
        with dspy.context(**{ASKED: call}):
            return await super().acall(prompt, messages=messages, **self._passed(call))

    def _call_of(self, prompt: Any, messages: Any, at_call: Mapping[str, Any]) -> LMRequest:
        settings = {**self.kwargs, **at_call}
        settings.pop("cache", None)
        return LMRequest(prompt, messages, settings, at_call)

    def _passed(self, call: LMRequest) -> dict[str, Any]:
        """Return the settings with which DSPy prepares `call`.

        The user's LM gets all of its settings, including those that no request of DSPy can
        hold. DSPy gets only those that limits and replies depend on. All settings are part of the
        rollout, by which its cache distinguishes requests.
        """
        passed = {name: call.at_call[name] for name in ("cache",) if name in call.at_call}
        if not isinstance(call.prompt, Request):
            for name in call.settings.keys() - CLIENT_SETTINGS:
                passed[name] = call.settings[name] if name in _COUNTED else None
        settings = json.dumps(dict(call.settings), sort_keys=True, default=str)
        passed["rollout_id"] = digest_of_texts([self.metered.identity, settings])
        return passed

    def update_history(self, entry: dict[str, Any]) -> None:
        """File a cached answer. The engine has filed the others.

        History is recorded only if a caller may read it: for a user-provided LM, and while a
        user-defined module runs. The ledger receives sent messages and replies, and stores them on
        request.
        """
        call = dspy.settings.get(ASKED)
        if self.given is not None and isinstance(call, LMRequest):
            entry = {**entry, "kwargs": dict(call.at_call)}
        answers = entry["response"]
        if not isinstance(answers, tuple):
            answers = (answers,)
        for answer in answers:
            if isinstance(answer, Response) and not entry["usage"]:
                count_ending(answer)
                meter = (answer.provider_data or {}).get(METER_KEY) or {}
                identity = self.metered.identity
                file_lm_call(identity, cached=True, **self.metered.priced(meter))
        ledger = current_ledger()
        if ledger is not None and ledger.keeps_texts:
            sent = entry["messages"] or [{"role": "user", "content": entry["prompt"]}]
            reply = {"role": "assistant", "content": entry["outputs"]}
            ledger.keep_texts(map(_text, sent), _text(reply))
        if self.given is not None and self.history is self.given.history:
            self.given.update_history(entry)
        elif self.given is not None or dspy.settings.get(OWN):
            super().update_history(entry)

    def copy(self, **kwargs: Any) -> Any:
        """Copy like `dspy.LM`. Count rollouts from `first_rollout`."""
        if kwargs.get("rollout_id") is not None:
            kwargs["rollout_id"] += self.first_rollout
        return super().copy(**kwargs)

    def dump_state(self) -> dict[str, Any]:
        """Return the state like `dspy.LM`, of the LM that this one represents."""
        state: dict[str, Any]
        state = super().dump_state() if self.given is None else self.given.dump_state()
        return state

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


def _says_something(output: Any) -> bool:
    """Return True if an output of `dspy.LM` has a text or a call."""
    if isinstance(output, dict):
        return bool(str(output.get("text") or "").strip() or output.get("tool_calls"))
    return bool(str(output or "").strip())


def _text(message: object) -> str:
    return json.dumps(message, ensure_ascii=False, sort_keys=True, default=str)
