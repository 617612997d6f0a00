"""Signatures that extract facts from passages."""

import dspy

from ragbench.signatures import types


class FactExtract(types.OfPassages):
    """Write the facts of the passages that meet the requirement, one full sentence per fact."""

    known_facts: list[str] = dspy.InputField(desc="Facts found before. It may be empty.")
    requirement: str = dspy.InputField(desc="Information to find.")
    facts: list[types.Fact] = dspy.OutputField(desc="Only new facts. Leave it empty if none.")


# A round of REAP in one call: extraction, judgement and the next searches.
class ReadAndJudge(FactExtract):
    """Write the facts of the passages that meet the requirements, one full sentence per fact.

    Then judge whether the known and the new facts suffice to answer the question.
    """

    requirement: list[str] = dspy.InputField(  # type: ignore[assignment]
        desc="Information to find."
    )
    facts: list[types.StatedFact] = dspy.OutputField(  # type: ignore[assignment]
        desc="Only new facts. Leave it empty if none."
    )
    score: float = dspy.OutputField(
        desc="From 0 to 1: the facts are enough to answer. Below 0.5 while a fact is missing."
    )
    missing: list[str] = dspy.OutputField(
        desc="Search queries for the missing facts that can be searched now. Leave it empty if "
        f"none. {types.NAMED}"
    )


# One row per value, not a mapping: a free-form object cannot be held to a schema.
class BindVariables(dspy.Signature):
    """Read the values of the variables from the passages. Leave out a variable without a value."""

    context: list[str] = dspy.InputField(desc="Passages.")
    question: str = dspy.InputField(desc="Question that needs the values.")
    query: str = dspy.InputField(desc="Query that found the passages.")
    variables: list[str] = dspy.InputField(desc="Names of the variables.")
    bindings: list[types.Binding] = dspy.OutputField(
        desc="One for each value. Leave it empty if no value is stated."
    )


class TakeNotes(types.OfPassages):
    """Write the statements of the passages that help to answer the question."""

    notes: list[str] = dspy.OutputField(
        desc="One self-contained sentence each. Leave it empty if nothing helps."
    )


# The reason-in-documents of Search-o1 (Li et al. 2025, arXiv:2501.05366).
class ReadForReasoning(dspy.Signature):
    """Write the information of the passages that answers the query and advances the reasoning."""

    context: list[str] = dspy.InputField(desc="Passages.")
    question: str = dspy.InputField(desc="Subject of the reasoning.")
    thoughts: list[str] = dspy.InputField(desc="Previous reasoning.")
    query: str = dspy.InputField(desc="Query that found the passages.")
    information: str = dspy.OutputField(
        desc="One or a few self-contained sentences. Leave it empty if nothing helps."
    )


class SplitFacts(dspy.Signature):
    """Split the text into single self-contained facts. Do not add any."""

    text: str = dspy.InputField()
    facts: list[str] = dspy.OutputField(
        desc="One short sentence each, with names instead of pronouns."
    )


# Index time: one call per cluster of a summary tree (Sarthi et al. 2024, arXiv:2401.18059).
class Summarize(dspy.Signature):
    """Summarize the texts together. Keep names, numbers and dates."""

    texts: list[str] = dspy.InputField()
    max_words: int = dspy.InputField(desc="Maximum number of words.")
    summary: str = dspy.OutputField()


# For indexes and questions: the entities that the graph systems link.
class ExtractEntities(dspy.Signature):
    """List the named entities of the text once each, spelled like in the text."""

    text: str = dspy.InputField()
    entities: list[str] = dspy.OutputField(
        desc="Names of people, groups, places, works, events and products, and dates or years. No "
        "other numbers. Keep the mark that distinguishes namesakes, such as NAME (film). Leave it "
        "empty if none."
    )


# Index time: the facts of HippoRAG 2 (Gutiérrez et al. 2025, arXiv:2502.14802).
class ExtractTriples(dspy.Signature):
    """List the facts of the text as triples, each about one or more of the entities.

    Write names instead of pronouns.
    """

    text: str = dspy.InputField()
    entities: list[str] = dspy.InputField()
    triples: list[types.Triple] = dspy.OutputField(
        desc="One for each fact. Leave it empty if none."
    )


# ExtractTriples for a text without known entities.
class ExtractAllTriples(dspy.Signature):
    """List the facts of the text as triples. Write names instead of pronouns."""

    text: str = dspy.InputField()
    triples: list[types.Triple] = dspy.OutputField(desc="Leave it empty if none.")


# Index time: the graph of GraphRAG (Edge et al. 2024, arXiv:2404.16130).
class ExtractGraph(dspy.Signature):
    """List the entities of the given types in the text, and their relations.

    Leave out those that are known.
    """

    text: str = dspy.InputField()
    entity_types: list[str] = dspy.InputField()
    known: list[str] = dspy.InputField(
        desc="Entities, and pairs of related ones, found before. It may be empty."
    )
    entities: list[types.GraphEntity] = dspy.OutputField(desc="Leave it empty if none.")
    relations: list[types.GraphRelation] = dspy.OutputField(
        desc="Relations between known or new entities."
    )


# LightRAG (Guo et al. 2024, arXiv:2410.05779), whose relations have keywords.
class ExtractKeyedGraph(ExtractGraph):
    """List the entities of the given types in the text, and their relations.

    Leave out those that are known.
    """

    relations: list[types.KeyedRelation] = dspy.OutputField(  # type: ignore[assignment]
        desc="Relations between known or new entities."
    )


class ReportCommunity(dspy.Signature):
    """Report on the group of entities: its subject, its main members and their relations."""

    entities: list[str] = dspy.InputField()
    relations: list[str] = dspy.InputField()
    parts: list[str] = dspy.InputField(desc="Reports on parts of the group. It may be empty.")
    max_words: int = dspy.InputField(desc="Maximum number of words of the whole report.")
    title: str = dspy.OutputField(desc="Short, with the main names.")
    summary: str = dspy.OutputField()
    rating: float = dspy.OutputField(desc="Importance, from 0 to 10.")
    findings: list[str] = dspy.OutputField(desc="A few sentences each.")
