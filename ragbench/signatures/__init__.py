"""Typed signatures, filed by role; their docstrings are the instructions that programs start from.

Every word of a signature reaches the LM and seeds every optimizer, so sources and remarks stand in
comments and module docstrings. Passages are shown as "[n] title | text" with n from 1, so citations
and kept items are integers. The module a signature stands in decides its role, by which the ledger
groups calls and `--lm-for` gives each role its own LM.
"""

import dspy

#: module -> role
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
