"""How a question goes through a program, as a Mermaid flow chart.

Boxes are the program's own predictors, read by name, with the fields that they take and give.
Arrows come from a rehearsal, in which every reply is made up (`ragbench.experiments.estimates`): a
solid one is gone whenever its box was reached, a dotted one sometimes.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import dspy

from ragbench.experiments.estimates import StandIn, rehearse
from ragbench.passages import Corpus, Passage
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.program import calls_of
from ragbench.retrievers import make_retriever

_QUESTION, _SEARCH, _ANSWER = "question", "search", "answer"
_SHAPES = {_QUESTION: "([{}])", _SEARCH: "[({})]", _ANSWER: "([{}])"}
_QUESTIONS = ("Where was the author of Salt Road born?", "Is Salt Road older than Stone Road?")
_TEXTS = {
    "Salt Road": "Salt Road is a novel by Orla Venn about a caravan.",
    "Orla Venn": "Orla Venn is a writer. She was born in Harwick.",
    "Harwick": "Harwick is a town in the county of Dunmoor.",
    "Stone Road": "Stone Road is a novel by Tam Quill.",
}


def diagram(kind: type[RAGProgram], variant: str) -> str:
    """The flow chart of a program of `kind`, as Mermaid text; asks no model."""
    passages = [Passage(title, title, text) for title, text in _TEXTS.items()]
    retriever = make_retriever("bm25", Corpus(passages), setting="pooled")
    program = kind(retriever, variant=variant)
    paths: list[list[str]] = []
    fields: dict[str, str] = {}
    predictors: dict[str, list[str]] = {}
    own = {}  # a signature may be made anew for a question, of the same fields
    for call in calls_of(program):
        predictors.setdefault(call.signature, []).append(call.predictor)
        for name, predictor in program.named_predictors():
            if f"{name}.".startswith(f"{call.predictor}."):
                signature = predictor.signature
                own[tuple(signature.output_fields)] = call.signature
                own[tuple(signature.fields)] = call.signature

    class Recorder(StandIn):
        """Notes which signature each call is of."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            paths.append([_QUESTION])

        def __call__(
            self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any
        ) -> list[dict[str, Any]]:
            name = signature.__name__
            for fields_of_call in (tuple(signature.output_fields), tuple(signature.fields)):
                name = own.get(fields_of_call, name)
            paths[-1].append(name)
            takes = ", ".join(signature.input_fields)
            gives = ", ".join(signature.output_fields)
            fields.setdefault(name, f"{takes} → {gives}")
            return super().__call__(lm, lm_kwargs, signature, demos, inputs)

    for name in ("search", "search_many"):
        _note_searches(retriever, name, paths)
    examples = [dspy.Example(question=text).with_inputs("question") for text in _QUESTIONS]
    rehearse(program, examples, dspy.ChatAdapter(), stand_in=Recorder)
    return _chart([[*path, _ANSWER] for path in paths], predictors, fields)


def _note_searches(retriever: Any, name: str, paths: list[list[str]]) -> None:
    search = getattr(retriever, name)

    def noted(*args: Any, **options: Any) -> Any:
        paths[-1].append(_SEARCH)
        return search(*args, **options)

    setattr(retriever, name, noted)


def _chart(paths: list[list[str]], predictors: dict[str, list[str]], fields: dict[str, str]) -> str:
    """Mermaid's text: a box for each name in `paths` or `predictors`, an arrow for each step."""
    arrows: Counter[tuple[str, str]] = Counter()
    reached: Counter[str] = Counter()
    boxes = dict.fromkeys([_QUESTION])
    for path in paths:
        boxes |= dict.fromkeys(path)
        reached.update(set(path))
        arrows.update(set(pairwise(path)))
    boxes |= dict.fromkeys(predictors)
    number = {name: at for at, name in enumerate(boxes)}
    lines = ["flowchart TD"]
    for name, at in number.items():
        words = [", ".join(predictors.get(name, [])) or name, fields.get(name, "")]
        text = "<br/>".join(filter(None, words)).replace('"', "'")
        lines.append(f"  n{at}" + _SHAPES.get(name, "[{}]").format(f'"{text}"'))
    for (a, b), n in sorted(arrows.items(), key=lambda row: (number[row[0][0]], number[row[0][1]])):
        arrow = "-->" if n == reached[a] else "-.->"
        lines.append(f"  n{number[a]} {arrow} n{number[b]}")
    return "\n".join(lines)
