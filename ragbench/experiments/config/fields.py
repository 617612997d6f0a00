"""The settings of compiling and of tuning, and how the command line offers each of them."""

from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from ragbench.knobs import Knobs
from ragbench.settings import option
from ragbench.user_code import allow


class CompileConfig(Knobs):
    """Settings of a compile; a `RunConfig` sets the program, the data and the LM.

    A compile uses training and validation questions only, so there is no split to choose.
    """

    optimizer: str = option(
        "bootstrap",
        "optimizer, see `ragbench list optimizers`; it may be one of your own, or "
        "several in a chain",
        metavar="NAME|FILE.py:CLASS|NAME -> NAME",
    )
    preset: Literal["light", "medium", "heavy"] = option("light", "how much the search may spend")
    opt_set: dict[str, Any] = option(
        {},
        "a knob (parameter) of the optimizer, see `ragbench show`; repeat for more",
        metavar="KNOB=VALUE",
    )
    optimizer_metric: str = option(
        "f1",
        "metric that the optimizer chooses by; it may be one of your own",
        metavar="em|f1|FILE.py:FUNCTION",
    )
    train_limit: int | None = option(50, "number of training questions; 0 for all", ge=1)
    val_limit: int | None = option(50, "number of validation questions; 0 for all", ge=1)
    teacher: str | None = option(
        None,
        "LM that answers the training questions",
        metavar="SPEC",
        default_words="the LM of --lm",
    )
    prompt_lm: str | None = option(
        None, "LM that writes instructions", metavar="SPEC", default_words="the LM of --lm"
    )
    optimizer_seed: int = option(0, "seed of the optimizer", ge=0)
    out: Path | None = option(None, "folder of the compiled program")

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
    """Settings of a search; a `RunConfig` sets the program and the questions."""

    objective: tuple[str, ...] = option(
        ("f1", "cost"),
        "what to improve: metrics, cost, tokens, calls, latency, separated by commas; "
        "results are ranked by the first",
        aliases=("metric",),
        metavar="NAMES",
        default_words="f1,cost",
        min_length=1,
    )
    trials: int = option(20, "combinations of parameters to try", ge=1, le=100_000)
    space: dict[str, str] = option(
        {}, "range or choices of one parameter; repeat for more", metavar="KNOB=LOW:HIGH|A,B"
    )
    only: tuple[str, ...] = option(
        (), "parameters to search, separated by commas", metavar="KNOBS", default_words="all"
    )
    tune_seed: int = option(0, "seed of the search", ge=0)
