"""Fill in the templates of `messages.json`. Needs nothing but Python.

    prompts = load("messages.json")
    messages = render(prompts, "chat", "answer", {"question": "Who?", "context": ["[1] A | a"]})

The last message of a template holds `{{name}}` in the place of each input. Values are written as
DSPy writes them; give what no JSON holds, such as a date, as the text that it is in JSON.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load(path: str | Path) -> dict[str, Any]:
    """Returns the document of templates in the file at `path`."""
    document: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    return document


def render(
    prompts: Mapping[str, Any], adapter: str, predictor: str, inputs: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Returns the messages of one call.

    Raises:
        KeyError: there is no such adapter or predictor, or other inputs than its own are given.
    """
    template = prompts["templates"][adapter][predictor]
    if inputs.keys() != template["inputs"].keys():
        raise KeyError(f"the inputs of {predictor} are {', '.join(template['inputs'])}")
    written = {}
    for name, kind in template["inputs"].items():
        written[name] = _written(_without_marks(inputs[name], prompts["marks"][adapter]), kind)
    *fixed, last = template["messages"]
    content = re.sub(r"\{\{(\w+)\}\}", lambda place: written[place.group(1)], last["content"])
    return [*fixed, {**last, "content": content}]


def _written(value: Any, kind: str) -> str:
    if isinstance(value, list | tuple) and kind == "text":
        return _listed(list(value))
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _listed(items: list[Any]) -> str:
    """Returns a list in the place of a text: numbered, each item in quotation marks."""
    if not items:
        return "N/A"
    if len(items) == 1:
        return _quoted(items[0])
    return "\n".join(f"[{number}] {_quoted(item)}" for number, item in enumerate(items, start=1))


def _quoted(text: str) -> str:
    if not any(mark in text for mark in "\n«»"):
        return f"«{text}»"
    indented = text.replace("\n", "\n    ")
    return f"«««\n    {indented}\n»»»"


def _without_marks(value: Any, marks: list[list[str]]) -> Any:
    """Returns `value` without marks of the protocol, by which a passage could write the answer."""
    if isinstance(value, str):
        for mark, replacement in marks:
            value = re.sub(mark, replacement, value)
        return value
    if isinstance(value, dict):
        changed = {}
        for key, item in value.items():
            changed[_without_marks(key, marks)] = _without_marks(item, marks)
        return changed
    if isinstance(value, list | tuple):
        return [_without_marks(item, marks) for item in value]
    return value
