"""DSPy adapters for models large and small: chat sections, JSON, and native tool calls.

A value is read strictly first, as DSPy does. What fails is mended only where one meaning is plain
("**Full.**", "85%", a bulleted list): anything else stays an error. Each mended value is counted as
`label_repair`; a chat answer that cannot be read is asked for once more as JSON, and that second
call is in the ledger as a fallback.
"""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dspy
import json_repair
from dspy import AdapterParseError
from pydantic import BaseModel, TypeAdapter, ValidationError

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.ledger import SecondTry, count
from ragbench.lms.lm import forget_reply
from ragbench.redact import encodable

#: Key of a history message that holds what the user says last, when no tool is left.
CLOSING = "closing"

# Repeats have bounds, so that no reply takes more than in proportion to its length.
_HEADER = re.compile(r"\[\[\s{0,9}#{1,9}\s{0,9}(\w{1,99})\s{0,9}#{1,9}\s{0,9}\]\][*_`]*:?")
#: The mark of a next field at the end of a value, also one that was cut off.
_MARK = re.compile(r"\[\[\s*#+\s*\w*\s*#*\s*\]*\**$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[\d+\])\s+")
#: A longer text is no label and no number.
_LONGEST_VALUE = 1_000
#: Of a longer text that is no JSON so much is mended, which can take more than in proportion.
_LONGEST_MENDED = 40_000
#: Brackets without an end in what a model meant as JSON: a few.
_MOST_OPEN = 100
_NOTHING = {"none", "null", "n a", "na", "nil", "empty", "nothing"}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_NO_VALUE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class PartialReplyError(AdapterParseError):
    """A reply of which not every field could be read; `read` holds those that could."""

    # Not DSPy's `parsed_result`: its collector of traces fails on replies that have one.
    read: Mapping[str, Any] = MappingProxyType({})


class UnreadableError(ValueError):
    """A value of no plain meaning for its field's type."""


class LenientParsing(dspy.Adapter):
    """What the adapters share: from raw values to typed ones. `_raw` finds the raw ones."""

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        native, said = self.use_native_function_calling, signature.instructions
        return _system_message(type(self), native, signature, said)  # type: ignore[arg-type]

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        raise NotImplementedError

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The output fields in `completion`, each of its declared type.

        Raises:
            PartialReplyError: a required field is missing, or has no plain meaning.
        """
        values: dict[str, Any] = {}
        unread: list[str] = []
        repairs = 0
        found = self._raw(signature, completion)
        for name, field in signature.output_fields.items():
            if name in found:
                try:
                    values[name], mended = read_value(encodable(found[name]), field.annotation)
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
            error.read = {name: value for name, value in values.items() if name in found}
            if not error.read:
                forget_reply()  # or it would be the answer for ever
            raise error
        for _ in range(repairs):
            count("label_repair")
        return values


@lru_cache(maxsize=512)
def _system_message(
    kind: type[Any], native: bool, signature: type[dspy.Signature], instructions: str
) -> str:
    """The system message, made once for a signature: it was a third of the work of a prompt."""
    made: Any = super(LenientParsing, kind(use_native_function_calling=native))
    message = str(made.format_system_message(signature))
    # The fields of nested types in the order written; DSPy sorts them by name.
    for field in signature.output_fields.values() if "JSON schema" in message else ():
        schema = TypeAdapter(field.annotation).json_schema()
        for depth in (1, 2):  # as a chat shows it, and within JSON
            message = message.replace(_shown(_by_name(schema), depth), _shown(schema, depth))
    return message


def _shown(schema: Any, depth: int) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    return text if depth == 1 else json.dumps(text, ensure_ascii=False)[1:-1]


def _by_name(schema: Any) -> Any:
    if isinstance(schema, dict):
        keys = sorted(schema, key=lambda key: (key != "type", key))
        return {key: _by_name(schema[key]) for key in keys}
    return [_by_name(part) for part in schema] if isinstance(schema, list) else schema


class LenientJSON(LenientParsing, dspy.JSONAdapter):
    """JSON, constrained by the strict schema where the server can, read leniently."""

    def _prepare_response_format(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        most = getattr(getattr(lm, "engine", None), "max_items", None)
        able = "response_format" in lm.supported_params, lm.supports_response_schema
        native = self.use_native_function_calling
        lm_kwargs.update(_response_format(native, signature, *able, most))  # type: ignore[arg-type]

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        value = repaired_json(completion)
        if not isinstance(value, dict) and "{" in completion:
            value = repaired_json(completion[completion.find("{") : completion.rfind("}") + 1])
        return value if isinstance(value, dict) else {}

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """The last line of a prompt. The types stand in the system's message, as JSON has them."""
        names = ", ".join(f"`{name}`" for name in signature.output_fields)
        return f"Respond with a JSON object of the following fields, in this order: {names}."


@lru_cache(maxsize=512)
def _response_format(
    native: bool, signature: type[dspy.Signature], asked: bool, schema: bool, most: int | None
) -> dict[str, Any]:
    """What an LM is asked for: DSPy makes it anew for every call, a third of what a call costs."""
    made: dict[str, Any] = {}
    able = {"response_format"} if asked else set()
    lm = SimpleNamespace(supported_params=able, supports_response_schema=schema)
    adapter: Any = dspy.JSONAdapter(use_native_function_calling=native)
    adapter._prepare_response_format(lm, made, signature)
    if most is not None and hasattr(made.get("response_format"), "model_json_schema"):
        # DSPy gives the same object on every call, and sends that.
        bound_lists(made["response_format"].model_json_schema(), most)
    return made


def bound_lists(schema: Any, most: int) -> None:
    """Give every array of a JSON schema that has no `maxItems` that of `most`, in place."""
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema.setdefault("maxItems", most)
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            bound_lists(part, most)


class LenientChat(LenientParsing, dspy.ChatAdapter):
    """`[[ ## field ## ]]` sections, read leniently, and asked for once more as JSON."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, use_json_adapter_fallback=False)

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As any adapter; a second call, filed as a fallback, where the first cannot be read."""
        try:
            return list(super().__call__(*args, **kwargs))
        except PartialReplyError:
            count("adapter_fallback")
            second = LenientJSON(use_native_function_calling=self.use_native_function_calling)
            with use(current().plus(SecondTry())):
                return list(second(*args, **kwargs))

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        return dict(_sections(completion))


def _sections(completion: str) -> dict[str, str]:
    pieces = _HEADER.split(completion)[1:]
    sections: dict[str, str] = {}
    for name, text in zip(pieces[::2], pieces[1::2], strict=True):
        # What models put around a header is no part of the field before it.
        last = text is pieces[-1]
        sections.setdefault(name, (text if last else text.rstrip("*_`")).strip())
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

    def format(
        self,
        signature: type[dspy.Signature],
        demos: Sequence[Mapping[str, Any]],
        inputs: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """The messages of one call. Demonstrations without question and answer are left out."""
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
            calls: list[dict[str, Any]] = []
            said = {"role": "assistant", "content": turn["text"] or None, "tool_calls": calls}
            messages.append(said)
            for place, (name, arguments, seen) in enumerate(turn["calls"]):
                id = f"call_{number}_{place}"
                function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
                calls.append({"id": id, "type": "function", "function": function})
                result = {"role": "tool", "tool_call_id": id, "name": name, "content": seen}
                messages.append(result)
        return messages

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The answer: the whole text, or the section of that name where a model marks one."""
        return {"answer": _sections(completion).get("answer") or completion.strip()}


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


ADAPTERS: dict[str, type[dspy.Adapter]] = {"chat": LenientChat, "json": LenientJSON}


def adapter_name(name: str, lm: dspy.LM | None) -> str:
    """The adapter that `name` is for `lm`: `auto` is json where it enforces schemas, else chat."""
    if name != "auto":
        return name
    return "json" if lm is not None and lm.supports_response_schema else "chat"


def make_adapter(name: str = "auto", lm: dspy.LM | None = None) -> dspy.Adapter:
    """The adapter called `name`; for `auto` see `adapter_name`."""
    name = adapter_name(name, lm)
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ["auto", *ADAPTERS])
    return ADAPTERS[name]()


def read_value(raw: Any, annotation: Any) -> tuple[Any, bool]:
    """`raw` as a value of `annotation`, and whether it had to be mended.

    Raises:
        UnreadableError: it has no plain meaning.
    """
    if raw is None and annotation is str:
        raise UnreadableError("missing")
    value = raw
    if isinstance(raw, str) and (mark := _MARK.search(raw.rstrip(), max(0, len(raw) - 200))):
        value = raw[: mark.start()].rstrip("* \n")
    if annotation == (str | None) and isinstance(value, str) and _plain(value) in _NOTHING:
        return None, True
    try:
        return _strict(value, annotation), value is not raw
    except _NO_VALUE as error:
        if items := _readable_objects(value, annotation):
            return items, True
        if not isinstance(value, str) or not value.strip():
            raise UnreadableError(str(error)) from error
        return _mend(value, annotation), True


def repaired_json(text: str) -> Any:
    """The JSON that `text` is, or was meant to be; "" where there is none."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    text = text[:_LONGEST_MENDED]
    if text.count("{") - text.count("}") + text.count("[") - text.count("]") > _MOST_OPEN:
        return ""
    with suppress(ValueError, RecursionError):  # nested too deeply
        return json_repair.loads(text)
    return ""


def _strict(value: Any, annotation: Any) -> Any:
    if isinstance(value, str) and get_origin(annotation) is Literal:
        written = {str(choice): choice for choice in get_args(annotation)}  # a 4 is written "4"
        label = value.strip().strip("\"'")
        if label in written:
            return written[label]
        raise UnreadableError(f"{value[:80]!r} is none of {get_args(annotation)}")
    if annotation is str:
        return str(value)
    if isinstance(value, str) and get_origin(annotation) is list:
        value = _parsed(value)
    elif isinstance(value, str) and annotation not in (bool, int, float, str | None):
        value = repaired_json(value) or value
    read = TypeAdapter(annotation).validate_python(value)
    if isinstance(read, float) and not math.isfinite(read):
        raise UnreadableError(f"{read} is not finite")
    return read


def _parsed(text: str) -> Any:
    # DSPy would guess at broken JSON here, and read "[1] and [3]" as [3].
    try:
        return encodable(json.loads(text))
    except ValueError:
        return encodable(ast.literal_eval(text))


def _readable_objects(value: Any, annotation: Any) -> list[Any]:
    """Of a list of objects those that can be read: a reply cut short often breaks off in one."""
    kind = next(iter(get_args(annotation)), None)
    read: list[Any] = []
    if get_origin(annotation) is list and isinstance(kind, type) and issubclass(kind, BaseModel):
        with suppress(*_NO_VALUE):
            value = _parsed(value) if isinstance(value, str) else value
        for item in value if isinstance(value, list) else []:
            with suppress(ValidationError):
                read.append(kind.model_validate(item))
    return read


def _mend(text: str, annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    members = [a for a in arguments if a is not type(None)]
    if origin in (Union, UnionType) and len(members) == 1:
        return None if _plain(text) in _NOTHING else _mend(text, members[0])
    if origin is list and arguments in ((str,), (int,)):
        return _list(text, arguments[0])
    if len(text) <= _LONGEST_VALUE and (origin is Literal or annotation is bool):
        return _label(text, {_plain(str(one)): one for one in arguments} if arguments else _TRUTH)
    if len(text) <= _LONGEST_VALUE and annotation in (int, float):
        bare = text.strip(" \n*_`\"'[].")
        with suppress(ValueError):
            number = float(bare.removesuffix("%"))
            number = number / 100 if annotation is float and bare.endswith("%") else number
            if math.isfinite(number) and (annotation is float or number.is_integer()):
                return annotation(number)
    raise UnreadableError(f"{text[:80]!r} is not a {annotation}")


def _label(text: str, labels: Mapping[str, Any]) -> Any:
    """What the label means that `text` is, or begins with, naming no other and negating none."""
    plain = _plain(text)
    if plain in labels:
        return labels[plain]
    head, _, rest = re.sub(r"[,.;:\n]", "\0", text.strip(), count=1).partition("\0")
    head, rest = _plain(head), f" {_plain(rest)} "
    same = all(labels[other] == labels.get(head) for other in labels if f" {other} " in rest)
    denied = head not in _TRUTH and re.search(r" (not|no|never|\w+n t) ", rest)
    if head not in labels or not same or denied:
        raise UnreadableError(f"{text[:80]!r} names no one label")
    return labels[head]


def _list(text: str, kind: type) -> list[Any]:
    if _plain(text) in _NOTHING:
        return []
    if kind is int:
        if re.sub(r"\d+|\band\b|[\s,;\[\]]", "", text.rstrip(". ")) or not re.search(r"\d", text):
            raise UnreadableError(f"{text[:80]!r} is not a list of whole numbers")
        return [int(number) for number in re.findall(r"\d+", text)]
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if len(lines) > 1 or _BULLET.match(lines[0]):
        # A heading above bullets is no item.
        lines = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)] or lines
    else:
        lines = text.strip().strip("[]").split(";" if ";" in text else ",")
    return [line.strip(" \"'“”") for line in lines if line.strip()]


def _plain(text: str) -> str:
    """Lower-case words, single-spaced: "**[Fully_Supported].**" is "fully supported"."""
    return " ".join(re.sub(r"[\W_]", " ", text.casefold()).split())
