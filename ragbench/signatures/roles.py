"""The role of a signature: what an LM can be chosen for."""

import dspy

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
