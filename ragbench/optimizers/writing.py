"""LM that writes instructions: the length of its replies, and dropped replies.

A truncated reply would end in the middle of a sentence, and a program would use it. So a reply may
have at least 4,096 tokens, whatever the student's limit. A truncated one is requested once more
with twice the limit. If it is truncated again, or unreadable, it is dropped and counted.
"""

import copy
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import dspy
from dspy import AdapterParseError, ContextWindowExceededError, LMError

from ragbench.context import current, use
from ragbench.lms.lm import RagbenchLM

#: Minimum token limit of a reply.
REPLY_TOKENS = 4096
#: Outputs that describe the program. DSPy requests them before each proposal.
_DESCRIPTIONS = frozenset({"program_description", "module_description"})


class CutReplyError(AdapterParseError):
    """A reply of the writer was truncated twice, so the instruction is incomplete."""

    def __init__(self, tokens: int) -> None:
        Exception.__init__(self, f"the reply was cut at {tokens:,} tokens")


class WriterLM(RagbenchLM):
    """A `RagbenchLM` with this module's rule for long replies, made by `make_writer`."""

    #: Reasons of dropped replies, shared by all copies.
    left_out: list[str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the LM, with a higher limit if the reply is truncated.

        Raises:
            CutReplyError: The reply was truncated twice.
        """
        limit = "max_tokens"
        if self.kwargs.get("max_completion_tokens"):
            limit = "max_completion_tokens"
        room = int(kwargs.get(limit) or self.kwargs.get(limit) or 0)
        if not room:  # no limit for replies
            return super().__call__(*args, **kwargs)
        reply_tokens = max(room, REPLY_TOKENS)
        for tokens in (reply_tokens, 2 * reply_tokens):
            events: Counter[str] = Counter()
            with use(replace(current(), counts=events)):
                try:
                    reply = super().__call__(*args, **{**kwargs, limit: tokens})
                except ContextWindowExceededError:  # the context has no space for the reply
                    if tokens == room:
                        raise
                    reply = super().__call__(*args, **{**kwargs, limit: room})
            if not events["truncated"]:
                return reply
        raise CutReplyError(2 * reply_tokens)


def _is_refused(error: LMError) -> bool:
    """Return True if a limit or dead server refused the call, so later ones fail too."""
    return getattr(error, "code", None) == "refused"


def make_writer(lm: dspy.LM) -> dspy.LM:
    """Return a copy of `lm` as the writer of a compile, or an unmetered LM unchanged."""
    if not isinstance(lm, RagbenchLM):
        return lm
    writer = lm.copy()
    writer.__class__ = WriterLM
    writer.left_out = []
    return cast(dspy.LM, writer)


def writing(adapter: dspy.Adapter) -> dspy.Adapter:
    """Return a copy of `adapter` that requests one proposal per call from a writer.

    DSPy requests several in one call, and loses all of them if one is unreadable.
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
                single["rollout_id"] = 0  # cached for the next proposal
            number = int(lm_kwargs.get("n") or lm.kwargs.get("n") or 1)
            first_rollout = int(lm_kwargs.get("rollout_id") or lm.kwargs.get("rollout_id") or 0)
            read: list[dict[str, Any]] = []
            for place in range(number):
                if number > 1:  # a separate sample per proposal
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
                        # Use the current instruction. DSPy's MIPRO stops at the first failure.
                        read.append({"proposed_instruction": present})
                    elif place + 1 == number and not read:
                        raise
            return read

    Writing.__name__ = kind.__name__
    Writing.__qualname__ = kind.__qualname__
    copied = copy.copy(adapter)
    copied.__class__ = Writing
    return copied
