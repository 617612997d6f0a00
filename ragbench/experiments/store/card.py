"""The card of a run: program, data, settings and versions."""

import secrets
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragbench.errors import RunError
from ragbench.experiments.store.files import read_object, why_invalid
from ragbench.experiments.store.reader import Reader
from ragbench.experiments.store.schema import CARD, DATABASE
from ragbench.lms.prices import parse_price
from ragbench.record import Call

#: JSON object.
JsonObject: TypeAlias = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class DataId(_Part):
    """Identity of questions and passages: data set, setting, and a hash of both."""

    name: str
    setting: str = ""
    digest: str = ""


def _named(identity: JsonObject) -> JsonObject:
    if not isinstance(identity.get("program"), str):
        raise ValueError("program is missing")
    return identity


class RunCard(_Part):
    """Everything that was resolved before a run began: program, data, settings and versions.

    The database holds the card, and `card.json` holds a readable copy. Both have the run's id, so
    ragbench notices the card of another run.
    """

    run: str = Field(default_factory=lambda: secrets.token_hex(8))
    #: Settings as given by the user.
    config: JsonObject | None = None
    #: The settings that can change a record, resolved.
    identity: Annotated[JsonObject, AfterValidator(_named)]
    #: Display name of the system, if it differs from the program's name.
    label: str = ""
    #: Number of questions asked.
    questions: int | None = None
    #: Knobs of the program, defaults included.
    knobs: JsonObject
    #: Knobs that differ from the program's variant.
    changed_knobs: JsonObject = {}
    retriever: JsonObject = {}
    #: Total usage and size of the program's own index.
    index: JsonObject = {}
    #: Unknown columns of imported predictions, such as tokens.
    unknown: list[str] = []
    #: Model string of the main LM.
    model: str
    #: Price in the format of `--price`. A later price also applies to earlier calls.
    price: str | None = None
    adapter: str = ""
    #: Replacement of each parameter that a server rejected, by LM and parameter.
    negotiated: dict[str, dict[str, str]] = {}
    data: DataId
    #: Hash of the compiled state in the program, if any.
    compiled: str = ""
    #: Metadata of the data set.
    data_card: JsonObject = {}
    versions: dict[str, str] = {}
    #: Revision of the code, if it runs from a checkout.
    git: str | None = None

    @property
    def program(self) -> str:
        """Name of the architecture."""
        return str(self.identity["program"])

    @property
    def system(self) -> str:
        """Display name of the system."""
        return self.label or self.program

    def priced(self, call: Call) -> Call:
        """Return `call` at the price of this run, if it is of its main LM and the card has one."""
        if self.price is None or call.model != self.model:
            return call
        return parse_price(self.price).apply(call)


#: The file of an experiment of several runs.
EXPERIMENT = "experiment.json"


def is_run(folder: Path) -> bool:
    """Return True if `folder` holds the database of a run."""
    return (folder / DATABASE).is_file()


def repeats_in(folder: Path) -> list[Path]:
    """Return the folders `r1`, `r2`, ... of repeats in `folder`, in order.

    Empty if `folder` is itself a run.
    """
    if is_run(folder):
        return []
    repeats = []
    for path in folder.glob("r*"):
        if path.name[1:].isdigit() and is_run(path):
            repeats.append(path)
    return sorted(repeats, key=lambda path: int(path.name[1:]))


def runs_under(folder: Path) -> list[Path]:
    """Return the folders of all runs in `folder`, itself included, by name."""
    return sorted(path.parent for path in folder.rglob(DATABASE) if path.is_file())


def card_in(folder: Path, reader: Reader) -> RunCard:
    """Read the card of a run.

    Args:
        folder: Folder of the run.
        reader: Its open database.

    Raises:
        RunError: The folder is not a run or cannot be read, or `card.json` is of another run.
    """
    if not reader.exists:
        raise RunError(f"{folder} is not a run folder: it has no {DATABASE}")
    rows = list(reader.rows("SELECT value FROM run WHERE name = 'card'"))
    if not rows:
        raise RunError(
            f"{reader.path} is not a run database: its card is missing. Give the folder of a run."
        )
    try:
        card = RunCard.model_validate_json(rows[0][0])
    except ValidationError as error:
        raise RunError(f"cannot read the card in {reader.path}: {why_invalid(error)}") from None
    beside = folder / CARD
    if beside.is_file() and read_object(beside).get("run") != card.run:
        raise RunError(f"{beside} belongs to another run than {DATABASE}. Restore the right file.")
    return card
