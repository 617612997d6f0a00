"""The card of a run, `config.json`: everything that was resolved before it began."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ragbench.errors import RunError
from ragbench.experiments.records.files import read_json
from ragbench.record import Call

CONFIG = "config.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class DataId(_Part):
    """Which questions and passages: the data set, its setting, and a hash of all of it."""

    name: str
    setting: str = ""
    digest: str = ""


class Preparation(_Part):
    """The calls that made what all questions share, such as an index."""

    calls: list[Call] = []


def _named(identity: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(identity.get("program"), str):
        raise ValueError("it names no program")
    return identity


class RunCard(_Part):
    """What `config.json` holds; fields of other versions are kept."""

    #: All settings as given.
    config: dict[str, Any] | None = None
    #: The settings that can change a record, resolved.
    identity: Annotated[dict[str, Any], AfterValidator(_named)]
    #: Name of the system in tables, where it is not that of its program.
    label: str = ""
    limit: int | None = None
    #: Which part of a run this is, such as "2/8"; empty for a whole one.
    shard: str = Field("", pattern=r"^([1-9]\d{0,5}/[1-9]\d{0,5})?$")
    #: Questions asked; None in a run of an early version.
    questions: int | None = None
    workers: int | None = None
    cache: bool | None = None
    #: Knobs of the program, defaults included.
    knobs: dict[str, Any]
    retriever: dict[str, Any] = {}
    #: What the program's own index took in all, and its size.
    index: dict[str, Any] = {}
    #: Model string of the main LM.
    model: str
    adapter: str = ""
    data: DataId
    #: Hash of the compiled state in the program, if any.
    compiled: str = ""
    #: What the data set says of itself.
    data_card: dict[str, Any] = {}
    versions: dict[str, str] = {}
    #: Revision of the code, where it runs from a checkout.
    git: str | None = None
    preparation: Preparation | None = None
    #: Checksum of the file, which reading it compares.
    sum: str = Field(default="", exclude=True)

    @property
    def shard_words(self) -> str:
        """Which part of a run it is, in words."""
        return f"shard {self.shard}" if self.shard else "a whole run"

    @property
    def program(self) -> str:
        """Name of the architecture."""
        return str(self.identity["program"])

    @property
    def system(self) -> str:
        """Name of what was run, for people."""
        return self.label or self.program


def read_card(folder: Path) -> RunCard:
    """The card of the run in `folder`.

    Raises:
        RunError: it is no run folder, or the card cannot be read.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {CONFIG}")
    return read_json(path, RunCard)
