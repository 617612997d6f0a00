"""Further formats of prompts and replies: XML, BAML, two steps, and an adapter of one's own.

They are DSPy's, read as leniently as chat and JSON are. A two-step adapter lets the LM answer in
its own words and asks it for the fields in a second call, so each reply is two calls at the least.
"""

import re
from functools import lru_cache
from html import unescape
from typing import Any

import dspy
from dspy import AdapterParseError

from ragbench import handed_over
from ragbench.dspy_private import private
from ragbench.errors import ConfigError, UnknownNameError
from ragbench.lms.adapters import Fields, LenientChat, LenientJSON, SignatureType
from ragbench.user_code import is_external, load_object, message_of

#: Names of adapters; one of one's own is named as FILE.py:CLASS.
NAMES = ("chat", "json", "xml", "baml", "two_step")


class LenientXML(LenientChat, dspy.XMLAdapter):
    """Fields between tags of their names, and asked for once more as JSON."""

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """As DSPy reads it, which knows nested tags; else what stands between the tags."""
        try:
            return dict(dspy.XMLAdapter.parse(self, signature, completion))
        except AdapterParseError:
            return super().parse(signature, completion)

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        fields = {}
        for name in signature.output_fields:
            start = f"<{name}>"
            at = completion.rfind(start)
            if at >= 0:
                text = completion[at + len(start) :]
                fields[name] = unescape(re.split(r"</?\w+>", text, maxsplit=1)[0].strip())
        return fields


class TwoStep(dspy.TwoStepAdapter):
    """An answer in the LM's own words, whose fields the same LM extracts in a second call."""

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """Returns the fields that the second call finds in `completion`."""
        extractor = self._create_extractor_signature(signature)
        read = LenientChat()(self.extraction_model, {}, extractor, [], {"text": completion})
        return dict(read[0])


@lru_cache(maxsize=1)
def _baml() -> Any:
    parent = private("dspy.adapters.baml_adapter.BAMLAdapter", "the adapter baml")

    class LenientBAML(LenientJSON, parent):  # type: ignore[misc, valid-type]
        """JSON, its nested types described in BAML's short form."""

        def _raw(self, signature: SignatureType, completion: str) -> Fields:
            # Its prompt shows the marks of a chat, and some models answer with them.
            sections = LenientChat()._raw(signature, completion)
            return super()._raw(signature, completion) or sections

    return LenientBAML


def further_adapter(name: str, lm: dspy.LM | None) -> dspy.Adapter:
    """Returns the adapter called `name` that is neither chat nor json; see `make_adapter`."""
    if is_external(name):
        return _own(name)
    if name == "xml":
        return LenientXML()
    if name == "two_step" and lm is not None:
        return TwoStep(lm)
    if name == "baml":
        adapter: dspy.Adapter = _baml()()
        return adapter
    raise UnknownNameError("adapter", name, ["auto", *NAMES])


def adapter_digest(name: str) -> str:
    """Returns what tells the code of an adapter of one's own from others; "" for any other."""
    if not is_external(name):
        return ""
    return handed_over.digest_of_code(name, load_object(name, "--adapter"))


def _own(spec: str) -> dspy.Adapter:
    adapter = load_object(spec, "--adapter")
    try:
        if isinstance(adapter, type):
            adapter = adapter()
    except Exception as error:  # whatever a stranger's constructor raises
        reason = f"{type(error).__name__}: {message_of(error)}"
        raise ConfigError(f"the adapter {spec} cannot be made: {reason}") from error
    if not isinstance(adapter, dspy.Adapter):
        raise ConfigError(f"{spec} is no subclass of dspy.Adapter")
    return adapter


def calls_of_reply(adapter: dspy.Adapter) -> tuple[int, int]:
    """Returns the fewest and most calls of a reply, failures of servers aside."""
    if isinstance(adapter, LenientJSON):
        return 1, 1
    if isinstance(adapter, dspy.TwoStepAdapter):
        return 2, 3
    return 1, 2
