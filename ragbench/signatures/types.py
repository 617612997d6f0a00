"""Value types that signatures share.

Their field names and defaults appear in prompts and JSON schemas: keep them few and plain.
"""

from typing import Literal

from pydantic import BaseModel


class StatedFact(BaseModel):
    """A statement read off numbered passages."""

    statement: str
    evidence: list[int] = []


class Fact(StatedFact):
    """A statement read off numbered passages, and how far it meets the requirement."""

    fulfillment: Literal["direct", "partial", "failed"] = "direct"


class Triple(BaseModel):
    """A fact as a relation of two things."""

    subject: str
    relation: str
    object: str


class GraphEntity(BaseModel):
    """An entity, its type, and what a text says of it."""

    name: str
    type: str = ""
    description: str = ""


class GraphRelation(BaseModel):
    """How two entities are related, and how strongly, 1 to 10."""

    source: str
    target: str
    description: str = ""
    strength: float = 1


class KeyedRelation(GraphRelation):
    """How two entities are related, and words for the themes of it."""

    keywords: list[str] = []


class SubTask(BaseModel):
    """A sub-question of a plan; `depends_on` lists ids of earlier ones."""

    id: str
    question: str
    depends_on: list[str] = []
    status: Literal["open", "done", "failed"] = "open"


class PlanAction(BaseModel):
    """One look-up for one requirement of a plan."""

    requirement_id: str
    query: str


class TreeNode(BaseModel):
    """A sub-question in a tree of them."""

    id: str
    parent: str = ""
    depth: int = 0
    question: str
    status: Literal["open", "solved", "pruned"] = "open"
    answer: str = ""
    confidence: float = 0.0


class LookUpNode(BaseModel):
    """A look-up of a plan; `depends_on` lists ids of earlier ones."""

    id: str
    query: str
    op: Literal["lookup", "bridge", "filter", "compare", "aggregate", "verify"] = "lookup"
    depends_on: list[str] = []
    confidence: float | None = None
    cost: int = 1


class PlanNode(LookUpNode):
    """A look-up of a plan; `produces` names the variables that it finds out."""

    produces: list[str] = []


class Binding(BaseModel):
    """A variable and one value of it."""

    variable: str
    value: str
