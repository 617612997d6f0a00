"""DSPy adapters for models large and small: chat sections, JSON, and native tool calls.

A reply is read as DSPy reads it, and what DSPy refuses is mended (`values`): each mended value is
counted as `label_repair`. Of a field that stands more than once the last section counts. A chat
answer that cannot be read is asked for once more as JSON, and that second call is in the ledger as
a fallback.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType, SimpleNamespace
from typing import Any, get_args

import dspy
from dspy import AdapterParseError
from pydantic import TypeAdapter

from ragbench.context import current, use
from ragbench.ledger import SecondTry, count
from ragbench.lms.replies import escaped
from ragbench.lms.reply_cache import forget_reply
from ragbench.lms.values import UnreadableError, read_value, repaired_json
from ragbench.redact import encodable

#: A kind of signature, values of its fields by name, and a message of a chat as DSPy sends it.
SignatureType = type[dspy.Signature]
Fields = dict[str, Any]
Message = dict[str, Any]

#: Key of a history message that holds what the user says last, when no tool is left.
CLOSING = "closing"

#: A header as DSPy's prompts show it, and as models write it: bold, in code, without blanks. It
#: counts at the start of a line alone. Repeats have bounds, so that no reply takes more than in
#: proportion to its length.
_HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
_LOOSE_HEADER = re.compile(
    r"[*_`#]{0,9}\s{0,9}\[\[\s{0,9}#{1,9}\s{0,9}(\w{1,99})\s{0,9}#{1,9}\s{0,9}\]\][*_`]*:?"
)


#: Providers that show a model the schema that its reply is held to.
_SCHEMA_SHOWN = ("openai/", "azure/", "anthropic/", "gemini/", "vertex_ai/")
#: What DSPy says of a field's schema in the system's message.
_SCHEMA_NOTE = re.compile(
    r" *# note: the value you produce must adhere to the JSON schema: .*(?=\")"
)


class PartialReplyError(AdapterParseError):
    """A reply of which not every field could be read; `read` holds those that could."""

    # Not DSPy's `parsed_result`: its collector of traces fails on replies that have one.
    read: Mapping[str, Any] = MappingProxyType({})


class LenientParsing(dspy.Adapter):
    """What the adapters share: from raw values to typed ones. `_raw` finds the raw ones."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave methods as they are: DSPy would tell callbacks of each once more for a subclass."""

    def format_system_message(self, signature: SignatureType) -> str:
        native = self.use_native_function_calling
        instructions = signature.instructions
        return _system_message(type(self), native, signature, instructions)  # type: ignore[arg-type]

    def format_user_message_content(
        self, signature: SignatureType, inputs: Fields, *args: Any, **kwargs: Any
    ) -> str:
        """The message, whose values hold no mark of the protocol: they would count in the reply."""
        parent: Any = super()
        values = {name: escaped(value) for name, value in inputs.items()}
        return str(parent.format_user_message_content(signature, values, *args, **kwargs))

    def format_assistant_message_content(
        self, signature: SignatureType, outputs: Fields, *args: Any, **kwargs: Any
    ) -> str:
        """As of `format_user_message_content`, of a demonstration or of the history."""
        parent: Any = super()
        values = {name: escaped(value) for name, value in outputs.items()}
        return str(parent.format_assistant_message_content(signature, values, *args, **kwargs))

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        raise NotImplementedError

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """Returns the output fields in `completion`, each of its declared type.

        Raises:
            PartialReplyError: a required field is missing, or has no plain meaning.
        """
        values: Fields = {}
        unread: list[str] = []
        repairs = 0
        fields = self._raw(signature, completion)
        for name, field in signature.output_fields.items():
            if name in fields:
                try:
                    values[name], mended = read_value(encodable(fields[name]), field.annotation)
                    repairs += mended
                except (UnreadableError, RecursionError) as why:
                    unread.append(f"field {name}: {why}")
            elif not field.is_required():
                values[name] = field.get_default(call_default_factory=True)
            elif type(None) in get_args(field.annotation):
                values[name] = None
            else:
                unread.append(f"no field {name}")
        if unread:
            error = PartialReplyError(type(self).__name__, signature, completion, "; ".join(unread))
            error.read = {name: value for name, value in values.items() if name in fields}
            if not error.read:
                forget_reply()  # or it would be the answer for ever
            raise error
        for _ in range(repairs):
            count("label_repair")
        return values


@lru_cache(maxsize=512)
def _system_message(
    kind: type[Any], native: bool, signature: SignatureType, instructions: str
) -> str:
    """Returns the system message, cached by signature: it was a third of a prompt's work."""
    adapter: Any = super(LenientParsing, kind(use_native_function_calling=native))
    message = str(adapter.format_system_message(signature))
    # The fields of nested types in the order written; DSPy sorts them by name.
    for field in signature.output_fields.values() if "JSON schema" in message else ():
        schema = TypeAdapter(field.annotation).json_schema()
        for depth in (1, 2):  # as a chat shows it, and within JSON
            message = message.replace(_shown(_by_name(schema), depth), _shown(schema, depth))
    return message


def _shown(schema: Any, depth: int) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    if depth == 1:
        return text
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _by_name(schema: Any) -> Any:
    if isinstance(schema, dict):
        keys = sorted(schema, key=lambda key: (key != "type", key))
        return {key: _by_name(schema[key]) for key in keys}
    if isinstance(schema, list):
        return list(map(_by_name, schema))
    return schema


class LenientJSON(LenientParsing, dspy.JSONAdapter):
    """JSON, constrained by the strict schema where the server can, read leniently.

    A schema stands once in what the model reads: not in the message too where its provider shows it
    the one that the reply is held to. A server of one's own may only constrain the reply by it.
    """

    def format_system_message(self, signature: SignatureType) -> str:
        message = super().format_system_message(signature)
        lm = dspy.settings.lm
        enforced = getattr(lm, "supports_response_schema", False)
        if enforced and str(lm.model).startswith(_SCHEMA_SHOWN):
            return _SCHEMA_NOTE.sub("", message)
        return message

    def _prepare_response_format(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: SignatureType
    ) -> None:
        most = getattr(getattr(lm, "engine", None), "max_items", None)
        able = "response_format" in lm.supported_params, lm.supports_response_schema
        native = self.use_native_function_calling
        lm_kwargs.update(_response_format(native, signature, *able, most))  # type: ignore[arg-type]

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        value = repaired_json(completion)
        if not isinstance(value, dict) and "{" in completion:
            value = repaired_json(completion[completion.find("{") : completion.rfind("}") + 1])
        fields: Fields = {}  # of several objects, of each field the last one counts
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                fields.update(item)
        return fields

    def user_message_output_requirements(self, signature: SignatureType) -> str:
        """The last line of a prompt. The types stand in the system's message, as JSON has them."""
        listing = ", ".join(f"`{name}`" for name in signature.output_fields)
        return f"Respond with a JSON object of the following fields, in this order: {listing}."


@lru_cache(maxsize=512)
def _response_format(
    native: bool, signature: SignatureType, supported: bool, schema: bool, most: int | None
) -> dict[str, Any]:
    """Returns the response format, cached: DSPy rebuilds it in every call, a third of its time."""
    arguments: dict[str, Any] = {}
    able = {"response_format"} if supported else set()
    lm = SimpleNamespace(supported_params=able, supports_response_schema=schema)
    adapter: Any = dspy.JSONAdapter(use_native_function_calling=native)
    adapter._prepare_response_format(lm, arguments, signature)
    if most is not None and hasattr(arguments.get("response_format"), "model_json_schema"):
        # DSPy gives the same object on every call, and sends that.
        bound_lists(arguments["response_format"].model_json_schema(), most)
    return arguments


def bound_lists(schema: Any, most: int) -> None:
    """Give every array of a JSON schema that has no `maxItems` that of `most`, in place."""
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema.setdefault("maxItems", most)
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            bound_lists(inner, most)


class LenientChat(LenientParsing, dspy.ChatAdapter):
    """`[[ ## field ## ]]` sections, read leniently, and asked for once more as JSON."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, use_json_adapter_fallback=False)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Fields]:
        """As any adapter; a second call, filed as a fallback, where the first cannot be read."""
        try:
            return list(super().__call__(*args, **kwargs))
        except PartialReplyError:
            count("adapter_fallback")
            second = LenientJSON(use_native_function_calling=self.use_native_function_calling)
            with use(current().plus(SecondTry())):
                return list(second(*args, **kwargs))

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        input_fields = frozenset(signature.input_fields)
        sections = _sections(completion, _HEADER, input_fields)
        if not signature.output_fields.keys() <= sections.keys():
            for name, text in _sections(completion, _LOOSE_HEADER, input_fields).items():
                sections.setdefault(name, text)
        return dict(sections)


def _sections(
    completion: str, header: re.Pattern[str], input_fields: Set[str] = frozenset()
) -> dict[str, str]:
    """Text by field; of a field that stands more than once that of its last section with a text.

    A reply ends where, behind its end mark, one of the `input_fields` stands: some models go on
    with a next question of their own.
    """
    blocks: list[tuple[str, list[str]]] = []
    lines: list[str] = []
    complete = False
    for line in completion.splitlines():
        start = line.strip()
        mark = header.match(start)
        if mark is None:
            lines.append(line)
            continue
        name = mark.group(1)
        if complete and name in input_fields:
            break
        complete = complete or name == "completed"
        lines = []
        blocks.append((name, lines))
        remainder = start[mark.end() :].strip()
        if remainder:
            lines.append(remainder)
    sections: dict[str, str] = {}
    for name, lines in blocks:
        text = "\n".join(lines).strip()
        if text or name not in sections:
            sections[name] = text
    return sections


class ToolConversation(dspy.Adapter):
    """Native tool calls, for a signature with `question`, `history`, `tools` and output `answer`.

    The messages are the system's, the question, and then turn by turn what the model said beside
    its calls, the calls, and one message for each result: no field marks, and no further message of
    the user but a last one that ends the tools.

    A message of the history is `{"text": str, "calls": [(name, arguments, result), ...]}`, one a
    turn, or `{CLOSING: str}` at the end. A reply without a call is the answer; with calls, `answer`
    is the text beside them. `parallel` says whether a reply may have several calls; None leaves it
    open.
    """

    def __init__(self, *, parallel: bool | None) -> None:
        super().__init__(use_native_function_calling=True, parallel_tool_calls=parallel)

    def __call__(self, lm: dspy.LM, *args: Any, **kwargs: Any) -> list[Fields]:
        """As any adapter; the tools are sent whether or not the LM is known to call them."""
        return list(super().__call__(_tool_caller(lm), *args, **kwargs))

    def format(
        self,
        signature: SignatureType,
        demos: Sequence[Mapping[str, Any]],
        inputs: Mapping[str, Any],
    ) -> list[Message]:
        """Returns the messages of one call, without demonstrations that lack question or answer."""
        described = signature.output_fields["answer"].json_schema_extra["desc"]
        messages = [_said("system", f"{signature.instructions}\n\nThen answer with {described}.")]
        for demo in demos:
            if demo.get("question") and demo.get("answer"):
                messages += [_said("user", demo["question"]), _said("assistant", demo["answer"])]
        messages.append(_said("user", inputs["question"]))
        for number, turn in enumerate(inputs["history"].messages):
            if CLOSING in turn:
                messages.append(_said("user", turn[CLOSING]))
                continue
            calls: list[Message] = []
            message: Message = {"role": "assistant", "tool_calls": calls}
            message["content"] = escaped(turn["text"]) or None
            messages.append(message)
            for place, (name, arguments, seen) in enumerate(turn["calls"]):
                id = f"call_{number}_{place}"
                function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
                calls.append({"id": id, "type": "function", "function": function})
                result = {"role": "tool", "tool_call_id": id, "name": name}
                result["content"] = escaped(seen)
                messages.append(result)
        return messages

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """Returns the answer: the full text, or the section marked as the answer."""
        return {"answer": _sections(completion, _HEADER).get("answer") or completion.strip()}


def _tool_caller(lm: dspy.LM) -> dspy.LM:
    """Returns `lm`, which says of itself that it can call tools."""
    if lm.supports_function_calling:
        return lm
    able = copy.copy(lm)
    able.__class__ = _able(type(lm))  # type: ignore[arg-type]  # a class is hashable
    return able


@lru_cache(maxsize=16)
def _able(kind: type[dspy.LM]) -> type[dspy.LM]:
    return type(kind.__name__, (kind,), {"supports_function_calling": True})


def _said(role: str, content: str) -> Message:
    if role != "system":
        content = escaped(content)
    return {"role": role, "content": content}


ADAPTERS: dict[str, type[dspy.Adapter]] = {"chat": LenientChat, "json": LenientJSON}


def adapter_name(name: str, lm: dspy.LM | None) -> str:
    """Returns the adapter name for `lm`: `auto` is json if `lm` enforces schemas, else chat."""
    if name != "auto":
        return name
    if lm is not None and lm.supports_response_schema:
        return "json"
    return "chat"


def make_adapter(name: str = "auto", lm: dspy.LM | None = None) -> dspy.Adapter:
    """Returns the adapter called `name`, or named as FILE.py:CLASS; for `auto` see `adapter_name`.

    Raises:
        UnknownNameError: there is none of this name.
        ConfigError: one of one's own cannot be made, or is no adapter.
    """
    name = adapter_name(name, lm)
    if name in ADAPTERS:
        return ADAPTERS[name]()
    # By name: it stands on this module.
    adapter: dspy.Adapter = import_module("ragbench.lms.formats").further_adapter(name, lm)
    return adapter
