"""The groups of a run's config, and how the command line offers each of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo

from ragbench.knobs import Knobs


@dataclass(frozen=True)
class Option:
    """How the command line offers a field, and whether the field is part of a run's identity.

    `name` is the flat name where it is not the field's own. `incidental` fields change neither a
    question nor its answer. `default` is what the help says where the default is not a value.
    """

    name: str = ""
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    default: str = ""
    choices: str = ""  # kind of registered thing whose names are completed, such as "program"
    group: str = ""
    incidental: bool = False


class DataConfig(Knobs):
    """Which questions, over which passages."""

    dataset: Annotated[str, Option(choices="dataset")] = Field(
        "synthetic", description="data set; see `ragbench list datasets`"
    )
    data_file: Path | None = Field(
        None, description="questions (JSON, JSON lines, CSV or Parquet), to be cut into splits"
    )
    train_file: Path | None = Field(None, description="file of training questions")
    val_file: Path | None = Field(None, description="file of validation questions")
    test_file: Path | None = Field(None, description="file of test questions")
    fields: Annotated[dict[str, str], Option("field", metavar="NAME=FIELD")] = Field(
        {},
        description="read NAME, such as question, from this FIELD of your file; repeat for more",
    )
    fractions: Annotated[
        str | None,
        BeforeValidator(lambda v: ",".join(map(str, v)) if isinstance(v, list | tuple) else v),
        Option(metavar="TRAIN,VAL,TEST", default="0.4,0.2,0.4"),
    ] = Field(
        None, description="shares of train, validation and test where a file is cut into splits"
    )
    corpus_file: Path | None = Field(
        None, description="file of the passages to search, or a folder of documents"
    )
    passage_tokens: Annotated[int | None, Option(default="200")] = Field(
        None,
        ge=10,
        le=100_000,
        description="tokens per passage when documents are cut into passages",
    )
    chunk_file: Path | None = Field(
        None, description="file of fixed-length chunks of the passages, for --view chunk"
    )
    alias_file: Path | None = Field(None, description="file of entity aliases, for 2WikiMultiHopQA")
    hub: bool = Field(False, description="read the data set from the Hugging Face hub")
    hub_repo: Annotated[str | None, Option(metavar="OWNER/NAME")] = Field(
        None, description="repository on the hub, if not the data set's own"
    )
    hub_config: Annotated[str | None, Option(metavar="NAME", default="its first")] = Field(
        None, description="configuration of the data set on the hub"
    )
    setting: Annotated[
        Literal["distractor", "pooled"] | None,
        Option(default="distractor; pooled for chunks and a corpus file"),
    ] = Field(
        None,
        description="search each question's own passages (distractor), or those of all (pooled)",
    )
    view: Annotated[
        Literal["paragraph", "chunk"] | None,
        Option(default="paragraph; chunk for arag and graphrag_bench"),
    ] = Field(None, description="unit of retrieval: paragraphs, or chunks of fixed length")
    size: int = Field(
        2000, ge=100, le=1_000_000, description="number of passages of the synthetic data set"
    )
    disjoint: Annotated[
        Literal["passages", "questions"] | None, Option(default="passages where the data allow it")
    ] = Field(None, description="what no two splits may share: gold passages, or only questions")
    split: Annotated[
        Literal["train", "validation", "test", "all"],
        Option(default="test; all of your own file where nothing is compiled"),
    ] = Field("test", description="split to take the questions from")
    limit: Annotated[int | None, Option(incidental=True, default="all; 20 of synthetic")] = Field(
        20, ge=1, description="number of questions, from the start of the split; 0 for all"
    )

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, given: Any) -> Any:
        """All questions of data that somebody chose, where no limit is given."""
        if not isinstance(given, Mapping):
            return given
        chosen = given.get("dataset", "synthetic") != "synthetic"
        implied = {"limit": None} if chosen else {}
        return {**implied, **({"hub": True} if given.get("hub_repo") else {}), **given}

    @property
    def is_own(self) -> bool:
        """Whether the questions come from one file, which is no split of its own."""
        return self.data_file is not None and not (
            self.train_file or self.val_file or self.test_file
        )


class LMConfig(Knobs):
    """The model that answers, and how it is asked."""

    model: Annotated[str, Option("lm", aliases=("model",), metavar="SPEC")] = Field(
        "local",
        description="LM: local, local:NAME, local:FILE.gguf, or PROVIDER/MODEL such as "
        "openai/gpt-4o-mini",
    )
    roles: Annotated[dict[str, str], Option("lm_for", metavar="ROLE=SPEC")] = Field(
        {},
        description="another LM for one role of the program (see `ragbench show program`); "
        "repeat for more",
    )
    api_base: Annotated[str | None, Option(aliases=("model_base_url",), metavar="URL")] = Field(
        None, description="address of an OpenAI-compatible server"
    )
    price: Annotated[str | None, Option(metavar="in=USD,out=USD[,cached=USD]", incidental=True)] = (
        Field(None, description="dollars per million tokens, for an LM of unknown price")
    )
    temperature: float = Field(0.0, ge=0, le=2, description="sampling temperature")
    reply_tokens: int = Field(512, ge=1, le=1_000_000, description="maximum tokens of one reply")
    adapter: Literal["auto", "json", "chat", "xml"] = Field(
        "auto", description="format of prompts and replies; auto is the LM's own"
    )
    timeout: Annotated[
        float | None, Option(default="120; 600 for a local model", incidental=True)
    ] = Field(
        None, gt=0, description="seconds without a byte from the server before a call is retried"
    )
    rpm: Annotated[
        float | None, Option(group="limits", default="the server's limit", incidental=True)
    ] = Field(None, gt=0, description="maximum requests to the LM per minute")
    tpm: Annotated[
        float | None, Option(group="limits", default="the server's limit", incidental=True)
    ] = Field(None, gt=0, description="maximum tokens to and from the LM per minute")
    patience: Annotated[float, Option(group="limits", incidental=True)] = Field(
        600.0, ge=0, description="seconds to keep trying an LM that is down"
    )
    cache: Annotated[bool, Option(incidental=True)] = Field(
        True, description="reuse the replies to identical calls"
    )


class RetrieverConfig(Knobs):
    """The retriever and its settings."""

    name: Annotated[str, Option("retriever", choices="retriever", metavar="NAME")] = Field(
        "bm25", description="retriever; see `ragbench list retrievers`"
    )
    settings: Annotated[dict[str, Any], Option("retriever_set", metavar="NAME=VALUE")] = Field(
        {},
        description="a setting of the retriever, see `ragbench show`; repeat for more",
    )


def option_of(field: FieldInfo) -> Option:
    """How the command line offers `field`."""
    return next((part for part in field.metadata if isinstance(part, Option)), Option())
