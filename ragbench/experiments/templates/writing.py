"""`ragbench export --to messages`: each prompt of a program as messages to be filled in.

A template is what an adapter makes of a predictor whose every input is its own name in double
braces: instructions and demonstrations are words by then, and the last message alone has places
for inputs. What has no template is said, with the reason.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import dspy

from ragbench.dspy_private import private
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.runs.loading import load_program
from ragbench.experiments.store import write_whole
from ragbench.lms.adapters import ADAPTERS, LenientJSON
from ragbench.lms.replies import MARKS
from ragbench.passages import Corpus
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.tools import FINISH, finishing
from ragbench.programs.external import ModuleProgram
from ragbench.programs.wrappers import Around
from ragbench.retrievers.factory import make_retriever
from ragbench.signatures import styled

FORMAT = 1
#: The files of an export.
MESSAGES = "messages.json"
RENDERER = "render.py"


def export_messages(
    folder: Path, output: Path | None, program: str | None = None, compiled: Path | None = None
) -> str:
    """Write the prompts of the program in `folder` to the folder `output`, and say so in a line.

    Raises:
        ConfigError: `output` is missing or a file, the program has no template, or `load_program`
            needs `program` or `compiled`.
        RunError: `folder` holds no program, or the files cannot be written.
    """
    if output is None or output.is_file():
        raise ConfigError("--to messages writes a folder; name a new one with -o FOLDER")
    retriever = make_retriever("bm25", Corpus(()), setting="pooled")
    document = templates_of(load_program(folder, retriever, program=program, compiled=compiled))
    renderer = files("ragbench.experiments.templates").joinpath(RENDERER).read_bytes()
    text = json.dumps(document, indent=1, ensure_ascii=False)
    try:
        output.mkdir(parents=True, exist_ok=True)
        write_whole(output / MESSAGES, text.encode("utf-8", "replace"))
        write_whole(output / RENDERER, renderer)
    except OSError as error:
        raise RunError(f"cannot write {output}: {error.strerror or error}") from None
    line = f"{output}: {', '.join(document['templates']['chat'])} of {document['program']}"
    for name, reason in document["without_template"].items():
        line += f"; {name} has no template: {reason}"
    return line


def templates_of(program: RAGProgram) -> dict[str, Any]:
    """Returns the document of `messages.json`: templates by adapter and name of the predictor.

    Raises:
        ConfigError: no prompt of the program has a template.
    """
    without: dict[str, str] = {}
    while isinstance(program, Around):
        if program.after_answers:
            without[type(program).__name__] = program.after_answers
        program = program.inner
    if not program.fixed_demos:
        raise ConfigError(
            f"this {program.name} chooses its demonstrations at each question, or asks several "
            "programs, so that its prompts have no template; take it home by rb.load_program"
        )
    adapters: dict[str, dspy.Adapter] = {name: kind() for name, kind in ADAPTERS.items()}
    replaced = [[mark.pattern, text] for mark, text in MARKS]
    marks = dict.fromkeys(adapters, replaced)
    if isinstance(program, ModuleProgram):  # it runs by DSPy's own, which leaves marks as they are
        adapters["chat"] = dspy.ChatAdapter()
        marks["chat"] = []
    templates: dict[str, dict[str, Any]] = {name: {} for name in adapters}
    for path, predictor in program.named_predictors():
        for name, signature in _signatures(path.removesuffix(".predict"), predictor).items():
            knobs = program.knobs
            signature = styled(signature, knobs.answer_style, knobs.on_missing)  # type: ignore[arg-type]
            kind = _no_text(signature)
            if kind:
                without[name] = f"an input of the type {kind} is no text"
                continue
            for adapter_name, adapter in adapters.items():
                templates[adapter_name][name] = _template(adapter, predictor, signature)
            if name.endswith(".last"):
                without[f"{name.removesuffix('.last')} by native tools"] = (
                    "turns by a provider's own tool calls are a conversation"
                )
    for call in program.other_calls():
        without[f"{call.predictor} ({call.signature})"] = "it is asked by no predictor"
    if not templates["chat"]:
        raise ConfigError(f"{program.name} has no prompt of its own that is a template")
    return {
        "format": FORMAT,
        "program": program.name,
        "knobs": program.knobs.model_dump(mode="json"),
        "versions": {name: version(name) for name in ("ragbench", "dspy")},
        "marks": marks,
        "templates": templates,
        "without_template": without,
    }


def _signatures(name: str, predictor: dspy.Predict) -> dict[str, type[dspy.Signature]]:
    """Returns the signature of each prompt of a predictor: a loop of tools ends by another one."""
    tool = predictor.signature.output_fields.get("tool")
    if tool is None or FINISH not in get_args(tool.annotation):
        return {name: predictor.signature}
    return {name: predictor.signature, f"{name}.last": finishing(predictor.signature)}


def _no_text(signature: type[dspy.Signature]) -> str:
    """Returns the type of an input that DSPy does not write as text; blank for none."""
    for field in signature.input_fields.values():
        for kind in _types_in(field.annotation):
            if isinstance(kind, type) and issubclass(kind, dspy.Type | dspy.History):
                return kind.__name__
    return ""


def _types_in(annotation: Any) -> list[Any]:
    kinds = [annotation]
    for inner in get_args(annotation):
        kinds += _types_in(inner)
    return kinds


def _template(
    adapter: dspy.Adapter, predictor: dspy.Predict, signature: type[dspy.Signature]
) -> dict[str, Any]:
    places = {}
    kinds = {}
    for name, field in signature.input_fields.items():
        places[name] = f"{{{{{name}}}}}"
        if field.annotation is str:
            kinds[name] = "text"
        else:
            kinds[name] = "json"
    request = dict(predictor.config)
    if isinstance(adapter, LenientJSON):
        request["response_format"] = _response_format(adapter, signature)
    messages = adapter.format(signature, predictor.demos, places)
    return {
        "inputs": kinds,
        "outputs": list(signature.output_fields),
        "messages": messages,
        "request": request,
    }


def _response_format(adapter: LenientJSON, signature: type[dspy.Signature]) -> Any:
    """Returns what is sent to a server that keeps to a schema."""
    able = SimpleNamespace(supported_params=("response_format",), supports_response_schema=True)
    settings: dict[str, Any] = {}
    adapter._prepare_response_format(able, settings, signature)
    response_format = settings["response_format"]
    if isinstance(response_format, dict):
        return response_format
    strict = private("dspy.clients.legacy_requests._strict_json_schema", "export --to messages")
    schema = {
        "name": response_format.__name__,
        "schema": strict(response_format.model_json_schema()),
        "strict": True,
    }
    return {"type": "json_schema", "json_schema": schema}
