"""The LM that writes instructions: how long its replies may be, and which are left out.

A reply that is cut ends in the middle of a sentence, and a program would run on it. So a reply has
4,096 tokens at least, whatever the student's may have; one that is cut is asked for once more with
twice the room. One that is cut again, or cannot be read, is left out and counted.
"""

import copy
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import dspy
from dspy import AdapterParseError, ContextWindowExceededError, LMError

from ragbench.context import current, use
from ragbench.lms.lm import RagbenchLM

#: Tokens that a reply may have at the least.
REPLY_TOKENS = 4096
#: Outputs that describe the program. DSPy asks for them again before each proposal.
_DESCRIPTIONS = frozenset({"program_description", "module_description"})


class CutReplyError(AdapterParseError):
    """A reply of the writer was cut twice, and is no whole instruction."""

    def __init__(self, tokens: int) -> None:
        Exception.__init__(self, f"the reply was cut at {tokens:,} tokens")


class WriterLM(RagbenchLM):
    """A copy of a `RagbenchLM` under the rule of this module; make one with `make_writer`."""

    #: Why replies were left out, one text each; shared by all copies.
    left_out: list[str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `RagbenchLM`; CutReplyError for a reply that is cut twice."""
        limit = "max_tokens"
        if self.kwargs.get("max_completion_tokens"):
            limit = "max_completion_tokens"
        room = int(kwargs.get(limit) or self.kwargs.get(limit) or 0)
        if not room:  # replies have no limit
            return super().__call__(*args, **kwargs)
        reply_tokens = max(room, REPLY_TOKENS)
        for tokens in (reply_tokens, 2 * reply_tokens):
            events: Counter[str] = Counter()
            with use(replace(current(), counts=events)):
                try:
                    reply = super().__call__(*args, **{**kwargs, limit: tokens})
                except ContextWindowExceededError:  # the model has no room for so long a reply
                    if tokens == room:
                        raise
                    reply = super().__call__(*args, **{**kwargs, limit: room})
            if not events["truncated"]:
                return reply
        raise CutReplyError(2 * reply_tokens)


def _is_refused(error: LMError) -> bool:
    """Whether a limit or a dead server refused the call, so that no later one is answered."""
    return getattr(error, "code", None) == "refused"


def make_writer(lm: dspy.LM) -> dspy.LM:
    """A copy of `lm` as the writer of a compile; an LM that is not metered is left as it is."""
    if not isinstance(lm, RagbenchLM):
        return lm
    writer = lm.copy()
    writer.__class__ = WriterLM
    writer.left_out = []
    return cast(dspy.LM, writer)


def writing(adapter: dspy.Adapter) -> dspy.Adapter:
    """A copy of `adapter` that asks a writer for one proposal at a time.

    DSPy asks for several in one call, and loses all of them for one that cannot be read.
    """
    kind = type(adapter)

    class Writing(kind):  # type: ignore[misc, valid-type]
        def __call__(
            self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: Any, inputs: Any
        ) -> list[dict[str, Any]]:
            if not isinstance(lm, WriterLM):
                return list(super().__call__(lm, lm_kwargs, signature, demos, inputs))
            single = dict(lm_kwargs)
            single.pop("n", None)
            if _DESCRIPTIONS & signature.output_fields.keys():
                single["rollout_id"] = 0  # the cache answers it for the next proposal
            number = int(lm_kwargs.get("n") or lm.kwargs.get("n") or 1)
            first_rollout = int(lm_kwargs.get("rollout_id") or lm.kwargs.get("rollout_id") or 0)
            read: list[dict[str, Any]] = []
            for place in range(number):
                if number > 1:  # each a sample of its own
                    single["rollout_id"] = first_rollout + place
                try:
                    read += super().__call__(lm, single, signature, demos, inputs)
                except (AdapterParseError, LMError) as error:
                    present = None
                    if signature.output_fields.keys() == {"proposed_instruction"}:
                        present = inputs.get("basic_instruction")
                    if isinstance(error, LMError) and (present is None or _is_refused(error)):
                        raise
                    lm.left_out.append(" ".join(str(error).split())[:160])
                    if present is not None:
                        # MIPRO keeps the present instruction: DSPy's ends with the first failure.
                        read.append({"proposed_instruction": present})
                    elif place + 1 == number and not read:
                        raise
            return read

    Writing.__name__ = kind.__name__
    Writing.__qualname__ = kind.__qualname__
    copied = copy.copy(adapter)
    copied.__class__ = Writing
    return copied
