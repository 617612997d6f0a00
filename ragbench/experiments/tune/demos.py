"""Demonstrations that a search over knobs may show: drawn once, from training questions.

One bootstrap compile of the program with the knobs as given, kept in `demos/` of the search and
continued like any other compile. A trial with `n` shows each predictor the first `n` of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import PROGRAM, Sidecar, read_sidecar
from ragbench.experiments.compile import OnMessage, compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs import RunContext
from ragbench.experiments.store import read_object
from ragbench.knobs import resolve
from ragbench.programs.core import RAGProgram

#: The dimension of the search, beside the program's knobs.
DEMOS = "demos"
#: Validation questions of the compile; its scores are of no use here.
_VALIDATION = 5


@dataclass(frozen=True)
class DemoPool:
    """The demonstrations of each predictor, in the order in which they were found."""

    of: Mapping[str, Sequence[Mapping[str, Any]]]
    sidecar: Sidecar

    @property
    def most(self) -> int:
        """As many as the predictor with the most of them has."""
        return max(map(len, self.of.values()), default=0)

    def show(self, program: RAGProgram, n: int) -> str:
        """Give `program` the first `n` of each predictor, and say in a few words which.

        A predictor that has other fields than the one they were drawn for shows none.
        """
        if not n:
            return ""
        fields = {card.name: {*card.inputs, *card.outputs} for card in self.sidecar.predictors}
        for name, predictor in program.named_predictors():
            if fields.get(name) == set(predictor.signature.fields):
                predictor.demos = [dict(demo) for demo in self.of[name][:n]]
        return f"{n} of {self.sidecar.program_sha256}"


def drawing(run_context: RunContext, *, most: int, seed: int, folder: Path) -> CompileConfig:
    """The compile that draws demonstrations.

    ConfigError where the search asks training questions, which would be shown their own answers.
    """
    if run_context.config.data.split == "train":
        raise ConfigError("demonstrations are drawn from training questions; leave --split out")
    given = {
        "optimizer": "bootstrap",
        "opt_set": {"bootstrapped": most, "labeled": 0},
        "val_limit": _VALIDATION,
        "optimizer_seed": seed,
        "out": folder,
    }
    return resolve(CompileConfig, "compile", given)


def draw_demos(run_context: RunContext, settings: CompileConfig, on_message: OnMessage) -> DemoPool:
    """The demonstrations for each predictor of the program that `settings` draw.

    RunError where no training question was answered exactly, StoppedError at a limit of spending.
    """
    compile_program(run_context.config, settings, on_message=on_message, like=run_context)
    assert settings.out is not None
    state, sidecar = read_object(settings.out / PROGRAM), read_sidecar(settings.out)
    pool = DemoPool({card.name: state[card.name]["demos"] for card in sidecar.predictors}, sidecar)
    if not pool.most:
        raise RunError(
            "no training question was answered exactly, so there is nothing to show; "
            "leave --demos out"
        )
    return pool
