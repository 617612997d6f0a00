"""How the final answer is asked for, one wording a style; and the roles of signatures.

A signature describes its final answer by `BRIEF`, or by `SPAN` where it may stay blank; a call
puts the wording of the knob `answer_style` in the place of `SPAN`. A best guess is asked of the
last answer alone: an answer on the way stays empty, by which a missing fact shows.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import dspy

AnswerStyle = Literal["brief", "free", "long"]

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
BRIEF = f"{SPAN}; {GUESS}"
#: An answer on the way to the last one.
STATED = "the complete name, date, number or phrase alone; empty if not stated"


@lru_cache(maxsize=256)  # adapters keep what they make of a signature
def styled(signature: type[dspy.Signature], style: AnswerStyle) -> type[dspy.Signature]:
    """`signature` with the final answer described as `style` has it."""
    for name, field in signature.output_fields.items():
        described = str(field.json_schema_extra.get("desc", ""))
        if (said := _restyled(described, style)) != described:
            signature = signature.with_updated_fields(name, desc=said)
    if (said := _restyled(signature.instructions, style)) != signature.instructions:
        signature = signature.with_instructions(said)  # as those of a REPL have it
    return signature


def _restyled(text: str, style: AnswerStyle) -> str:
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
