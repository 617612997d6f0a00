"""Variables of a plan: the values that look-ups found out, put into the queries that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from ragbench.data import question_key
from ragbench.programs.core import is_answer
from ragbench.programs.lookahead.graph import Node
from ragbench.programs.lookahead.reading import variable_name
from ragbench.signatures import Binding

#: (look-up, variable) -> its values, best first.
Values = Mapping[tuple[str, str], Sequence[str]]


class Filled(NamedTuple):
    """The queries of one look-up, and how many of its variables had no value."""

    queries: list[str]
    unresolved: int


def read_bindings(
    rows: Iterable[Binding], variables: Sequence[str], *, most: int
) -> dict[str, tuple[str, ...]]:
    """Variable -> its values in `rows`, at most `most`; what commits to nothing is left out.

    A row of another name is left out too, unless one variable was asked for and no row names it.
    """
    values_of: dict[str, dict[str, str]] = {}
    named = [(variable_name(row.variable), row.value) for row in rows]
    if len(variables) == 1 and variables[0] not in dict(named):
        named = [(variables[0], value) for _, value in named]
    for name, text in named:
        value = " ".join(text.split()).rstrip(".")
        if name in variables and is_answer(value):
            values_of.setdefault(name, {}).setdefault(question_key(value), value)
    return {name: tuple(values.values())[:most] for name, values in values_of.items()}


def fill(node: Node, values: Values, instead: Mapping[str, str], *, most: int) -> Filled:
    """The query of `node` with every variable replaced; one query per combination of values.

    A variable without a value gives way to `instead` of its look-up (the query that should have
    found it), or to nothing. At most `most` queries come back, and none is blank.
    """
    choices: list[Sequence[str]] = []
    unresolved = 0
    for reference in node.references:
        known = values.get((reference.node, reference.variable), ())
        unresolved += not known
        choices.append(known or [instead.get(reference.node, "")])
    queries = [_put(node, chosen) for chosen in islice(product(*choices), most)]
    return Filled([q for q in dict.fromkeys(queries) if question_key(q)], unresolved)


def _put(node: Node, chosen: Sequence[str]) -> str:
    text = node.query
    for reference, value in reversed(list(zip(node.references, chosen, strict=True))):
        text = text[: reference.start] + value + text[reference.end :]
    return " ".join(text.split())
