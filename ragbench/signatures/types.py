"""Value types that signatures share, the wordings of a final answer, and the roles of signatures.

Names, order and descriptions of the types' fields appear in prompts and JSON schemas. Defaults are
for replies that leave a field out: no schema shows them, since a model that sees one copies it.

A signature describes its final answer by `BRIEF`, or by `SPAN` if it may stay empty. A call
replaces `SPAN` by the wording of the knob `answer_style`. Only the last answer asks for a best
guess: an empty intermediate answer shows that a fact is missing.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field

AnswerStyle = Literal["brief", "free", "long"]


class OfQuestion(dspy.Signature):
    """Base of signatures whose first input is the question."""

    question: str = dspy.InputField()


class OfPassages(dspy.Signature):
    """Base of signatures whose first inputs are passages and the question."""

    context: list[str] = dspy.InputField(desc="Passages.")
    question: str = dspy.InputField()


# Small models copy a bare "yes or no" from a description, so it names its questions.
SPAN = (
    "Only the complete name, date, number or phrase, as the passages write it. "
    "Yes or no if the question asks whether."
)
ANSWER_STYLES: Mapping[AnswerStyle, str] = {
    "brief": SPAN,
    "free": "One or two sentences.",
    "long": "A full answer with every relevant fact, in as many paragraphs as needed.",
}
#: `SPAN` for an answer without passages.
REMEMBERED = (
    "Only the complete name, date, number or phrase. Yes or no if the question asks whether."
)
GUESS = "If unsure, give a best guess, not a refusal."
#: The last answer if its facts are missing: a guess, or the words "not stated".
OnMissing = Literal["guess", "say_so"]
SAY_SO = 'If the facts are missing, write "not stated", not a guess.'
BRIEF = f"{SPAN} {GUESS}"
#: For fields that become queries: a bare name also finds its namesakes.
NAMED = "Write each name with a description, such as the merchant NAME."
#: For intermediate answers, which become parts of queries.
IDENTIFIED = (
    "Only the date, number, phrase or complete name. Write a name with the words that identify it, "
    "such as a profession or a year."
)
STATED = f"{IDENTIFIED} Leave it empty if not stated."
CERTAINTY = "From 0 (the passages do not mention it) to 1 (they prove it)."
#: A self-contained text can be read without the question and the other texts.
SELF_CONTAINED = "It must be self-contained."


@lru_cache(maxsize=256)  # adapters keep what they make of a signature
def styled(
    signature: type[dspy.Signature], style: AnswerStyle, on_missing: OnMissing = "guess"
) -> type[dspy.Signature]:
    """Return the signature with instructions for the style of the final answer.

    Args:
        signature: Signature with the final answer.
        style: Style of the answer.
        on_missing: Behavior if the passages lack the answer.
    """
    declared = signature
    for name, field in signature.fields.items():
        described = str(field.json_schema_extra.get("desc", ""))
        worded = _restyled(described, style, on_missing)
        if worded != described:
            signature = signature.with_updated_fields(name, desc=worded)
    worded = _restyled(signature.instructions, style, on_missing)
    if worded != signature.instructions:
        signature = signature.with_instructions(worded)  # such as the instructions of a REPL
    if signature is not declared:
        signature.__name__ = declared.__name__
    return signature


def _restyled(text: str, style: AnswerStyle, on_missing: OnMissing) -> str:
    if on_missing == "say_so":
        text = text.replace(GUESS, SAY_SO)
    wordings = (*ANSWER_STYLES.values(), REMEMBERED)
    found = next((wording for wording in wordings if wording in text), None)
    if found is None or (found == REMEMBERED and style == "brief"):
        return text
    return text.replace(found, ANSWER_STYLES[style])


#: Module of a signature -> its role: what an LM can be chosen for.
ROLES = {
    "answering": "answer",
    "judging": "judge",
    "querying": "query",
    "planning": "plan",
    "reasoning": "reason",
    "extracting": "extract",
}


def role_of(signature: type[dspy.Signature]) -> str:
    """Return the role of `signature` by its module, or "sub" if ragbench does not declare it."""
    return ROLES.get(signature.__module__.rpartition(".")[2], "sub")


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        field.pop("default", None)
        field.pop("title", None)
    schema["required"] = list(schema["properties"])
    schema.pop("title", None)


class Shown(BaseModel):
    """A value whose schema names every field, in the order written, without defaults."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class StatedFact(Shown):
    """A statement read off numbered passages."""

    statement: str = Field(description="One full sentence.")
    evidence: list[int] = Field(default=[], description="Numbers of the passages that state it.")


class Fact(StatedFact):
    """A statement read off numbered passages, and how far it meets the requirement."""

    fulfillment: Literal["direct", "partial", "failed"] = Field(
        default="direct",
        description="direct: it meets the requirement. partial: it meets a part of it. failed: "
        "the passages do not state it.",
    )


class Triple(Shown):
    """A fact as a relation of two things."""

    subject: str = Field(description="A name.")
    relation: str = Field(description="A verb or noun, such as: was born in.")
    object: str = Field(description="A name, date or number.")


class GraphEntity(Shown):
    """An entity, its type, and what a text says of it."""

    name: str = Field(description="Spelled like in the text.")
    type: str = Field(default="", description="One of the given types.")
    description: str = Field(default="", description="Summary of the text about it.")


class GraphRelation(Shown):
    """How two entities are related."""

    source: str = Field(description="Name of an entity.")
    target: str = Field(description="Name of another entity.")
    description: str = Field(default="", description="Their relation.")
    strength: float = Field(default=1, description="From 1 (loose) to 10 (close).")


class KeyedRelation(GraphRelation):
    """How two entities are related, and the themes of it."""

    keywords: list[str] = Field(default=[], description="Themes of the relation.")


class SubTask(Shown):
    """A sub-question of a plan."""

    id: str = Field(description="Short, such as 1.")
    question: str = Field(description=f"Asks for one fact. {NAMED}")
    depends_on: list[str] = Field(default=[], description="Ids of earlier ones that it needs.")
    status: Literal["open", "done", "failed"] = Field(default="open", description="open if new.")


class PlanAction(Shown):
    """One search for one sub-question of a plan."""

    requirement_id: str = Field(description="Id of the sub-question.")
    query: str = Field(description=f"Search query without placeholders. {NAMED}")


class LookUpNode(Shown):
    """A look-up of a plan."""

    id: str = Field(description="n1, n2, ...")
    query: str = Field(description=f"Search query. {NAMED}")
    op: Literal["lookup", "bridge", "filter", "compare", "aggregate", "verify"] = Field(
        default="lookup", description="Kind of look-up."
    )
    depends_on: list[str] = Field(default=[], description="Ids of the look-ups that it waits for.")
    confidence: float | None = Field(
        default=None, description="Probability that a passage about it exists, from 0 to 1."
    )
    cost: int = Field(default=1, description="Search effort, 1 or more.")


class PlanNode(LookUpNode):
    """A look-up of a plan, and what it finds out for others."""

    produces: list[str] = Field(
        default=[], description="Names of variables. Leave it empty if no look-up uses them."
    )


class Binding(Shown):
    """A variable and one value of it."""

    variable: str = Field(description="Its given name.")
    value: str = Field(
        description="The complete name, date or number. Write a name with a description, such as "
        "the merchant NAME."
    )


class TreeNode(BaseModel):
    """A sub-question in a tree of them, as a record keeps it."""

    id: str
    parent: str = ""
    depth: int = 0
    question: str
    status: Literal["open", "solved", "pruned"] = "open"
    answer: str = ""
    confidence: float = 0.0
