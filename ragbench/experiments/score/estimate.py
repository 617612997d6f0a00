"""What scoring a run by models is expected to spend, before it spends anything."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspy.lm15 import Message, Request, Response, TextPart, Usage

from ragbench.context import current
from ragbench.experiments.estimates import ASKED_TWICE, MARGIN, Estimate
from ragbench.experiments.score.annotate import Asking
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.lms import RagbenchLM, priced
from ragbench.lms.calls import (
    UNBOUNDED_REPLY,
    Capabilities,
    Limits,
    MeteredEngine,
    prompt_tokens,
    spending,
)
from ragbench.ranges import Range


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
        clients: list[_MadeUp] = []
        with spending(Limits()):
            score_run(scratch, _made_up(request, clients))
    calls = sum(len(client.sizes) for client in clients)
    low = sum(sum(client.sizes) + len(client.sizes) for client in clients)
    high = sum(sum(client.sizes) + client.longest * len(client.sizes) for client in clients)
    costs = [cost for client in clients if (cost := client.cost()) is not None]
    cost = None
    if len(costs) == len(clients):
        cheap, dear = (sum(cost[i] for cost in costs) for i in (0, 1))
        cost = (MARGIN[0] * cheap, 2 * MARGIN[1] * dear)
    return Estimate(
        title=f"scoring {folder}: {calls} questions to models",
        calls=Range(calls, 2 * calls),
        tokens=Range(int(MARGIN[0] * low), int(2 * MARGIN[1] * high)),
        cost=cost,
        notes=(ASKED_TWICE,),
    )


def _made_up(request: ScoreRequest, clients: list[_MadeUp]) -> ScoreRequest:
    def stand_in(asking: Asking) -> Asking:
        clients.append(_MadeUp(asking.lm))
        engine = MeteredEngine(
            clients[-1],
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

    def rate_limits(self) -> dict[str, list[str]]:
        """None."""
        return {}

    def complete(self, request: Request) -> Response:
        """A made-up answer; the size of a prompt is noted at its first try."""
        size = prompt_tokens(request)
        if not current().fallback:
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
