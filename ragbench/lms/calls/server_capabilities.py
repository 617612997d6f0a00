"""The request parameters that a server accepts, learned once from its refusals.

Models accept different parameters and report the others by HTTP 400 ("`temperature` is deprecated
for this model"). Such a refusal is not a failure: the parameter is left out, renamed or lowered,
and the same request is sent again at once. The change is remembered for this LM.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dspy.lm15 import InvalidRequestError, LM15Error, Request

from ragbench.lms.calls.refusals import is_of_prompt, means_of
from ragbench.logs import get

#: Parameter -> the names that servers call it by. A name that is a word counts in quotes, or where
#: a parameter is named: `seed: Extra inputs are not permitted`, `body -> seed`, `argument: stop`.
_NAMES: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "stop": ("'stop'", "stop_sequences", "stopSequences"),
    "seed": ("'seed'",),
    "response_format": (
        "response_format", "json_schema", "json_object", "responseSchema", "response_schema",
        "responseMimeType", "structured output", "structured outputs", "guided_json", "grammar",
    ),
    "tools": (
        "'tools'", "tool_choice", "tool use", "tool calling", "function calling", "support tools",
        "parallel_tool_calls",
    ),
    "frequency_penalty": ("frequency_penalty", "frequencyPenalty"),
    "presence_penalty": ("presence_penalty", "presencePenalty"),
    "logprobs": ("logprobs", "top_logprobs"),
}  # fmt: skip
_DROPPED: dict[str, dict[str, Any]] = {
    "stop": {"stop": ()},
    "tools": {"tool_choice": None},
}
_REFUSED = re.compile(
    r"support|deprecat|not allowed|unknown|unrecogni[sz]ed|unexpected|extra|not permitted|accept|"
    r"not take|cannot|can't|only|unavailable|not available|must|invalid|incompatible|removed|"
    r"disabled|no longer|too (large|high|big)|exceed|maximum|isn't|not enabled|not implemented",
    re.I,
)
_LARGE = re.compile(r"too (large|high|big)|maximum|at most|exceed|less than|up to|<=|range", re.I)
_AS_A_NAME = (
    r"(?im)[`'\"]{0}[`'\"]|(?:param\w*|arguments?|fields?|property|properties|option)\b"
    r"(?:[^.\n]{{0,30}}: ?| ){0}\b|(?:body|->|\.) ?(?:->|\.)? ?{0}\b|(?:^|[;,] ){0}: |\({0}\)"
)
#: The parameter that the body of a refusal names, as OpenAI and as FastAPI do.
_PARAM = re.compile(r'"param": ?"([\w.]+)"|"loc": ?\[ ?"body", ?"(\w+)"')
#: HTTP statuses of a request that is not taken.
_STATUSES = (400, 404, 422)
#: A name of the limit of a reply -> the name that it is sent by so far.
_TOKEN_NAMES = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}

_log = get(__name__)


class ServerCapabilities:
    """The request parameters that the server of the LM `model` accepts. Thread-safe.

    `rename` asks the client to send one parameter under another name and returns True if it can.
    """

    def __init__(self, model: str, rename: Callable[[str, str], bool]) -> None:
        self.model = model
        self._rename = rename
        #: Parameter -> its change in words, for the card.
        self.learned: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._plain_json = False
        self._most_tokens: int | None = None
        self._lock = threading.Lock()

    def applied(self, request: Request) -> Request:
        """Return `request` as the server takes it."""
        config = request.config
        changes: dict[str, Any] = {}
        for name in self._dropped:
            changes.update(_DROPPED.get(name, {name: None}))
        if self._plain_json and config.response_format and "response_format" not in changes:
            changes["response_format"] = {"type": "json_object"}
        if self._most_tokens is not None and (config.max_tokens or 0) > self._most_tokens:
            changes["max_tokens"] = min(self._most_tokens, changes.get("max_tokens") or 2**40)
        if not changes:
            return request
        tools = request.tools
        if "tools" in self._dropped:
            tools = ()
        return replace(request, tools=tools, config=replace(config, **changes))

    def learn(self, error: LM15Error, sent: Request) -> bool:
        """Return True if `error` names a parameter of `sent` that will be sent otherwise.

        Args:
            error: Error of the server.
            sent: The request that it refuses.
        """
        status = getattr(error, "status", None)
        if not isinstance(error, InvalidRequestError) or status not in _STATUSES:
            return False
        if is_of_prompt(error) or means_of(error):
            return False
        words = f"{error.message}\n{getattr(error, 'body', '')}"
        name = _named(words, _sent_by(sent))
        if not name:
            return False
        with self._lock:
            return self._change(name, words, sent)

    def _change(self, name: str, words: str, sent: Request) -> bool:
        now = self.applied(sent)
        if now != sent:
            return True  # another call has learned it since this one was sent
        if name == "max_tokens":
            new_name = _other_name(words)
            change = f"sent as {new_name}"
            is_new = new_name and self.learned.get(name) != change
            if is_new and self._rename(_TOKEN_NAMES[new_name], new_name):
                self._say(name, change, words)
                return True
            lower = _lower_limit(words, sent.config.max_tokens or 0)
            if lower:
                self._most_tokens = lower
                self._say(name, f"at most {lower}", words)
                return True
        schema = (sent.config.response_format or {}).get("type") == "json_schema"
        if name == "response_format" and schema:
            self._plain_json = True
            self._say(name, "without a schema", words)
            return True
        self._dropped.add(name)
        self._say(name, "not sent", words)
        return True

    def _say(self, name: str, change: str, words: str) -> None:
        self.learned[name] = change
        line = words.strip().partition("\n")[0][:200]
        _log.warning("%s: %s is %s from now on (%s)", self.model, name, change, line)


def _sent_by(request: Request) -> list[str]:
    """Return the parameters that `request` sends."""
    sent = []
    for name in _NAMES:
        value = request.tools if name == "tools" else getattr(request.config, name, None)
        if value or (name in ("temperature", "seed") and value is not None):
            sent.append(name)
    return sent


def _named(words: str, sent: list[str]) -> str:
    """Return the parameter among `sent` that a refusal names, or "" if it names none.

    If a refusal names several, the last one in `_NAMES` is returned. If two parameters conflict,
    temperature is kept.
    """
    if not _REFUSED.search(words):
        return ""
    param = _PARAM.search(words)
    stated = ""
    if param:
        stated = (param.group(1) or param.group(2)).rpartition(".")[2]
    refused = ""
    for name in sent:
        for written in _NAMES[name]:
            bare = written.strip("'")
            if stated in (bare, name):
                return name
            pattern = rf"(?<![\w]){re.escape(bare)}(?!\w)"
            if written != bare:
                pattern = _AS_A_NAME.format(re.escape(bare))
            if re.search(pattern, words) and (not refused or refused == "temperature"):
                refused = name
    return refused


def _other_name(words: str) -> str:
    """Return the name for `max_tokens` that a server asks for, or "" if it asks for none."""
    match = re.search(
        r"(?:use|instead|please)\D{0,40}?(max_completion_tokens|max_tokens)", words, re.I
    )
    if match:
        return match.group(1)
    return ""


def _lower_limit(words: str, sent: int) -> int | None:
    """Return the largest reply limit in tokens that a server names, below `sent`."""
    if not _LARGE.search(words):
        return None
    lower = None
    for text in re.findall(r"\d[\d,]*", words.partition("\n")[0]):
        number = int(text.replace(",", ""))
        if max(15, lower or 0) < number < sent:
            lower = number
    return lower
