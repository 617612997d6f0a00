"""Objects that are no questions, passages, LMs or retrievers: one line, and nothing is guessed."""

from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.errors import ConfigError

GOOD = dspy.Example(question="Who?", answer="Bo")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": None}, "data=None is neither"),
    ({"data": ["Who?"]}, "data has 'Who\\?'; give each question as a dspy.Example"),
    ({"data": [dspy.Example(question=5, answer="a")]}, "is 5, which is no text"),
    ({"data": [dspy.Example(question="\ud800", answer="a")]}, "half of a surrogate pair"),
    ({"data": [dspy.Example(question="Who?", answers="Bo")]}, "answers='Bo' of an example"),
    ({"data": [GOOD, dspy.Example(question="Who?", answer="Al")]}, "two examples have the qid"),
    ({"data": [GOOD], "corpus": "one text"}, "corpus is one str; give a list"),
    ({"data": [GOOD], "corpus": {"Title": "text"}}, "corpus is one dict; give a list"),
    ({"data": [GOOD], "corpus": ["text", None]}, "corpus has None; give each"),
    ({"data": [GOOD], "lm": 5}, "lm=5 is neither a spec such as"),
    ({"data": [GOOD], "retriever": 5}, "retriever=5 is no retriever"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_what_cannot_be_asked_is_refused_in_one_line(
    given: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told) as caught:
        rb.evaluate("direct", **{"lm": "openai/x", "api_base": "http://127.0.0.1:9", **given})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
