"""How the final answer is asked for: one wording a style, shared by every program.

A signature describes its final answer by `BRIEF`, or by `SPAN` where it may stay blank; a program
puts the wording of its knob `answer_style` in the place of `SPAN`.
"""

from collections.abc import Mapping
from typing import Literal

import dspy

AnswerStyle = Literal["brief", "free", "long"]

# Small models copy a bare "yes or no" from a description, so it names its questions.
SPAN = (
    "the shortest complete name, date, number or phrase (full name, most exact date, a country "
    "for a country, an adjective for a nationality, yes or no if the question asks whether)"
)
ANSWER_STYLES: Mapping[AnswerStyle, str] = {
    "brief": SPAN,
    "free": "one or two sentences",
    "long": "a full answer with every fact that bears on it, in as many paragraphs as it needs",
}
GUESS = "a best guess rather than a refusal"
BRIEF = f"{SPAN}; {GUESS}"


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
    found = next((wording for wording in ANSWER_STYLES.values() if wording in text), None)
    return text.replace(found, ANSWER_STYLES[style]) if found else text
