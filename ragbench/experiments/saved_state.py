"""States that plain DSPy saved with `program.save("mine.json")`.

A state has instructions and demonstrations by predictor, without program, data or LM. DSPy matches
the fields of a predictor by position and applies the LM and every other name in a state. ragbench
refuses a state of another program. It reports an LM in a state and does not use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import RunError
from ragbench.experiments.artifacts import PROGRAM, SIDECAR, Sidecar, load_artefact, read_predictor
from ragbench.experiments.store import read_object
from ragbench.logs import get
from ragbench.programs.core import RAGProgram

_log = get(__name__)

#: Relevant keys of the state of a predictor.
_STATE_OF_PREDICTOR = ("signature", "demos", "fields", "traces", "train")
_CURE = (
    'a state is saved in Python with program.save("mine.json") and taken by --compiled mine.json '
    "--program FILE.py:Class; ragbench compile writes folders, which are taken by themselves"
)


def load_compiled(path: Path, program: RAGProgram) -> Sidecar | None:
    """Load a compiled program or a saved state.

    Args:
        path: Folder of a compiled program, or file with a state.
        program: Program that receives the state.

    Returns:
        The sidecar of the folder. None for a state, whose origin is unknown.

    Raises:
        RunError: It is neither, or is of another program. `program` is unchanged.
    """
    if is_state_file(path):
        load_state_file(path, program)
        return None
    return load_artefact(path, program)


def is_state_file(path: Path) -> bool:
    """Return True if `path` is a file or a saved DSPy program, not a compiled folder."""
    return path.is_file() or (path / "program.pkl").exists() or path.suffix in (".json", ".pkl")


def read_state(path: Path) -> dict[str, dict[str, Any]]:
    """Read the state of each part of a program, by name, that plain DSPy saved at `path`.

    Raises:
        RunError: It is another kind of file. The message has the fix.
    """
    if path.suffix == ".pkl" or path.is_dir():
        raise RunError(
            f"{path} is a program saved as a pickle, whose loading runs any code that it holds; "
            'save its state as JSON, program.save("mine.json"), or where you trust it load it in '
            "Python, dspy.load(..., allow_pickle=True), and give the object to rb.evaluate"
        )
    if path.name == PROGRAM and (path.parent / SIDECAR).is_file():
        raise RunError(f"{path} is part of a compiled program; give its folder, {path.parent}")
    try:
        state = read_object(path)
    except RunError as error:
        raise RunError(f"{error}; {_CURE}") from None
    state.pop("metadata", None)
    entries = state.values()
    are_parts = all(isinstance(entry, dict) for entry in entries)
    if not are_parts or not any("signature" in entry for entry in entries):
        raise RunError(f"{path} is not the state of a program: it has no predictors; {_CURE}")
    return state


def load_state_file(path: Path, program: RAGProgram) -> None:
    """Load a state that plain DSPy saved, after all checks.

    Args:
        path: File with the state.
        program: Program that receives the state.

    Raises:
        RunError: It is not a state, or it is one of another program.
    """
    state = read_state(path)
    parameters = {program.saved_name(name): p for name, p in program.named_parameters()}
    if state.keys() != parameters.keys():
        raise RunError(
            f"{path} is the state of a program with {_listed(state)}, and {program.name} has "
            f"{_listed(parameters)}; give --program FILE.py:Class, the class that it was saved from"
        )
    models: set[str] = set()
    for name, parameter in parameters.items():
        saved = state[name]
        if isinstance(parameter, dspy.Predict):
            if isinstance(saved.get("lm"), Mapping):
                models.add(str(saved["lm"].get("model")))
            saved = _of_predictor(path, name, parameter, saved)
        else:
            saved = {key: saved[key] for key in parameter.dump_state() if key in saved}
        state[name] = saved
        read_predictor(path, name, parameter.deepcopy(), saved)
    for name, parameter in parameters.items():
        brought = getattr(parameter, "lm", None)
        parameter.load_state(state[name])
        if brought is not None:  # Keep the LM that the class sets.
            parameter.lm = brought
    if models:
        _log.warning(
            "%s was saved with the LM %s, which is not followed: --lm says which LM answers",
            path,
            ", ".join(sorted(models)),
        )
    _log.warning(
        "%s does not list the questions that it was compiled with: whether these are held out "
        "is unknown",
        path,
    )


def _of_predictor(
    path: Path, name: str, predictor: dspy.Predict, saved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the relevant part of the state `saved`. Its fields must match `predictor`."""
    if "extended_signature" in saved or "signature" not in saved:
        raise RunError(
            f"{path}: predictor {name} was saved by DSPy 2.5 or older; load it there, write its "
            "instructions and demonstrations into the class, and save it again"
        )
    own_fields = predictor.signature.dump_state()["fields"]
    try:
        prefixes = [field["prefix"] for field in saved["signature"]["fields"]]
    except (TypeError, KeyError):
        raise RunError(f"{path}: predictor {name} has no list of fields; save it again") from None
    # An optimizer may rewrite the last field's prefix, so only its position is checked.
    own_prefixes = [field["prefix"] for field in own_fields]
    if len(prefixes) != len(own_prefixes) or prefixes[:-1] != own_prefixes[:-1]:
        raise RunError(
            f"{path}: predictor {name} was saved with the fields {' '.join(map(str, prefixes))} "
            f"and has {' '.join(own_prefixes)} here; give the class that it was saved from"
        )
    state = {key: saved[key] for key in _STATE_OF_PREDICTOR if key in saved}
    return {**state, "lm": None}


def _listed(predictors: Mapping[str, Any]) -> str:
    if predictors:
        return f"the predictors {', '.join(predictors)}"
    return "no predictors"
