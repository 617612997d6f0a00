"""Declare each setting of data, LM and retriever once, for configs, command line and Python.

The command-line form of a setting is next to it. This module imports neither DSPy nor any part that
a setting names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo

from ragbench.knobs import Knobs

#: Default seed of a run, and of the data and the LM without one.
SEED = 42


@dataclass(frozen=True)
class Option:
    """Command-line form of a field, and whether it is part of a run's identity.

    `incidental` fields change neither a question nor its answer. `default` replaces the default
    value in the help text.
    """

    aliases: tuple[str, ...] = ()
    metavar: str = ""
    default: str = ""
    group: str = ""
    incidental: bool = False


def option(
    default: Any,
    description: str,
    *,
    aliases: tuple[str, ...] = (),
    metavar: str = "",
    default_words: str = "",
    group: str = "",
    incidental: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a field with its command-line `Option`.

    Args:
        default: Default value.
        description: Help text.
        aliases: Other names of the option.
        metavar: Name of the value in the help.
        default_words: Text in place of the default in the help.
        group: Group of the option in the help.
        incidental: Whether the field is excluded from a run's identity.
        bounds: Bounds of `pydantic.Field`, such as `ge`.
    """
    field: FieldInfo = Field(default, description=description, **bounds)
    field.metadata.append(Option(aliases, metavar, default_words, group, incidental))
    return field


class DataSettings(Knobs):
    """Settings that decide the bytes of a data set: its questions and passages."""

    dataset: str = option("synthetic", "data set; see `ragbench list datasets`")
    data_file: Path | None = option(
        None, "questions (JSON, lines of it, a table), to be cut into splits"
    )
    train_file: Path | None = option(None, "file of training questions")
    val_file: Path | None = option(None, "file of validation questions")
    test_file: Path | None = option(None, "file of test questions")
    field: dict[str, str] = option(
        {},
        "read NAME, such as question, from this FIELD of your file, as answer.value or "
        "output[].answer; repeat for more",
        metavar="NAME=FIELD",
    )
    corpus_field: dict[str, str] = option(
        {}, "the same for passages: id, title, text or sentences", metavar="NAME=FIELD"
    )
    encoding: str = option(
        "", "coding of your files of text, such as latin-1 or utf-16", default_words="utf-8"
    )
    fractions: Annotated[
        str | None,
        BeforeValidator(lambda v: ",".join(map(str, v)) if isinstance(v, list | tuple) else v),
    ] = option(
        None,
        "shares of train, validation and test where a file is cut into splits",
        metavar="TRAIN,VAL,TEST",
        default_words="0.4,0.2,0.4",
    )
    corpus_file: Path | None = option(
        None, "file of the passages to search, or a folder of documents"
    )
    passage_tokens: int | None = option(
        None,
        "tokens per passage when documents are cut into passages",
        default_words="200",
        ge=10,
        le=100_000,
    )
    alias_file: Path | None = option(None, "file of entity aliases, for 2WikiMultiHopQA")
    hub: bool = option(False, "read the data set from the Hugging Face hub")
    hub_repo: str | None = option(
        None, "repository on the hub, if not the data set's own", metavar="OWNER/NAME"
    )
    hub_config: str | None = option(
        None, "configuration of the data set on the hub", metavar="NAME", default_words="its first"
    )
    setting: Literal["distractor", "pooled"] | None = option(
        None,
        "search each question's own passages (distractor), or those of all (pooled)",
        default_words="distractor; pooled for chunks and a corpus file",
    )
    view: Literal["paragraph", "chunk"] | None = option(
        None,
        "unit of retrieval: paragraphs, or chunks of fixed length",
        default_words="paragraph; chunk for arag and graphrag_bench",
    )
    size: int = option(2000, "number of passages of the synthetic data set", ge=100, le=1_000_000)
    rename_entities: str | None = option(
        None,
        "replace every name and year one to one, seeded by this key, to rule out memorized answers",
        metavar="KEY",
        min_length=1,
    )
    unanswerable: float | None = option(
        None,
        "take one gold passage from this share of the questions, which then have no answer",
        metavar="SHARE",
        gt=0,
        le=1,
    )
    split_seed: int | None = option(
        None, "seed of the splits and of the synthetic data set", default_words="as --seed", ge=0
    )

    @model_validator(mode="before")
    @classmethod
    def _from_the_hub(cls, fields: Any) -> Any:
        """Set `hub` for a repository of the hub."""
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
        """Return True if the questions come from one file, which is not a separate split."""
        return self.data_file is not None and not (
            self.train_file or self.val_file or self.test_file
        )


class QuestionSettings(DataSettings):
    """Settings that select questions of the data set."""

    split: Literal["train", "validation", "test", "all"] = option(
        "test",
        "split to take the questions from",
        default_words="test; all of your own file where nothing is compiled",
    )
    limit: int | None = option(
        20,
        "number of questions, from the start of the split; 0 for all",
        incidental=True,
        default_words="all; 20 of synthetic",
        ge=1,
    )

    @model_validator(mode="before")
    @classmethod
    def _all_questions(cls, fields: Any) -> Any:
        """Default to all questions if the user chose the data and set no limit."""
        if isinstance(fields, Mapping) and fields.get("dataset", "synthetic") != "synthetic":
            return {"limit": None, **fields}
        return fields


class LMSettings(Knobs):
    """Settings of the LM and of its calls."""

    lm: str = option(
        "local",
        "LM: local, local:NAME, local:FILE.gguf, or PROVIDER/MODEL such as openai/gpt-4o-mini",
        aliases=("model",),
        metavar="SPEC",
    )
    lm_for: dict[str, str] = option(
        {},
        "another LM for one role of the program (see `ragbench show program`); repeat for more",
        metavar="ROLE=SPEC",
    )
    api_base: str | None = option(
        None, "address of an OpenAI-compatible server", aliases=("model_base_url",), metavar="URL"
    )
    header: dict[str, str] = option(
        {},
        "a header that is sent to the LM's server, a secret one by the variable "
        "of the environment that holds it; repeat for more",
        metavar="NAME=VALUE|env:VAR",
    )
    ca_file: Path | None = option(None, "additional CA certificates (PEM file)", incidental=True)
    price: str | None = option(
        None,
        "dollars per million tokens, for an LM of unknown price",
        metavar="in=USD,out=USD[,cached=USD]",
        incidental=True,
    )
    price_for: dict[str, str] = option(
        {},
        "price of another LM, by its spec (teacher, prompt LM, LM of a role); repeat for more",
        metavar="SPEC=in=USD,out=USD",
        incidental=True,
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | Literal["none"] = option(
        0.0, "sampling temperature; none to send none"
    )
    reply_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["none"] = option(
        512, "maximum tokens of one reply; none to send no limit", aliases=("max_tokens",)
    )
    adapter: str = option(
        "auto",
        "format of prompts and replies; auto is the LM's own",
        metavar="auto|chat|json|FILE.py:CLASS",
    )
    timeout: float | None = option(
        None,
        "seconds in which a whole reply must be there",
        default_words="120; 600 for a local model",
        incidental=True,
        gt=0,
    )
    rpm: float | None = option(
        None,
        "maximum requests to the LM per minute",
        group="limits",
        default_words="the server's limit",
        incidental=True,
        gt=0,
    )
    tpm: float | None = option(
        None,
        "maximum tokens to and from the LM per minute",
        group="limits",
        default_words="the server's limit",
        incidental=True,
        gt=0,
    )
    patience: float = option(
        600.0, "seconds to keep trying an LM that is down", group="limits", incidental=True, ge=0
    )
    cache: bool = option(True, "reuse the replies to identical calls", incidental=True)


class RetrieverSettings(Knobs):
    """The retriever and its settings."""

    retriever: str = option("bm25", "retriever; see `ragbench list retrievers`", metavar="NAME")
    retriever_set: dict[str, Any] = option(
        {}, "a setting of the retriever, see `ragbench show`; repeat for more", metavar="NAME=VALUE"
    )


def option_of(field: FieldInfo) -> Option:
    """Return the command-line form of `field`."""
    return next((metadata for metadata in field.metadata if isinstance(metadata, Option)), Option())
