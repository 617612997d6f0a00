"""From a config to the things that run: data, retriever, LM, adapter, program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.data import Dataset, load_dataset
from ragbench.errors import UnknownNameError
from ragbench.experiments.artifacts import read_policy
from ragbench.experiments.config import RunConfig
from ragbench.lms import RagbenchLM, configure_cache, make_lm
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import (
    GIVE_PRICE,
    ServerCalls,
    Service,
    check_price,
    cost_is_limited,
)
from ragbench.logs import quiet_libraries
from ragbench.own_code import blamed_on
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram, calls_of
from ragbench.programs.routing import Router
from ragbench.retrievers import PerQuestion, Retriever, make_retriever


@dataclass(frozen=True)
class RunContext:
    """What a run needs; `examples` are the chosen questions, in order."""

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
        """A title of the run, for people."""
        config = self.config
        part = f", shard {config.shard}" if config.shard else ""
        asked = f"{self.dataset.name} {config.data.split}"
        return f"{self.program.label} on {asked}, {self.lm.model}{part}"

    def check_lms(self) -> None:
        """Do nothing if every LM can be called now; starts the local server if one is used.

        Raises:
            RagbenchError: a missing key, an unreachable server, a model that cannot be had, or one
                that the program cannot work with.
        """
        self.program.check_lms(self.lm, self.role_lms)
        self.lm.check()
        for role, lm in self.role_lms.items():
            lm.check(f"the LM of role {role}")

    @contextmanager
    def active(self) -> Iterator[None]:
        """The LM, its adapter and quiet defaults, for the calls made inside the block."""
        context = replace(
            current(),
            role_lms=self.role_lms,
            qids=self._qids(),
            question_time_s=self.config.question_timeout,
        )
        with use(
            context,
            lm=self.lm,
            adapter=self.adapter,
            warn_on_type_mismatch=False,
            max_errors=10**9,
            num_threads=self.config.workers,
        ):
            yield

    def _qids(self) -> dict[str, str]:
        # Optimizers hand a program the text alone; the log says which question it is of.
        rows = (example for split in self.dataset.splits.values() for example in split)
        return {example.question: str(example.qid) for example in rows}


def check(config: RunConfig) -> type[RAGProgram]:
    """The program class, after all that can be checked without loading anything.

    Raises:
        RagbenchError: an unknown name or a knob that is not allowed.
    """
    program = PROGRAMS.get(config.program)
    program.resolve_knobs(config.set)
    return program


def check_roles(program: RAGProgram, roles: Iterable[str]) -> None:
    """Do nothing if the program has every one of `roles`.

    Raises:
        UnknownNameError: it has not.
    """
    known = {row.role for row in calls_of(program)}
    for role in roles:
        if role not in known:
            raise UnknownNameError(f"role of {program.name}", role, known)


def choose(dataset: Dataset, config: RunConfig) -> Sequence[dspy.Example]:
    """The questions of the config's split, cut to its limit, or those of its shard.

    Raises:
        ConfigError: the split is empty, or has questions without answers.
    """
    number, of = config.shard_of
    return dataset.select(config.data.split, config.data.limit)[number - 1 :: of]


def build(
    config: RunConfig, *, like: RunContext | None = None, no_questions: bool = False
) -> RunContext:
    """Everything the run needs, checked; cheap checks come first.

    Data and retriever are those of `like` where its config asks for the same ones. With
    `no_questions` none are chosen, for questions that are not of the data set.

    Raises:
        RagbenchError: something the user can mend.
    """
    quiet_libraries()
    program = check(config)
    same = like if like and like.config.data_spec() == config.data_spec() else None
    dataset = same.dataset if same else load_dataset(config.data_spec())
    examples = () if no_questions else choose(dataset, config)
    if like is None:  # or its cache is in use
        configure_cache()
    lm = lm_of(config, config.lm.model, main=True)
    roles = {role: lm_of(config, spec) for role, spec in config.lm.roles.items()}
    if same and same_retrieval(same.config, config):
        retriever = same.retriever
    else:
        retriever = make_retriever(
            config.retriever.name,
            dataset.corpus,
            setting=dataset.setting,
            **config.retriever.settings,
        )
    _check_prices(retriever)
    for service in _services(retriever):
        service.begin(patience=config.lm.patience, timeout=config.lm.timeout)
    with blamed_on(program, f"program {config.program}"):
        built = (
            Router(retriever, read_policy(config.policy))
            if config.policy
            else program(retriever, **config.set)
        )
    check_roles(built, roles)
    return RunContext(
        config=config,
        dataset=dataset,
        examples=examples,
        retriever=retriever,
        program=built,
        lm=lm,
        role_lms=roles,
        adapter=make_adapter(config.lm.adapter, lm),
    )


def same_retrieval(a: RunConfig, b: RunConfig) -> bool:
    """Whether both search the same passages in the same way."""
    return a.retriever == b.retriever and a.data_spec() == b.data_spec()


def _check_prices(retriever: Retriever) -> None:
    """Do nothing unless a limit on cost is to be kept and a server that it asks has no price."""
    if cost_is_limited():
        for model in _models(retriever):
            check_price(model.identity, known=model.priced)


def asks_servers(retriever: Retriever) -> bool:
    """Whether a search asks a server, for embeddings, for an order or for the passages."""
    return any(_services(retriever))


def takes_tokens(retriever: Retriever) -> bool:
    """Whether a server that it asks reads texts, whose tokens count."""
    return any(isinstance(service, Service) for service in _services(retriever))


def _services(retriever: Retriever) -> Iterator[ServerCalls]:
    for model in _models(retriever):
        if model.service is not None:
            yield model.service


def _models(retriever: Retriever) -> Iterator[Any]:
    for model in (getattr(retriever, name, None) for name in ("embedder", "reranker", "server")):
        if model is not None:
            yield model
    inner = (retriever.whole,) if isinstance(retriever, PerQuestion) else retriever.parts
    for part in inner:
        yield from _models(part)


def lm_of(config: RunConfig, spec: str, *, main: bool = False) -> RagbenchLM:
    """The LM of `spec` with the config's sampling, seed, cache and time limit.

    The config's `api_base`, `price`, `rpm` and `tpm` are those of its main LM alone.

    Raises:
        LMSetupError: a malformed spec or price, or an unknown provider.
        ConfigError: a limit on cost is to be kept and no price is known.
    """
    lm = make_lm(
        spec,
        api_base=config.lm.api_base if main else None,
        temperature=config.lm.temperature,
        max_tokens=config.lm.reply_tokens,
        cache=config.lm.cache,
        seed=config.seed,
        timeout=config.lm.timeout,
        price=config.lm.price if main else None,
        rpm=config.lm.rpm if main else None,
        tpm=config.lm.tpm if main else None,
        patience=config.lm.patience,
    )
    check_price(lm.model, known=lm.pricing.known, cure=GIVE_PRICE if main else "")
    return lm
