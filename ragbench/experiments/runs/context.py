"""From a config to the things that run: data, retriever, LM, adapter, program and controls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ragbench.context import current, use
from ragbench.data import Dataset, load_dataset
from ragbench.errors import ConfigError, RunError, UnknownNameError
from ragbench.experiments.artifacts import (
    assert_held_out,
    assert_not_learned_from,
    load_artefact,
    read_policy,
    read_sidecar,
    warn_of_shared_passages,
)
from ragbench.experiments.config import FLAT, RunConfig
from ragbench.lms import RagbenchLM, configure_cache, make_lm
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import GIVE_PRICE, ServerCalls, Service, check_price, cost_is_limited
from ragbench.logs import quiet_libraries
from ragbench.own_code import blamed_on
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram, calls_of
from ragbench.programs.routing import Router
from ragbench.programs.wrappers import Voting, repair_form, with_more_votes
from ragbench.retrievers import PerQuestion, Retriever, make_retriever
from ragbench.user_code import is_external

#: One of these that is given takes the place of all of its group that the sidecar has.
_SOURCES = {
    "dataset", "data_file", "train_file", "val_file", "test_file", "hub_repo", "lm", "retriever",
}  # fmt: skip


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
        # Optimizers hand a program the text alone; the log says which question it is of.
        rows = (example for split in self.dataset.splits.values() for example in split)
        context = replace(
            current(),
            role_lms=self.role_lms,
            qids={example.question: str(example.qid) for example in rows},
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


def check(config: RunConfig) -> type[RAGProgram]:
    """The program class, after all that can be checked without loading anything.

    Raises:
        RagbenchError: an unknown name or a knob that is not allowed.
    """
    program = PROGRAMS.get(config.program)
    program.resolve_knobs(config.set)
    return program


def check_roles(program: RAGProgram, roles: Iterable[str]) -> None:
    """Do nothing if the program has every one of `roles`. Raises UnknownNameError: it has not."""
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
    for model in _models(retriever) if cost_is_limited() else ():
        check_price(model.identity, known=model.priced)
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


def asks_servers(retriever: Retriever) -> bool:
    """Whether a search asks a server, for embeddings, for an order or for the passages."""
    return any(_services(retriever))


def takes_tokens(retriever: Retriever) -> bool:
    """Whether a server that it asks reads texts, whose tokens count."""
    return any(isinstance(service, Service) for service in _services(retriever))


def _services(retriever: Retriever) -> Iterator[ServerCalls]:
    return (model.service for model in _models(retriever) if model.service is not None)


def _models(retriever: Retriever) -> Iterator[Any]:
    models = (getattr(retriever, name, None) for name in ("embedder", "reranker", "server"))
    yield from (model for model in models if model is not None)
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


def ready(config: RunConfig, *, like: RunContext | None = None) -> RunContext:
    """The run context of `config`, with compiled state and controls applied; calls no LM."""
    run_context = build(config, like=like)
    if config.compiled is not None:
        sidecar = load_artefact(config.compiled, run_context.program)
        assert_held_out(sidecar.data, run_context.examples, dataset=run_context.dataset.name)
        warn_of_shared_passages(sidecar.data, run_context.examples)
        run_context = replace(run_context, compiled=sidecar.program_sha256)
    if isinstance(run_context.program, Router):
        assert_not_learned_from(
            run_context.program.policy, run_context.examples, dataset=run_context.dataset.name
        )
    if config.form and config.policy:
        raise ConfigError("a router runs its programs as they are; leave form out")
    program = run_context.program
    if config.form:
        program = repair_form(program)
    if config.votes > 1:
        asked = [example.question for example in run_context.examples]
        program = Voting(program, config.votes, with_more_votes(asked, config.votes))
    return replace(run_context, program=program)


def compiled_fields(folder: Path, program: str | None = None) -> dict[str, Any]:
    """The config fields that a compiled program decides: its architecture and its knobs.

    `program` is the one that the user named, if any.

    Raises:
        RunError: `folder` is no compiled program, or one of another program than `program`, or one
            of external code that the user did not name.
    """
    sidecar = read_sidecar(folder)
    if program not in (None, sidecar.program):
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program}; leave --program out"
        )
    if is_external(sidecar.program) and program is None:
        raise RunError(
            f"{folder} is a compiled {sidecar.program}: external code, which is loaded only where "
            f"it is named; give --program {sidecar.program} if you trust it"
        )
    return {"program": sidecar.program, "set": sidecar.knobs}


def compiled_sources(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Data, LM and retriever that `folder` was compiled with, by flat name.

    Those for which `given`, by flat name, has others are left out.

    Raises:
        RunError: `folder` is no compiled program.
    """
    groups = {FLAT[name][0] for name in given.keys() & _SOURCES}
    own = read_sidecar(folder).given
    return {k: v for k, v in own.items() if k in FLAT and FLAT[k][0] not in groups}
