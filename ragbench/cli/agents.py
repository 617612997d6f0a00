"""`ragbench mcp`: what a coding agent may ask of ragbench, as tools of the Model Context Protocol.

The agent chooses programs, questions and settings. The person chooses at the start what costs or
opens something: models and their address, the limit of all spending, and the folder, outside of
which nothing is read or written. Code of one's own is never loaded.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from ragbench.cli import options as shared
from ragbench.cli.command import command, option
from ragbench.errors import ConfigError, RagbenchError, needs_extra
from ragbench.experiments.watch import SILENT
from ragbench.lms.calls.limits import Spent
from ragbench.user_code import is_external

if TYPE_CHECKING:
    from ragbench.experiments.config import RunConfig

INSTRUCTIONS = (
    "ragbench tells which way of doing multi-hop retrieval-augmented generation is worth it for "
    "the questions, model and budget at hand. Estimate before you run; compare runs over the same "
    "questions; say a difference only where the comparison shows one. Paths are of the folder that "
    "the server was started in."
)
Kind = Literal["programs", "retrievers", "optimizers", "metrics", "datasets", "runs"]


@command(
    "mcp",
    examples=[
        "ragbench mcp --lm openai/gpt-4o-mini --max-cost 2",
        "claude mcp add ragbench -- ragbench mcp --lm openai/gpt-4o-mini --max-cost 2",
    ],
)
@option("--lm", "--model", "lms", multiple=True, default=("local",), metavar="LM", group="Model",
        help="LM that the tools may ask; repeat for more.")  # fmt: skip
@option("--api-base", "--model-base-url", "api_base", metavar="URL", group="Model",
        help="Address of an OpenAI-compatible server.")  # fmt: skip
@shared.limit_options
@shared.log_option
def mcp_command(lms: tuple[str, ...], api_base: str | None, **options: Any) -> None:
    """Serve tools to a coding agent on standard input and output, until it closes them.

    The tools list, estimate, run, compare, advise, and write questions, in this folder and below.
    The limits are of all that the agent spends, together; without one it can spend nothing.
    """
    from ragbench.lms.calls import spending
    from ragbench.lms.reply_cache import configure_cache
    from ragbench.logs import quiet_libraries

    with needs_extra("ragbench mcp"):
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    limits = shared.take_limits(options)
    server = MCPServer("ragbench", instructions=INSTRUCTIONS, log_level="WARNING")
    logging.getLogger().handlers.clear()  # the library's, which shows every event
    quiet_libraries()
    configure_cache()
    with spending(limits) as spent:
        desk = Desk(lms, api_base, spent)
        for name, tool in desk.tools().items():
            server.add_tool(_with_errors(tool, ToolError), name=name)
        server.run("stdio")


def _with_errors(tool: Callable[..., str], error_class: type[Exception]) -> Callable[..., str]:
    """Returns `tool`, whose errors that can be mended are said to the agent, a line each."""
    from ragbench.cli.main import one_line

    @functools.wraps(tool)
    def call(*args: Any, **arguments: Any) -> str:
        try:
            return tool(*args, **arguments)
        except (RagbenchError, OSError) as error:  # anything else is a bug, and stays here
            raise error_class(one_line(str(error))) from None

    return call


class RunRequest(BaseModel):
    """What a run is of."""

    program: str = Field(description="architecture, from list of programs")
    lm: str = Field(default="", description="one that the person allowed; blank: the first")
    dataset: str = Field(
        default="",
        description="from list of datasets; blank: that of data_file, or embedded",
    )
    data_file: str = Field(default="", description="questions and answers: JSON, JSON lines, CSV")
    docs: str = Field(default="", description="documents or passages to search, beside data_file")
    limit: int = Field(default=20, ge=1, description="number of questions")
    retriever: str = Field(default="bm25", description="from list of retrievers")
    knobs: dict[str, Any] = Field(default={}, description='of the program, such as {"k": 3}')
    compiled: str = Field(default="", description='folder of a compiled program, or "shipped"')


Runs = Annotated[list[str], Field(description="folders of runs, from list of runs", min_length=1)]
Worth = Annotated[float, Field(description="least gain that pays for a dearer program", gt=0, lt=1)]
Minutes = Annotated[float, Field(description="after so many no further call is begun", gt=0)]


class Desk:
    """The tools; what their docstrings say is what the agent reads."""

    def __init__(self, lms: tuple[str, ...], api_base: str | None, spent: Spent) -> None:
        self._lms = lms
        self._api_base = api_base
        self._spent = spent
        self._root = Path.cwd().resolve()
        self._one_at_a_time = threading.Lock()

    def tools(self) -> dict[str, Callable[..., str]]:
        return {
            "list": self.names,
            "estimate": self.estimate,
            "run": self.run,
            "table": self.table,
            "compare": self.compare,
            "advice": self.advice,
            "questions": self.questions,
        }

    def names(self, kind: Kind) -> str:
        """List what there is of a kind, a line each: its name and what it is."""
        from ragbench.cli.listing import stored_list
        from ragbench.experiments.report.run_list import run_list_report

        if kind == "runs":
            return _text(run_list_report(self._inside("runs")))
        return "\n".join(f"{name}  {about}" for name, about in stored_list(kind[:-1]))

    def estimate(self, request: RunRequest) -> str:
        """Estimate calls, tokens and cost of a run, with a range. Spends nothing."""
        from ragbench.experiments.estimates import estimate_run
        from ragbench.experiments.runs.context import ready

        return "\n".join(estimate_run(ready(self._config(request))).lines())

    def run(self, request: RunRequest, minutes: Minutes = 5) -> str:
        """Run a program over questions within the person's limit: its folder, and its table.

        It ends after some minutes; the same call continues it, and asks nothing twice.
        """
        from ragbench.experiments.report.tables import runs_report
        from ragbench.experiments.runs.runner import evaluate
        from ragbench.lms.calls import Limits, spending

        config = self._config(request)
        self._inside(config.folder())
        self._check_room()
        with self._one_at_a_time, spending(Limits(minutes=minutes)):
            run = evaluate(config)
        lines = [f"folder: {run.folder}"]
        if run.stopped_by:
            lines.append(f"stopped by {run.stopped_by}; the same call continues it")
        return "\n".join([*lines, self._bill(), _text(runs_report([run]))])

    def table(self, runs: Runs) -> str:
        """Give the table of finished runs: scores with intervals, calls, tokens, cost."""
        from ragbench.experiments.report.tables import runs_report

        arms = self._arms(runs)
        return _text(runs_report([run for arm in arms for run in arm]))

    def compare(self, runs: Runs, metrics: list[str] | None = None) -> str:
        """Compare runs with the first, question by question: differences, intervals, a verdict."""
        from ragbench.experiments.compare.against import compare_all
        from ragbench.experiments.report.comparison import comparison_report
        from ragbench.experiments.runs.summary import HEADLINE

        _check_names(*(metrics or ()))
        return _text(comparison_report(compare_all(self._arms(runs), metrics=metrics or HEADLINE)))

    def advice(self, runs: Runs, metric: str = "f1", worth: Worth = 0.05) -> str:
        """Say which program to use: the cheapest that is shown as good as the best mean."""
        from ragbench.experiments.recommend import advise
        from ragbench.experiments.report.choice import advice_report
        from ragbench.experiments.report.repeats import label_arms

        _check_names(metric)
        arms = self._arms(runs)
        advice = advise(arms, metric, labels=label_arms(arms), worth=worth)
        return _text(advice_report(advice))

    def questions(
        self, docs: str, output: str, n: int = 20, lm: str = "", minutes: Minutes = 5
    ) -> str:
        """Write n questions of 2 and 3 hops from the folder docs to the file output (JSON lines).

        Each is proven to need every hop, within the person's limit; the same call continues.
        """
        from ragbench.data.passages import read_corpus
        from ragbench.experiments.questions import Request, write_questions
        from ragbench.experiments.runs.context import lm_of
        from ragbench.lms.calls import Limits, spending

        config = self._config(RunRequest(program="direct", lm=lm, dataset="jsonl", docs=docs))
        order = Request(n, (2, 2, 3), config.seed, config.workers, config.adapter)
        path = self._inside(output)
        if path.suffix != ".jsonl":
            raise ConfigError(f"{output} is no file of JSON lines; name one that ends in .jsonl")
        self._check_room()
        with self._one_at_a_time, spending(Limits(minutes=minutes)):
            writer = lm_of(config, config.lm, main=True)
            writer.check()
            passages = list(read_corpus(config.data_settings()))
            written = write_questions(passages, writer, order, path, SILENT)
        return "\n".join([*written.lines(), self._bill()])

    def _config(self, request: RunRequest) -> RunConfig:
        from ragbench.experiments.config import SHIPPED, ask_whole, compiled_folder, make_config
        from ragbench.experiments.config.provenance import check_stored

        _check_names(request.program, request.retriever, request.dataset)
        check_stored({"program": request.program, "set": request.knobs}, "the call", {})
        lm = request.lm or self._lms[0]
        if lm not in self._lms:
            raise ConfigError(f"lm={lm!r} was not allowed; choose from {', '.join(self._lms)}")
        fields: dict[str, Any] = {"program": request.program, "lm": lm, "set": request.knobs}
        fields |= {"limit": request.limit, "retriever": request.retriever}
        if self._api_base:
            fields["api_base"] = self._api_base
        if request.dataset:
            fields["dataset"] = request.dataset
        if request.data_file:
            fields["data_file"] = self._inside(request.data_file)
        if request.docs:
            fields |= {"corpus_file": self._inside(request.docs), "setting": "pooled"}
        if request.compiled == SHIPPED:
            fields["compiled"] = compiled_folder(Path(SHIPPED), request.program)
        elif request.compiled:
            fields["compiled"] = self._inside(request.compiled)
        return ask_whole(make_config(fields), fields)

    def _inside(self, path: str | Path) -> Path:
        """Returns the path as it is under the folder that the server was started in."""
        whole = (self._root / path).resolve()
        if not whole.is_relative_to(self._root):
            raise ConfigError(f"{path} is outside of {self._root}, where the server was started")
        return whole.relative_to(self._root)

    def _arms(self, runs: list[str]) -> Any:
        from ragbench.experiments.runs.summary import reopen_arm

        return [reopen_arm(self._inside(run)) for run in runs]

    def _check_room(self) -> None:
        from ragbench.lms.calls import limit_reached

        if not self._spent.limits:
            raise ConfigError(
                "the person gave no limit, so that nothing may be spent; start the server with "
                "--max-cost USD, --max-calls N or --max-total-tokens N"
            )
        if limit_reached():
            raise ConfigError(f"{self._spent.refusal()}; only the person can give a larger limit")

    def _bill(self) -> str:
        limits = self._spent.limits
        options = [limits.option(n) for n, most in vars(limits).items() if most is not None]
        return f"spent of {' '.join(options)}: {self._spent.words()}"


def _check_names(*names: str) -> None:
    for name in names:
        if is_external(name):
            raise ConfigError(f"{name} is external code, which no agent may load; take another")


def _text(report: Any) -> str:
    """Returns a report as lines and Markdown tables."""
    from ragbench.experiments.report.table import Table, written

    parts = []
    for item in report:
        if not isinstance(item, Table):
            parts.append(item)
        elif not item.for_machines:
            parts += [*filter(None, [item.title]), written(item, "table"), *item.notes]
    return "\n".join(parts)
