"""What is mended and what is not, on text that small models wrote or might."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from ragbench.lms.adapters.lenient import UnreadableError, read_value

Support = Literal["full", "partial", "none"]
Relevance = Literal["relevant", "irrelevant"]
Graded = Literal["fully supported", "partially supported", "not supported"]
Verdict = Literal["yes", "no"]
Utility = Literal[1, 2, 3, 4, 5]
Step = Literal["accept_partial", "reword", "restructure"]


@pytest.mark.parametrize(
    ("raw", "annotation", "value"),
    [
        ("full", Support, "full"),
        ('"full"', Support, "full"),
        ("3", int, 3),
        (4, Utility, 4),
        ("4", Utility, 4),
        (0.5, float, 0.5),
        (True, bool, True),
        ("yes", bool, True),
        ("['a', 'b']", list[str], ["a", "b"]),
        ('["a", "b"]', list[str], ["a", "b"]),
        (["a, b"], list[str], ["a, b"]),
        ("Paris", str | None, "Paris"),
        ("not [[ a marker", str, "not [[ a marker"),
    ],
)
def test_a_right_value_is_left_alone(raw: Any, annotation: Any, value: Any) -> None:
    assert read_value(raw, annotation) == (value, False)


@pytest.mark.parametrize(
    ("raw", "annotation", "value"),
    [
        ("Fully supported.", Support, "full"),
        ("**Full**", Support, "full"),
        ("Partially", Support, "partial"),
        ("The support is partial.", Support, "partial"),
        ("[Relevant]", Relevance, "relevant"),
        ("IRRELEVANT", Relevance, "irrelevant"),
        (
            "Irrelevant: the passage is about another film with a similar name",
            Relevance,
            "irrelevant",
        ),
        ("Partially Supported.", Graded, "partially supported"),
        ("Not supported", Graded, "not supported"),
        ("Accept partial", Step, "accept_partial"),
        ("Yes.", Verdict, "yes"),
        ("No, it is not.", Verdict, "no"),
        ("No.", bool, False),
        ("The answer is True", bool, True),
        ("No, that is false.", bool, False),
        ("4/5", Utility, 4),
        ("Score: 4", Utility, 4),
        ("**3**", int, 3),
        ("3 hops", int, 3),
        ("85%", float, 0.85),
        ("7/10", float, 0.7),
        ("8 out of 10", float, 0.8),
        ("about 0.9", float, 0.9),
        ("- a\n- b", list[str], ["a", "b"]),
        ("1. first one\n2. second, with a comma", list[str], ["first one", "second, with a comma"]),
        ("Queries:\n- a\n- b", list[str], ["a", "b"]),
        ("a, b", list[str], ["a", "b"]),
        ("only one", list[str], ["only one"]),
        ("None", list[str], []),
        ("[1] and [3]", list[int], [1, 3]),
        ("Passages 1, 3", list[int], [1, 3]),
        ("None", str | None, None),
        ("null", str | None, None),
        ("Partial.", Support | None, "partial"),
        ("Paris [[ ## completed ## ]]", str, "Paris"),
        ("Paris\n[[ ## completed", str, "Paris"),
        ("full [[ ## completed ## ]]", Support, "full"),
    ],
)
def test_an_almost_right_value_is_mended(raw: Any, annotation: Any, value: Any) -> None:
    assert read_value(raw, annotation) == (value, True)


@pytest.mark.parametrize(
    ("raw", "annotation"),
    [
        ("", Support),
        ("   ", Support),
        (None, Support),
        (None, str),
        (None, bool),
        ("", bool),
        ("", int),
        ("", list[str]),
        ("[[ ## completed ## ]]", Support),
        ("full or partial", Support),
        ('"full" or "partial"', Support),
        ("relevant, not irrelevant", Relevance),
        ("not relevant", Relevance),
        ("It isn't relevant", Relevance),
        ("No support", Support),
        ("Is it relevant?", Relevance),
        ("supported", Support),
        ("The passage is full of detail about the director but says little else", Support),
        ("yes and no", bool),
        ("It is not true", bool),
        ("maybe", bool),
        ("between 3 and 5", int),
        ("3.5", int),
        ("not 3", int),
        ("six", Utility),
        ("9", Utility),
        ("85% or 90%", float),
        ("high", float),
        ("0.8 or 0.9", float),
        ("1-3", list[int]),
        ("the first two", list[int]),
        ("nan", float),
        (float("inf"), float),
        ("anything", dict[str, int]),
    ],
)
def test_a_missing_or_ambiguous_value_stays_an_error(raw: Any, annotation: Any) -> None:
    with pytest.raises(UnreadableError):
        read_value(raw, annotation)


class Planned(BaseModel):
    id: str
    cost: int = 1


WHOLE, CUT = {"id": "n1", "cost": 2}, {"id": "n2", "cost": ", "}


@pytest.mark.parametrize("raw", [[WHOLE, CUT], [CUT, WHOLE, None, []], json.dumps([WHOLE, CUT])])
def test_objects_of_a_list_that_cannot_be_read_are_left_out(raw: Any) -> None:
    assert read_value(raw, list[Planned]) == ([Planned(id="n1", cost=2)], True)


@pytest.mark.parametrize("raw", [[CUT], [None], {"id": "n1"}, "[{'id': 'n1', 'cost'", "n1 and n2"])
def test_a_list_without_a_readable_object_is_an_error(raw: Any) -> None:
    with pytest.raises(UnreadableError):
        read_value(raw, list[Planned])


KINDS = [Support, Relevance, Verdict, Utility, bool, int, float, list[str], list[int], str | None]


@given(st.one_of(st.text(max_size=60), st.none(), st.integers()), st.sampled_from(KINDS))
def test_any_text_is_read_or_refused_never_a_crash(raw: Any, annotation: Any) -> None:
    try:
        value, _ = read_value(raw, annotation)
    except UnreadableError:
        return
    assert read_value(value, annotation)[0] == value


@given(st.text(alphabet="relvantifupo -.,!?NOT", max_size=40))
def test_a_label_is_only_read_where_the_text_has_it(text: str) -> None:
    try:
        value, _ = read_value(text, Relevance)
    except UnreadableError:
        return
    assert value in text.lower()
