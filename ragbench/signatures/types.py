"""Value types that signatures share, the wordings of a final answer, and the roles of signatures.

Names, order and descriptions of the types' fields appear in prompts and JSON schemas. Defaults are
for replies that leave a field out: no schema shows them, since a model that sees one copies it.

A signature describes its final answer by `BRIEF`, or by `SPAN` where it may stay blank; a call
puts the wording of the knob `answer_style` in the place of `SPAN`. A best guess is asked of the
last answer alone: an answer on the way stays empty, by which a missing fact shows.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field

AnswerStyle = Literal["brief", "free", "long"]


class OfQuestion(dspy.Signature):
    """Whatever begins with the question."""

    question: str = dspy.InputField()


class OfPassages(dspy.Signature):
    """Whatever begins with passages and the question."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()


# Small models copy a bare "yes or no" from a description, so it names its questions.
SPAN = (
    "the complete name, date, number or phrase alone, as the passages write it; yes or no if the "
    "question asks whether"
)
ANSWER_STYLES: Mapping[AnswerStyle, str] = {
    "brief": SPAN,
    "free": "one or two sentences",
    "long": "a full answer with every fact that bears on it, in as many paragraphs as it needs",
}
#: `SPAN` where there are no passages.
REMEMBERED = (
    "the complete name, date, number or phrase alone; yes or no if the question asks whether"
)
GUESS = "a best guess rather than a refusal"
#: What the last answer is without its facts: a guess, or a word that says so.
OnMissing = Literal["guess", "say_so"]
SAY_SO = '"not stated" rather than a guess'
BRIEF = f"{SPAN}; {GUESS}"
#: Of what becomes a query: a bare name finds whatever else has it too.
NAMED = "each name with what it is, such as the merchant NAME"
#: An answer on the way to the last one.
STATED = "the complete name, date, number or phrase alone; empty if not stated"


@lru_cache(maxsize=256)  # adapters keep what they make of a signature
def styled(
    signature: type[dspy.Signature], style: AnswerStyle, on_missing: OnMissing = "guess"
) -> type[dspy.Signature]:
    """`signature` with the final answer described as `style` and `on_missing` have it."""
    for name, field in signature.fields.items():
        described = str(field.json_schema_extra.get("desc", ""))
        worded = _restyled(described, style, on_missing)
        if worded != described:
            signature = signature.with_updated_fields(name, desc=worded)
    worded = _restyled(signature.instructions, style, on_missing)
    if worded != signature.instructions:
        signature = signature.with_instructions(worded)  # as those of a REPL have it
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
    """The role of `signature`, from its module; "sub" for one declared elsewhere."""
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

    statement: str = Field(description="one full sentence")
    evidence: list[int] = Field(default=[], description="numbers of the passages that state it")


class Fact(StatedFact):
    """A statement read off numbered passages, and how far it meets the requirement."""

    fulfillment: Literal["direct", "partial", "failed"] = Field(
        default="direct",
        description="direct: it meets the requirement; partial: a part of it; failed: it says "
        "that the passages do not",
    )


class Triple(Shown):
    """A fact as a relation of two things."""

    subject: str = Field(description="a name")
    relation: str = Field(description="a verb or noun, as in: was born in")
    object: str = Field(description="a name, date or number")


class GraphEntity(Shown):
    """An entity, its type, and what a text says of it."""

    name: str = Field(description="as the text writes it")
    type: str = Field(default="", description="one of the given types")
    description: str = Field(default="", description="what the text says of it")


class GraphRelation(Shown):
    """How two entities are related."""

    source: str = Field(description="name of an entity")
    target: str = Field(description="name of another")
    description: str = Field(default="", description="how they are related")
    strength: float = Field(default=1, description="1, loosely, to 10, closely related")


class KeyedRelation(GraphRelation):
    """How two entities are related, and the themes of it."""

    keywords: list[str] = Field(default=[], description="words for the themes of the relation")


class SubTask(Shown):
    """A sub-question of a plan."""

    id: str = Field(description="short, such as 1")
    question: str = Field(description=f"of one fact; {NAMED}")
    depends_on: list[str] = Field(default=[], description="ids of earlier ones that it needs")
    status: Literal["open", "done", "failed"] = Field(default="open", description="open if new")


class PlanAction(Shown):
    """One search for one sub-question of a plan."""

    requirement_id: str = Field(description="id of the sub-question")
    query: str = Field(description=f"what to search for, without placeholders; {NAMED}")


class LookUpNode(Shown):
    """A look-up of a plan."""

    id: str = Field(description="n1, n2, ...")
    query: str = Field(description=f"what to search for; {NAMED}")
    op: Literal["lookup", "bridge", "filter", "compare", "aggregate", "verify"] = Field(
        default="lookup", description="what kind of look-up it is"
    )
    depends_on: list[str] = Field(default=[], description="ids of the look-ups that it waits for")
    confidence: float | None = Field(
        default=None, description="0 to 1: how likely a passage on it is to exist"
    )
    cost: int = Field(default=1, description="from 1: how much must be searched")


class PlanNode(LookUpNode):
    """A look-up of a plan, and what it finds out for others."""

    produces: list[str] = Field(
        default=[], description="names of variables; empty if none uses them"
    )


class Binding(Shown):
    """A variable and one value of it."""

    variable: str = Field(description="its name, as given")
    value: str = Field(
        description="the complete name, date or number; of a name also what it is, such as the "
        "merchant NAME"
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
