"""Value types that signatures share.

Names, order and descriptions of their fields appear in prompts and JSON schemas. Defaults are for
replies that leave a field out: no schema shows them, since a model that sees one copies it.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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
    question: str = Field(description="of one fact")
    depends_on: list[str] = Field(default=[], description="ids of earlier ones that it needs")
    status: Literal["open", "done", "failed"] = Field(default="open", description="open if new")


class PlanAction(Shown):
    """One search for one sub-question of a plan."""

    requirement_id: str = Field(description="id of the sub-question")
    query: str = Field(description="what to search for, without placeholders")


class LookUpNode(Shown):
    """A look-up of a plan."""

    id: str = Field(description="n1, n2, ...")
    query: str = Field(description="what to search for")
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
    value: str = Field(description="the complete name, date or number alone")


class TreeNode(BaseModel):
    """A sub-question in a tree of them, as a record keeps it."""

    id: str
    parent: str = ""
    depth: int = 0
    question: str
    status: Literal["open", "solved", "pruned"] = "open"
    answer: str = ""
    confidence: float = 0.0
