"""The card of a run: what was run, on what, by which settings and versions."""

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

#: Values by name, as JSON has them.
JsonObject: TypeAlias = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class DataId(_Part):
    """Which questions and passages: the data set, its setting, and a hash of all of it."""

    name: str
    setting: str = ""
    digest: str = ""


def _named(identity: JsonObject) -> JsonObject:
    if not isinstance(identity.get("program"), str):
        raise ValueError("it names no program")
    return identity


class RunCard(_Part):
    """What was run, on what, by which settings and versions: all that was resolved before it began.

    It stands in the database, and beside it in `card.json` for people. Both have the run's id, so
    that a card that was put beside another run is noticed.
    """

    run: str = Field(default_factory=lambda: secrets.token_hex(8))
    #: All settings as given.
    config: JsonObject | None = None
    #: The settings that can change a record, resolved.
    identity: Annotated[JsonObject, AfterValidator(_named)]
    #: Name of the system in tables, where it is not that of its program.
    label: str = ""
    #: Questions asked.
    questions: int | None = None
    #: Knobs of the program, defaults included.
    knobs: JsonObject
    #: Those of the knobs that are not as the program's variant has them.
    changed_knobs: JsonObject = {}
    retriever: JsonObject = {}
    #: What the program's own index took in all, and its size.
    index: JsonObject = {}
    #: Columns of the table that nobody knows, for predictions of another system.
    unknown: list[str] = []
    #: Model string of the main LM.
    model: str
    #: What its calls cost, in the words of `--price`; given later, it holds for the calls before.
    price: str | None = None
    adapter: str = ""
    #: LM -> parameter that its server refused -> how it is sent instead.
    negotiated: dict[str, dict[str, str]] = {}
    data: DataId
    #: Hash of the compiled state in the program, if any.
    compiled: str = ""
    #: What the data set says of itself.
    data_card: JsonObject = {}
    versions: dict[str, str] = {}
    #: Revision of the code, where it runs from a checkout.
    git: str | None = None

    @property
    def program(self) -> str:
        """Name of the architecture."""
        return str(self.identity["program"])

    @property
    def system(self) -> str:
        """Name of what was run, for people."""
        return self.label or self.program

    def priced(self, call: Call) -> Call:
        """Return `call` at the price of this run, if it is of its main LM and the card has one."""
        if self.price is None or call.model != self.model:
            return call
        return parse_price(self.price).apply(call)


#: The file of an experiment of several runs.
EXPERIMENT = "experiment.json"


def is_run(folder: Path) -> bool:
    """Whether a run has left its database in `folder`."""
    return (folder / DATABASE).is_file()


def repeats_in(folder: Path) -> list[Path]:
    """The folders `r1`, `r2`, ... of repeats in `folder`, in their order; none in a run's own."""
    if is_run(folder):
        return []
    repeats = []
    for path in folder.glob("r*"):
        if path.name[1:].isdigit() and is_run(path):
            repeats.append(path)
    return sorted(repeats, key=lambda path: int(path.name[1:]))


def runs_under(folder: Path) -> list[Path]:
    """The folders of all runs in `folder`, itself included, by name."""
    return sorted(path.parent for path in folder.rglob(DATABASE) if path.is_file())


def card_in(folder: Path, reader: Reader) -> RunCard:
    """The card of the run in `folder`, whose open database is `reader`.

    Raises:
        RunError: it is no run folder or cannot be read, or `card.json` is of another run.
    """
    if not reader.exists:
        raise RunError(f"{folder} is not a run folder: it has no {DATABASE}")
    rows = list(reader.rows("SELECT value FROM run WHERE name = 'card'"))
    if not rows:
        raise RunError(f"{reader.path} has no card: it is not of a run")
    try:
        card = RunCard.model_validate_json(rows[0][0])
    except ValidationError as error:
        raise RunError(f"cannot read the card in {reader.path}: {why_invalid(error)}") from None
    beside = folder / CARD
    if beside.is_file() and read_object(beside).get("run") != card.run:
        raise RunError(f"{beside} is of another run than {DATABASE}: put the right one back")
    return card
