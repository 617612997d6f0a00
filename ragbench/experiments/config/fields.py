"""The settings of compiling and of tuning, and how the command line offers each of them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ragbench.knobs import Knobs
from ragbench.settings import Option
from ragbench.user_code import allow


class CompileConfig(Knobs):
    """How to compile; what is compiled, with which data and LM, is a `RunConfig`.

    There is no split to choose: training and validation questions are used, and no others.
    """

    optimizer: Annotated[str, Option(metavar="NAME|FILE.py:CLASS|NAME -> NAME")] = Field(
        "bootstrap",
        description="optimizer, see `ragbench list optimizers`; it may be one of your own, or "
        "several in a chain",
    )
    preset: Literal["light", "medium", "heavy"] = Field(
        "light", description="how much the search may spend"
    )
    opt_set: Annotated[dict[str, Any], Option(metavar="KNOB=VALUE")] = Field(
        {}, description="a knob (parameter) of the optimizer, see `ragbench show`; repeat for more"
    )
    optimizer_metric: Annotated[str, Option(metavar="em|f1|FILE.py:FUNCTION")] = Field(
        "f1", description="metric that the optimizer chooses by; it may be one of your own"
    )
    train_limit: int | None = Field(50, ge=1, description="number of training questions; 0 for all")
    val_limit: int | None = Field(50, ge=1, description="number of validation questions; 0 for all")
    teacher: Annotated[str | None, Option(metavar="SPEC", default="the LM of --lm")] = Field(
        None, description="LM that answers the training questions"
    )
    prompt_lm: Annotated[str | None, Option(metavar="SPEC", default="the LM of --lm")] = Field(
        None, description="LM that writes instructions"
    )
    optimizer_seed: int = Field(0, ge=0, description="seed of the optimizer")
    out: Path | None = Field(None, description="folder of the compiled program")

    @field_validator("optimizer_metric", "optimizer")
    @classmethod
    def _named_by_the_user(cls, name: str) -> str:
        allow(*map(str.strip, name.split("->")))
        return name

    @field_validator("opt_set")
    @classmethod
    def _given_by_the_user(cls, knobs: dict[str, Any]) -> dict[str, Any]:
        allow(*(value for value in knobs.values() if isinstance(value, str)))
        return knobs


class TuneConfig(Knobs):
    """How to search; what is searched, and over which questions, is a `RunConfig`."""

    objective: Annotated[
        tuple[str, ...], Option(aliases=("metric",), metavar="NAMES", default="f1,cost")
    ] = Field(
        ("f1", "cost"),
        min_length=1,
        description="what to improve: metrics, cost, tokens, calls, latency, separated by commas; "
        "results are ranked by the first",
    )
    trials: int = Field(20, ge=1, le=100_000, description="combinations of parameters to try")
    space: Annotated[dict[str, str], Option(metavar="KNOB=LOW:HIGH|A,B")] = Field(
        {}, description="range or choices of one parameter; repeat for more"
    )
    only: Annotated[tuple[str, ...], Option(metavar="KNOBS", default="all")] = Field(
        (), description="parameters to search, separated by commas"
    )
    tune_seed: int = Field(0, ge=0, description="seed of the search")
