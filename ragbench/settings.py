"""Settings of data, LM and retriever, each declared once: configs, command line, Python and rooms.

How the command line offers a setting stands beside it. This module imports no part that a setting
names, and no DSPy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo

from ragbench.knobs import Knobs

#: Of a run, and of the data and the LM where no other is given.
SEED = 42


@dataclass(frozen=True)
class Option:
    """How the command line offers a field, and whether the field is part of a run's identity.

    `incidental` fields change neither a question nor its answer. `default` is what the help says
    where the default is not a value.
    """

    aliases: tuple[str, ...] = ()
    metavar: str = ""
    default: str = ""
    group: str = ""
    incidental: bool = False


class DataSettings(Knobs):
    """Which questions over which passages: all that decides the bytes of a data set."""

    dataset: str = Field("synthetic", description="data set; see `ragbench list datasets`")
    data_file: Path | None = Field(
        None, description="questions (JSON, lines of it, a table), to be cut into splits"
    )
    train_file: Path | None = Field(None, description="file of training questions")
    val_file: Path | None = Field(None, description="file of validation questions")
    test_file: Path | None = Field(None, description="file of test questions")
    field: Annotated[dict[str, str], Option(metavar="NAME=FIELD")] = Field(
        {},
        description="read NAME, such as question, from this FIELD of your file, as answer.value or "
        "output[].answer; repeat for more",
    )
    corpus_field: Annotated[dict[str, str], Option(metavar="NAME=FIELD")] = Field(
        {}, description="the same for passages: id, title, text or sentences"
    )
    encoding: Annotated[str, Option(default="utf-8")] = Field(
        "", description="coding of your files of text, such as latin-1 or utf-16"
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
    renamed: Annotated[str | None, Option(metavar="KEY")] = Field(
        None,
        min_length=1,
        description="change every name and year one to one, by this key, so that nothing is known "
        "by heart",
    )
    unanswerable: Annotated[float | None, Option(metavar="SHARE")] = Field(
        None,
        gt=0,
        le=1,
        description="take one gold passage from this share of the questions, which then have no "
        "answer",
    )
    split_seed: Annotated[int | None, Option(default="as --seed")] = Field(
        None, ge=0, description="seed of the splits and of the synthetic data set"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_the_hub(cls, fields: Any) -> Any:
        """A repository is on the hub."""
        if isinstance(fields, Mapping) and fields.get("hub_repo"):
            return {"hub": True, **fields}
        return fields

    @property
    def seed_of_data(self) -> int:
        """The seed of the splits and of the synthetic data set."""
        if self.split_seed is None:
            return SEED
        return self.split_seed

    @property
    def is_own(self) -> bool:
        """Whether the questions come from one file, which is no split of its own."""
        return self.data_file is not None and not (
            self.train_file or self.val_file or self.test_file
        )


class QuestionSettings(DataSettings):
    """Which questions of the data set are asked."""

    split: Annotated[
        Literal["train", "validation", "test", "all"],
        Option(default="test; all of your own file where nothing is compiled"),
    ] = Field("test", description="split to take the questions from")
    limit: Annotated[int | None, Option(incidental=True, default="all; 20 of synthetic")] = Field(
        20, ge=1, description="number of questions, from the start of the split; 0 for all"
    )

    @model_validator(mode="before")
    @classmethod
    def _all_questions(cls, fields: Any) -> Any:
        """All questions of data that somebody chose, where no limit is given."""
        if isinstance(fields, Mapping) and fields.get("dataset", "synthetic") != "synthetic":
            return {"limit": None, **fields}
        return fields


class LMSettings(Knobs):
    """The model that answers, and how it is asked."""

    lm: Annotated[str, Option(aliases=("model",), metavar="SPEC")] = Field(
        "local",
        description="LM: local, local:NAME, local:FILE.gguf, or PROVIDER/MODEL such as "
        "openai/gpt-4o-mini",
    )
    lm_for: Annotated[dict[str, str], Option(metavar="ROLE=SPEC")] = Field(
        {},
        description="another LM for one role of the program (see `ragbench show program`); "
        "repeat for more",
    )
    api_base: Annotated[str | None, Option(aliases=("model_base_url",), metavar="URL")] = Field(
        None, description="address of an OpenAI-compatible server"
    )
    header: Annotated[dict[str, str], Option(metavar="NAME=VALUE|env:VAR", incidental=True)] = (
        Field(
            {},
            description="a header that is sent to the LM's server, a secret one by the variable "
            "of the environment that holds it; repeat for more",
        )
    )
    ca_file: Annotated[Path | None, Option(incidental=True)] = Field(
        None, description="certificates (PEM) to trust beside the usual ones"
    )
    price: Annotated[str | None, Option(metavar="in=USD,out=USD[,cached=USD]", incidental=True)] = (
        Field(None, description="dollars per million tokens, for an LM of unknown price")
    )
    price_for: Annotated[dict[str, str], Option(metavar="SPEC=in=USD,out=USD", incidental=True)] = (
        Field(
            {},
            description="the same for another LM, as it is given (teacher, prompt LM, LM of a "
            "role); repeat for more",
        )
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | Literal["none"] = Field(
        0.0, description="sampling temperature; none to send none"
    )
    reply_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | Literal["none"],
        Option(aliases=("max_tokens",)),
    ] = Field(512, description="maximum tokens of one reply; none to send no limit")
    adapter: Annotated[str, Option(metavar="auto|chat|json|xml|baml|two_step|FILE.py:CLASS")] = (
        Field("auto", description="format of prompts and replies; auto is the LM's own")
    )
    timeout: Annotated[
        float | None, Option(default="120; 600 for a local model", incidental=True)
    ] = Field(None, gt=0, description="seconds in which a whole reply must be there")
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


class RetrieverSettings(Knobs):
    """The retriever and its settings."""

    retriever: Annotated[str, Option(metavar="NAME")] = Field(
        "bm25", description="retriever; see `ragbench list retrievers`"
    )
    retriever_set: Annotated[dict[str, Any], Option(metavar="NAME=VALUE")] = Field(
        {}, description="a setting of the retriever, see `ragbench show`; repeat for more"
    )


def option_of(field: FieldInfo) -> Option:
    """How the command line offers `field`."""
    return next((metadata for metadata in field.metadata if isinstance(metadata, Option)), Option())
