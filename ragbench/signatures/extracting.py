"""Signatures that read facts off passages."""

import dspy

from ragbench.signatures import types


class FactExtract(dspy.Signature):
    """Write what the passages state about the requirement, one full sentence per fact."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField(desc="what the facts are needed for")
    known_facts: list[str] = dspy.InputField(desc="found before; may be empty")
    requirement: str = dspy.InputField(desc="what is to be found out")
    facts: list[types.Fact] = dspy.OutputField(desc="that are not known yet; empty if none")


# A round of REAP in one call: extraction, judgement and the next searches.
class ReadAndJudge(types.OfPassages):
    """Write what the passages state about the sub-tasks, one full sentence per fact.

    Then judge whether the known and the new facts are enough to answer the question.
    """

    known_facts: list[str] = dspy.InputField(desc="found before; may be empty")
    sub_tasks: list[str] = dspy.InputField(desc="what the passages were looked up for")
    facts: list[types.StatedFact] = dspy.OutputField(desc="that are not known yet; empty if none")
    score: float = dspy.OutputField(
        desc="0 to 1: whether the facts alone give the answer; under 0.5 while one is missing"
    )
    missing: list[str] = dspy.OutputField(
        desc="searches that can be made now for the facts still missing; "
        f"{types.NAMED}; empty if none"
    )


# One row per value, not a mapping: a free-form object cannot be held to a schema.
class BindVariables(dspy.Signature):
    """Read the values of the variables off the passages. Leave out a variable with none."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField(desc="what the values are needed for")
    query: str = dspy.InputField(desc="what the passages were looked up with")
    variables: list[str] = dspy.InputField(desc="names of what the query asks for")
    bindings: list[types.Binding] = dspy.OutputField(
        desc="one for each value; empty if none is stated"
    )


class TakeNotes(types.OfPassages):
    """Write what the passages state that helps to answer the question."""

    notes: list[str] = dspy.OutputField(
        desc="one sentence each that can be read alone; empty if nothing helps"
    )


# The reason-in-documents of Search-o1 (Li et al. 2025, arXiv:2501.05366).
class ReadForReasoning(dspy.Signature):
    """Write what the passages state that answers the query and carries the reasoning on."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField(desc="what the reasoning is about")
    thoughts: list[str] = dspy.InputField(desc="reasoning so far")
    query: str = dspy.InputField(desc="what was searched for")
    information: str = dspy.OutputField(
        desc="one or a few sentences that can be read alone; empty if nothing helps"
    )


class SplitFacts(dspy.Signature):
    """Break the text into single facts that can be read alone. Add none."""

    text: str = dspy.InputField()
    facts: list[str] = dspy.OutputField(
        desc="one short sentence each, with names in the place of pronouns"
    )


# Index time: one call per cluster of a summary tree (Sarthi et al. 2024, arXiv:2401.18059).
class Summarize(dspy.Signature):
    """Summarize the texts together. Keep names, numbers and dates."""

    texts: list[str] = dspy.InputField()
    max_words: int = dspy.InputField(desc="of the summary")
    summary: str = dspy.OutputField()


# Index time and questions alike: the entities that the graph systems link.
class ExtractEntities(dspy.Signature):
    """List the named entities of the text, each once, as the text writes them."""

    text: str = dspy.InputField()
    entities: list[str] = dspy.OutputField(
        desc="names of people, groups, places, works, events, products, and dates or years; no "
        "other numbers; a name with the mark that tells it from a namesake, such as NAME (film); "
        "empty if none"
    )


# Index time: the facts of HippoRAG 2 (Gutiérrez et al. 2025, arXiv:2502.14802).
class ExtractTriples(dspy.Signature):
    """List what the text states as triples, each about at least one of the entities.

    Write the name in the place of a pronoun.
    """

    text: str = dspy.InputField()
    entities: list[str] = dspy.InputField()
    triples: list[types.Triple] = dspy.OutputField(desc="one for each fact; empty if none")


# ExtractTriples of a text of which no entity is known.
class ExtractAllTriples(dspy.Signature):
    """List what the text states as triples. Write the name in the place of a pronoun."""

    text: str = dspy.InputField()
    triples: list[types.Triple] = dspy.OutputField(desc="empty if none")


# Index time: the graph of GraphRAG (Edge et al. 2024, arXiv:2404.16130).
class ExtractGraph(dspy.Signature):
    """List the entities of the given types in the text, and how they are related.

    Leave out what was found before.
    """

    text: str = dspy.InputField()
    entity_types: list[str] = dspy.InputField()
    known: list[str] = dspy.InputField(
        desc="entities, and pairs of related ones, found before; may be empty"
    )
    entities: list[types.GraphEntity] = dspy.OutputField(desc="empty if none")
    relations: list[types.GraphRelation] = dspy.OutputField(desc="between entities of either list")


# LightRAG (Guo et al. 2024, arXiv:2410.05779), whose relations have keywords.
class ExtractKeyedGraph(ExtractGraph):
    """List the entities of the given types in the text, and how they are related.

    Leave out what was found before.
    """

    relations: list[types.KeyedRelation] = dspy.OutputField(  # type: ignore[assignment]
        desc="between entities of either list"
    )


class ReportCommunity(dspy.Signature):
    """Report on the group of entities: what it is, who matters in it and how they are related."""

    entities: list[str] = dspy.InputField()
    relations: list[str] = dspy.InputField()
    parts: list[str] = dspy.InputField(desc="reports on parts of the group; may be empty")
    max_words: int = dspy.InputField(desc="of the whole report")
    title: str = dspy.OutputField(desc="short, with the names that matter most")
    summary: str = dspy.OutputField()
    rating: float = dspy.OutputField(desc="0, of no importance, to 10")
    findings: list[str] = dspy.OutputField(desc="a few sentences each")
