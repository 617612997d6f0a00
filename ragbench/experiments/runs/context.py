"""Run contexts: the objects that a config runs with, their card, and the spending limits."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.data import Dataset, load_dataset
from ragbench.errors import ConfigError, DataError, RunError, StoppedError, UnknownNameError
from ragbench.experiments.artifacts import assert_held_out, versions, warn_of_shared_passages
from ragbench.experiments.config import RunConfig, compiled_digest
from ragbench.experiments.runs.compiled import warn_of_other_sources
from ragbench.experiments.runs.loading import finish
from ragbench.experiments.store import (
    CALLS,
    DATABASE,
    DataId,
    RunCard,
    billed_calls,
    check_same,
    is_run,
    read_card,
)
from ragbench.external import is_kept
from ragbench.ledger import OpenLedger
from ragbench.lms.calls import (
    GIVE_PRICE,
    Limits,
    QuestionTime,
    RequestUsage,
    ServerCalls,
    check_price,
    limit_reached,
    spending,
    wait_for_calls,
)
from ragbench.lms.factory import keep_lm, make_lm
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.reply_cache import configure_cache
from ragbench.lms.unmetered import noticing_unmetered
from ragbench.logs import quiet_libraries
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.indexed import index_facts
from ragbench.programs.core.program import calls_of
from ragbench.programs.core.question_state import Questions
from ragbench.programs.external import adapter_of, meter_lms
from ragbench.record import Call, billed
from ragbench.retrievers import PerQuestion, Retriever, make_retriever
from ragbench.user_code import wrap_user_errors


@dataclass(frozen=True)
class RunContext:
    """Objects that a run needs. `examples` are the chosen questions, in order."""

    config: RunConfig
    dataset: Dataset
    examples: Sequence[dspy.Example]
    retriever: Retriever
    program: RAGProgram
    lm: RagbenchLM
    role_lms: dict[str, RagbenchLM]
    adapter: dspy.Adapter
    compiled: str = ""  # hash of the compiled state in the program, if any

    @property
    def title(self) -> str:
        questions = f"{self.dataset.name} {self.config.split}"
        return f"{self.program.label} on {questions}, {self.lm.metered.identity}"

    def negotiated(self) -> dict[str, dict[str, str]]:
        """Return the request parameters that the LM servers refused, with replacements."""
        learned: dict[str, dict[str, str]] = {}
        for lm in (self.lm, *self.role_lms.values()):
            if lm.metered.terms.learned:
                learned[lm.metered.identity] = dict(lm.metered.terms.learned)
        return learned

    def check_lms(self) -> None:
        """Check that every LM can be called now. Starts the local server if one is used.

        Raises:
            RagbenchError: A key is missing, a server is unreachable, or a model is not available or
            not
                usable by the program.
        """
        self.lm.check()
        for role, lm in self.role_lms.items():
            lm.check(f"the LM of role {role}")

    @contextmanager
    def active(self) -> Iterator[None]:
        """Activate the LM, its adapter and quiet defaults for the calls inside the block."""
        examples: dict[str, dspy.Example] = {}
        for split in self.dataset.splits.values():
            for example in split:
                examples[example.question] = example
        context = replace(current(), role_lms=self.role_lms)
        time = QuestionTime(self.config.question_timeout)
        context = context.plus(Questions(examples), time)
        settings = {"warn_on_type_mismatch": False, "max_errors": 10**9}
        settings |= {"lm": self.lm, "adapter": self.adapter, "num_threads": self.config.workers}
        with use(context, **settings):
            if may_bring_lms(self.config):
                with noticing_unmetered():
                    yield
            else:
                yield


def build(
    config: RunConfig, *, like: RunContext | None = None, no_questions: bool = False
) -> RunContext:
    """Build and check everything that a run needs, with cheap checks first.

    Args:
        config: The run.
        like: Earlier context. Its data and retriever are reused if `config` has the same ones.
        no_questions: True chooses no questions of the data set, for other questions.
    """
    quiet_libraries()
    program = PROGRAMS.get(config.program)
    program.resolve_knobs(config.set)
    same = None
    if like and like.config.data_settings() == config.data_settings():
        same = like
        dataset = like.dataset
    else:
        dataset = load_dataset(config.data_settings())
    examples = () if no_questions else dataset.select(config.split, config.limit)
    brought = ":" in f"{config.program}{config.retriever}" or config.retriever == "http"
    if not (len(dataset.corpus) or brought or config.program == "direct"):
        raise DataError(
            f"{dataset.name} has no passages, which {config.program} would search; give "
            "--corpus-file PATH (in Python corpus=), or take --program direct"
        )
    has_gold = not examples or any(example.get("gold_pids") for example in examples)
    if program.needs_gold and not has_gold:
        raise DataError(
            f"{config.program} reads the gold passages of each question, and no question of "
            f"{dataset.name} has any; give data that names them, or take another program"
        )
    if like is None:  # or its cache is in use
        configure_cache()
    lm = lm_of(config, config.lm, main=True)
    roles = {role: lm_of(config, spec) for role, spec in config.lm_for.items()}
    if same and same_retrieval(same.config, config):
        retriever = same.retriever
    else:
        retriever = make_retriever(
            config.retriever, dataset.corpus, setting=dataset.setting, **config.retriever_set
        )
    for model in _models(retriever):
        if not model.priced:  # the identity of a local model needs its file
            check_price(model.identity, priced=False)
    for service in _services(retriever):
        service.begin(patience=config.patience, timeout=config.timeout)
    with wrap_user_errors(program, f"program {config.program}"):
        built = program(retriever, **config.set)
    meter_lms(built, lambda own: _metered(config, own))
    index_roles = {row.role for row in calls_of(built)}
    for role in roles:
        if role not in index_roles:
            raise UnknownNameError(f"role of {built.name}", role, index_roles)
    return RunContext(
        config=config,
        dataset=dataset,
        examples=examples,
        retriever=retriever,
        program=built,
        lm=lm,
        role_lms=roles,
        adapter=adapter_of(built, config.adapter, lm),
    )


def same_retrieval(a: RunConfig, b: RunConfig) -> bool:
    """Return True if both configs search the same passages in the same way.

    Args:
        a: Config of a run.
        b: Config of another run.
    """
    return a.retriever == b.retriever and a.data_settings() == b.data_settings()


def asks_servers(retriever: Retriever) -> bool:
    """Return True if a search calls a server for embeddings, reranking or passages."""
    return any(_services(retriever))


def _services(retriever: Retriever) -> Iterator[ServerCalls]:
    return (model.service for model in _models(retriever) if model.service is not None)


def _models(retriever: Retriever) -> Iterator[Any]:
    for name in ("embedder", "reranker", "server"):
        model = getattr(retriever, name, None)
        if model is not None:
            yield model
    inner = retriever.parts
    if isinstance(retriever, PerQuestion):
        inner = (retriever.whole,)
    for component in inner:
        yield from _models(component)


def lm_of(config: RunConfig, spec: str, *, main: bool = False) -> RagbenchLM:
    """Return the LM of `spec` with the config's sampling, seed, cache and time limit.

    The fields `api_base`, `header`, `price`, `rpm` and `tpm` apply to the main LM only. `price_for`
    has the prices of other LMs.

    Args:
        config: The run.
        spec: Spec of the LM.
        main: True for the main LM.

    Raises:
        LMSetupError: The spec or a price is malformed, or the provider is unknown.
        ConfigError: There is a cost limit and no known price, or the main LM does not accept the
            temperature that is set.
    """
    settings = config
    if not main:
        price = config.price_for.get(spec)
        settings = config.but(api_base=None, header={}, price=price, rpm=None, tpm=None)
    seed = None if config.seed == "none" else config.seed
    lm = make_lm(spec, settings, seed=seed, repeat=config.repeat)
    sent = is_kept(spec) or lm.kwargs.get("temperature") is not None
    if main and config.temperature not in ("none", 0) and not sent:
        raise ConfigError(
            f"temperature={config.temperature} has no effect: {lm.model} does not accept it; "
            "omit it, or give none"
        )
    check_price(
        lm.model,
        priced=lm.pricing.known,
        cure=GIVE_PRICE if main else f"--price-for {spec}=in=0.15,out=0.60, ",
    )
    return lm


def may_bring_lms(config: RunConfig) -> bool:
    """Return True if code of a user runs, which may call an LM that it makes itself."""
    return ":" in f"{config.program}{config.retriever}{config.adapter}"


def _metered(config: RunConfig, lm: dspy.BaseLM) -> RagbenchLM:
    """Return a metered version of the LM `lm` of a module, with that LM's cache setting.

    Its price is that of `price_for` for its model, or for `MODEL@ADDRESS`.
    """
    server = lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
    spec = keep_lm(lm)
    prices = config.price_for
    price = prices.get(lm.model) or prices.get(f"{lm.model}@{server}")
    if price:
        prices = {**prices, spec: price}
    metered = lm_of(config.but(price_for=prices), spec)
    metered.cache = metered.cache and lm.cache
    return metered


def ready(config: RunConfig, *, like: RunContext | None = None) -> RunContext:
    """Build the run context with compiled state and controls applied. Calls no LM.

    Args:
        config: Config of the run.
        like: Context whose data and retriever are reused if they are the same.
    """
    run_context = build(config, like=like)
    program, sidecar = finish(
        run_context.program, compiled=config.compiled, form=config.form, votes=config.votes
    )
    if config.compiled is not None:
        if sidecar is None:
            digest = compiled_digest(config.compiled)
        else:
            digest = sidecar.program_sha256
            warn_of_other_sources(config.compiled, sidecar, config)
            assert_held_out(sidecar.data, run_context.examples, dataset=run_context.dataset.name)
            warn_of_shared_passages(sidecar.data, run_context.examples)
        run_context = replace(run_context, compiled=digest)
    return replace(run_context, program=program)


def make_card(run_context: RunContext) -> RunCard:
    """Return the card of a new run: all settings, versions and the identity of the data."""
    config = run_context.config
    dataset = run_context.dataset
    return RunCard(
        config=config.model_dump(mode="json"),
        identity=config.identity(),
        label=run_context.program.label,
        questions=len(run_context.examples),
        knobs=run_context.program.knobs.model_dump(mode="json"),
        changed_knobs=run_context.program.changed_knobs,
        retriever=run_context.retriever.card(),
        index=dict(index_facts(run_context.program)),
        model=run_context.lm.metered.identity,
        price=config.price,
        adapter=type(run_context.adapter).__name__,
        data=DataId(name=dataset.name, setting=dataset.setting, digest=dataset.digest),
        compiled=run_context.compiled,
        data_card=dict(dataset.card),
        versions=versions(),
        git=_git_revision(),
    )


def card_for(folder: Path, run_context: RunContext) -> RunCard:
    """Return the card of a new or continued run.

    Args:
        folder: Folder of the run.
        run_context: Context of the run.

    Raises:
        RunError: The folder has a run of another config or other data.
    """
    card_now = make_card(run_context)
    if not is_run(folder):
        return card_now
    card_before = read_card(folder)
    check_same(folder, "a run", _run_fields(card_before), _run_fields(card_now))
    lasting = {"run": card_before.run, "index": card_now.index or card_before.index}
    return card_now.model_copy(update={**lasting, "price": card_now.price or card_before.price})


def _run_fields(card: RunCard) -> dict[str, Any]:
    return {**card.identity, "data": card.data.model_dump(), "compiled": card.compiled}


@cache
def _git_revision() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    with suppress(OSError, subprocess.SubprocessError):  # it is installed, not checked out
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return done.stdout.strip() or None
    return None


@contextmanager
def limited(limits: Limits, *folders: Path) -> Iterator[RequestUsage]:
    """Apply limits inside the block, and count what earlier processes billed.

    Args:
        limits: Spending limits.
        *folders: Folders of earlier runs that count.

    Yields:
        The usage.

    Raises:
        ConfigError: There is a cost limit, and an earlier call has no known price.
    """
    with spending(limits) as spent:
        for folder in folders if limits else ():
            calls = list(billed_under(folder))
            if limits.cost is not None and billed(calls).cost_usd is None:
                raise ConfigError(
                    f"{folder} holds calls without a known price, so {limits.option('cost')} "
                    "cannot be kept; give --max-total-tokens or --max-calls instead"
                )
            spent.count(calls)
        yield spent


def billed_under(folder: Path) -> Iterator[Call]:
    """Yield the server calls of every run and compile in `folder` and its subfolders.

    Calls of replaced records and calls without a record are included. Calls of scoring are not.
    """
    for path in sorted([*folder.rglob(DATABASE), *folder.rglob(CALLS)]):
        yield from billed_calls(path)


def stop_if_refused(ledger: OpenLedger, *, failed: bool) -> None:
    """Check that no call of a compile was refused.

    Args:
        ledger: Calls of the compile.
        failed: The compile failed because of a dead LM.

    Raises:
        StoppedError: A limit refused a call.
        RunError: A dead LM refused a call, and the optimizer continued without it.
    """
    wait_for_calls()  # Record the calls of the optimizer's remaining threads.
    if ledger.refused and (limit := limit_reached()):
        raise StoppedError(f"{limit} while compiling")
    if ledger.refused and not failed:
        raise RunError("the LM is down; when it answers, give the same command again")
