"""Signatures that turn a question into search queries."""

from collections.abc import Mapping
from typing import Literal

import dspy

from ragbench.signatures.types import NAMED, SELF_CONTAINED, OfQuestion

QueryMode = Literal["diverse", "paraphrase"]
QueryAction = Literal["rewrite", "decompose", "disambiguate"]

#: Instruction for each kind of queries.
QUERY_KINDS: Mapping[QueryMode, str] = {
    "diverse": "Each query asks about another person, place, thing or fact of the question.",
    "paraphrase": "Each query asks the whole question in other words.",
}


#: Instruction for each kind of query that refines the question.
QUERY_ACTIONS: Mapping[QueryAction, str] = {
    "rewrite": "The whole question in the words of a page that answers it.",
    "decompose": "Only one fact that the answer needs and that the passages do not state.",
    "disambiguate": "Only one name of the question, to identify its bearer.",
}


class ExpandQueries(OfQuestion):
    """Write search queries for the question."""

    kind: str = dspy.InputField(desc="Kind of queries.")
    n: int = dspy.InputField(desc="Number of queries.")
    queries: list[str] = dspy.OutputField(desc="Self-contained search queries.")


# One query that builds on the passages of earlier ones (RQ-RAG: Chan et al. 2024,
# arXiv:2404.00610).
class RefineQuery(dspy.Signature):
    """Write a search query that helps to answer the question and differs from it."""

    context: list[str] = dspy.InputField(desc="Passages found before. It may be empty.")
    question: str = dspy.InputField()
    kind: str = dspy.InputField(desc="Kind of query.")
    query: str = dspy.OutputField(desc=f"One search query. {SELF_CONTAINED} {NAMED}")


# CRAG's second search (Yan et al. 2024, arXiv:2401.15884): keywords, for a search engine.
class KeywordQuery(OfQuestion):
    """Write keywords that find an answer to the question."""

    query: str = dspy.OutputField(
        desc="Keywords, not a sentence: the important names and the requested information."
    )


# From the memory of a whole corpus (MemoRAG: Qian et al. 2024, arXiv:2409.05591).
class RecallClues(dspy.Signature):
    """Recall clues for the question from the memory, worded like a text that contains them."""

    memory: list[str] = dspy.InputField(desc="Summaries of the texts that can be searched.")
    question: str = dspy.InputField()
    clues: list[str] = dspy.OutputField(desc="One sentence each. Leave it empty if none.")


class SurrogateQuestions(dspy.Signature):
    """Write simpler questions whose answers together answer the question."""

    memory: list[str] = dspy.InputField(desc="Summaries of the texts. It may be empty.")
    question: str = dspy.InputField()
    questions: list[str] = dspy.OutputField(desc="Self-contained questions for one fact each.")


# The two levels of LightRAG (Guo et al. 2024, arXiv:2410.05779).
class ExtractKeywords(OfQuestion):
    """Name the themes and the subjects of the question."""

    high_level: list[str] = dspy.OutputField(desc="Themes and kinds of relation.")
    low_level: list[str] = dspy.OutputField(desc="Names of people, places, works and things.")


# Searched instead of the question (HyDE: Gao et al. 2022, arXiv:2212.10496).
class WritePassage(OfQuestion):
    """Write a passage that answers the question."""

    passage: str = dspy.OutputField(desc="About 100 words, in the style of a text on the subject.")
