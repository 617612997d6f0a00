"""What a run, a verdict or a scoring is expected to spend, with a range, before it spends anything.

Calls and prompts of a program come from a rehearsal over some of the run's own questions; the range
is that of the kinds of replies tried. Where an embeddings or reranking server would have to be
asked, BM25 over the same passages stands in for the search. Requests that a server fails are extra.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspy.lm15 import Message, Request, Response, TextPart, Usage

from ragbench.errors import RunError
from ragbench.experiments.budget import ESTIMATE, Estimate
from ragbench.experiments.compile import CompileConfig, estimate, plan
from ragbench.experiments.config import RunConfig
from ragbench.experiments.evaluate import ready
from ragbench.experiments.passes import Asking
from ragbench.experiments.records import read_records
from ragbench.experiments.rehearsal import Rehearsed, rehearse
from ragbench.experiments.rundir import CONFIG, RunDir, write_json
from ragbench.experiments.score import ScoreRequest, score_run
from ragbench.experiments.setup import Bench, asks_servers
from ragbench.experiments.verdict import folder_of
from ragbench.lms.adapters import LenientJSON
from ragbench.lms.engine import UNBOUNDED_REPLY, Capabilities, MeteredEngine, prompt_tokens
from ragbench.lms.limits import Limits, spending
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import priced
from ragbench.optimizers.base import Range
from ragbench.programs.around import Around
from ragbench.programs.base import RAGProgram
from ragbench.programs.trace import estimate_tokens
from ragbench.retrievers.base import Retriever
from ragbench.retrievers.factory import make_retriever

#: Questions that are rehearsed.
SAMPLE = 6
#: Real tokens for each that was estimated, at the least and at the most, for English text; the
#: rest is for the questions that were not rehearsed.
MARGIN = (0.7, 1.4)
_TWICE = "the upper ends have every reply asked for twice, as an unreadable one is"


def estimate_run(bench: Bench, *, afresh: bool = False) -> Estimate:
    """What answering the questions of `bench` takes that have no record yet; `afresh`: of all.

    Raises:
        RunError: the program cannot be rehearsed.
    """
    finished = set() if afresh else read_records(bench.config.folder()).finished
    todo = [example for example in bench.examples if example.qid not in finished]
    title = f"{bench.title}: {len(todo)} questions"
    if len(todo) < len(bench.examples):
        title += f" ({len(bench.examples) - len(todo)} finished before)"
    if not todo:
        return Estimate(title, Range(), Range(), (0.0, 0.0))
    found = _rehearsed(bench, todo)
    if found is None:
        raise RunError(
            f"{bench.program.name} cannot be rehearsed; ask a few questions with --limit instead"
        )
    n, retry = len(todo), 1 if isinstance(bench.adapter, LenientJSON) else 2
    calls = Range(n * found.calls[0], retry * n * found.calls[1])
    low = found.prompt_tokens[0] + found.reply_tokens[0]
    high = found.prompt_tokens[1] + found.reply_tokens[1]
    tokens = Range(int(MARGIN[0] * n * low), int(MARGIN[1] * retry * n * high))
    cost = None
    if found.cost is not None:
        cost = (MARGIN[0] * n * found.cost[0], MARGIN[1] * retry * n * found.cost[1])
    return Estimate(title, calls, tokens, cost, tuple(_notes(bench, retry)), questions=n)


def _rehearsed(bench: Bench, todo: Sequence[Any]) -> Rehearsed | None:
    step = max(1, len(todo) // SAMPLE)
    program = bench.program
    if asks_servers(bench.retriever):
        program = _over(
            program, make_retriever("bm25", bench.dataset.corpus, setting=bench.dataset.setting)
        )
    with bench.active():
        return rehearse(program, todo[::step][:SAMPLE], bench.adapter, bench.lm)


def _over(program: RAGProgram, retriever: Retriever) -> RAGProgram:
    """`program`, with what it is wrapped in, searching by another retriever."""
    other = copy.copy(program)
    other.retriever = retriever
    if isinstance(other, Around):
        other.inner = _over(other.inner, retriever)
    return other


def _notes(bench: Bench, retry: int) -> list[str]:
    lines = []
    if not isinstance(bench.program, Around):
        most = bench.program.knobs.max_calls
        lines.append(f"never more than {most} calls a question (knob max_calls)")
    if retry > 1:
        lines.append(_TWICE)
    if asks_servers(bench.retriever):
        tokens = sum(estimate_tokens(str(passage)) for passage in bench.dataset.corpus)
        lines.append(
            f"searches also ask a server, at most {tokens:,} tokens for the index, which are extra"
        )
    return lines


def keep_estimate(bench: Bench, estimate: Estimate) -> None:
    """Keep the estimate in the run's folder, whose table compares; only of a run not begun.

    Raises:
        RunError: the folder is in use or cannot be written.
    """
    folder = RunDir(bench.config.folder())
    if not (folder.path / CONFIG).exists():
        with folder.locked():
            write_json(folder.path / ESTIMATE, estimate.to_dict())


def estimate_verdict(config: RunConfig, how: CompileConfig, *, seeds: int) -> list[str]:
    """What the arms of a verdict take and what its compiles take, in lines for people.

    Raises:
        RagbenchError: something the user can mend.
    """
    made = plan(config, how)
    folder = folder_of(config, how)
    zero_shot = config.model_copy(update={"out": folder / "zero-shot"})
    form = config.model_copy(update={"out": folder / "form", "form": True})
    bench = ready(zero_shot)
    lines = ["arm zero-shot", *estimate_run(bench).lines()]
    lines += ["arm form", *estimate_run(ready(form, like=bench)).lines()]
    lines += [f"compile, {seeds} times", *estimate(made)]
    return [*lines, f"arm compiled, {seeds} times: as zero-shot, and its demonstrations"]


def estimate_scoring(folder: Path, request: ScoreRequest) -> Estimate:
    """What the judge and the attributor of `request` would take on the run in `folder`.

    Every question is put together as it would be sent, over a copy of the run, and answered by a
    made-up reply; what is in the run's journal is not asked again.

    Raises:
        RagbenchError: something the user can mend.
    """
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary) / "run"
        shutil.copytree(folder, scratch, ignore=shutil.ignore_patterns(".lock", "log.jsonl"))
        wires: list[_MadeUp] = []
        with spending(Limits()):
            score_run(scratch, _made_up(request, wires))
    calls = sum(len(wire.sizes) for wire in wires)
    low = sum(sum(wire.sizes) + len(wire.sizes) for wire in wires)
    high = sum(sum(wire.sizes) + wire.longest * len(wire.sizes) for wire in wires)
    costs = [cost for wire in wires if (cost := wire.cost()) is not None]
    cost = None
    if len(costs) == len(wires):
        cheap, dear = (sum(cost[i] for cost in costs) for i in (0, 1))
        cost = (MARGIN[0] * cheap, 2 * MARGIN[1] * dear)
    return Estimate(
        f"scoring {folder}: {calls} questions to models",
        Range(calls, 2 * calls),
        Range(int(MARGIN[0] * low), int(2 * MARGIN[1] * high)),
        cost,
        (_TWICE,),
    )


def _made_up(request: ScoreRequest, wires: list[_MadeUp]) -> ScoreRequest:
    def stand_in(asking: Asking) -> Asking:
        wires.append(_MadeUp(asking.lm))
        engine = MeteredEngine(
            wires[-1],
            asking.lm.model,
            pricing=asking.lm.pricing,
            capabilities=Capabilities(
                response_schema=True, params=Capabilities().params | {"response_format"}
            ),
        )
        settings = {name: asking.lm.kwargs.get(name) for name in ("temperature", "max_tokens")}
        return replace(asking, lm=RagbenchLM(engine, cache=False, **settings), on_reply=None)

    judge, attributor = request.judge, request.attributor
    return replace(
        request,
        judge=replace(judge, asking=stand_in(judge.asking)) if judge else None,
        attributor=stand_in(attributor) if attributor else None,
    )


class _MadeUp:
    """Answers every call by the first value that its JSON schema allows."""

    provider = "openai"

    def __init__(self, lm: RagbenchLM) -> None:
        self.lm = lm
        self.sizes: list[int] = []
        self.longest = int(lm.kwargs.get("max_tokens") or UNBOUNDED_REPLY)

    def prepare(self) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def complete(self, request: Request) -> Response:
        """A made-up answer; the prompt's size is noted."""
        size = prompt_tokens(request)
        self.sizes.append(size)
        form = request.config.response_format or {}
        schema = form.get("schema") or (form.get("json_schema") or {}).get("schema") or {}
        text = json.dumps(_of_schema(schema, schema.get("$defs", {}))) if schema else "correct"
        message = Message.assistant([TextPart(text)])
        return Response(None, request.model, message, "stop", Usage(size, 1, size + 1))

    def cost(self) -> tuple[float, float] | None:
        """US dollars with the shortest and with the longest replies."""
        pairs = [
            (priced(self.lm.pricing, None, n, 1), priced(self.lm.pricing, None, n, self.longest))
            for n in self.sizes
        ]
        known = [(low, high) for low, high in pairs if low is not None and high is not None]
        if len(known) < len(pairs):
            return None
        return sum(low for low, _ in known), sum(high for _, high in known)


def _of_schema(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        return _of_schema(schema["anyOf"][0], definitions)
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        return {name: _of_schema(field, definitions) for name, field in fields.items()}
    if kind == "array":
        return [_of_schema(schema.get("items", {}), definitions)]
    return {"integer": 1, "number": 0.5, "boolean": True}.get(str(kind), "made up")
