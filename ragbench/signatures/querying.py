"""Signatures that turn a question into search queries."""

from collections.abc import Mapping
from typing import Literal

import dspy

from ragbench.signatures.types import NAMED, OfQuestion

QueryMode = Literal["diverse", "paraphrase"]
QueryAction = Literal["rewrite", "decompose", "disambiguate"]

#: What each kind of queries is, as the LM is told.
QUERY_KINDS: Mapping[QueryMode, str] = {
    "diverse": "each about another person, place, thing or fact that the question depends on",
    "paraphrase": "the whole question in other words, each time with other words",
}


#: What one query is that refines the question.
QUERY_ACTIONS: Mapping[QueryAction, str] = {
    "rewrite": "the whole question in the words of a page that answers it",
    "decompose": "one fact alone that the answer needs and no passage here states",
    "disambiguate": "one name of the question alone, to learn who or what is meant",
}


class ExpandQueries(OfQuestion):
    """Write search queries for the question."""

    kind: str = dspy.InputField(desc="what the queries are")
    n: int = dspy.InputField(desc="how many")
    queries: list[str] = dspy.OutputField(desc="search queries that make sense by themselves")


# One query that builds on what earlier ones found (RQ-RAG: Chan et al. 2024, arXiv:2404.00610).
class RefineQuery(dspy.Signature):
    """Write a search query that helps to answer the question and differs from it."""

    context: list[str] = dspy.InputField(desc="passages found so far; may be empty")
    question: str = dspy.InputField()
    kind: str = dspy.InputField(desc="what the query asks for")
    query: str = dspy.OutputField(desc=f"one query, which makes sense by itself; {NAMED}")


# CRAG's second search (Yan et al. 2024, arXiv:2401.15884): keywords, for a search engine.
class KeywordQuery(OfQuestion):
    """Write the keywords to search for an answer to the question."""

    query: str = dspy.OutputField(
        desc="no sentence: the names that matter, and what is asked about them"
    )


# From the memory of a whole corpus (MemoRAG: Qian et al. 2024, arXiv:2409.05591).
class RecallClues(dspy.Signature):
    """Recall from the memory what bears on the question, as a text that holds it would put it."""

    memory: list[str] = dspy.InputField(desc="gists of the texts that can be searched")
    question: str = dspy.InputField()
    clues: list[str] = dspy.OutputField(desc="one sentence each; empty if none")


class SurrogateQuestions(dspy.Signature):
    """Write simpler questions whose answers together answer the question."""

    memory: list[str] = dspy.InputField(desc="gists of the texts; may be empty")
    question: str = dspy.InputField()
    questions: list[str] = dspy.OutputField(desc="of one fact each, that make sense by themselves")


# The two levels of LightRAG (Guo et al. 2024, arXiv:2410.05779).
class ExtractKeywords(OfQuestion):
    """Name the themes of the question and the things that it is about."""

    high_level: list[str] = dspy.OutputField(desc="themes and kinds of relation")
    low_level: list[str] = dspy.OutputField(desc="names of persons, places, works and things")


# What is searched with in the place of the question (HyDE: Gao et al. 2022, arXiv:2212.10496).
class WritePassage(OfQuestion):
    """Write a passage that answers the question."""

    passage: str = dspy.OutputField(desc="about 100 words, as a text on the subject would put it")
