"""Every instruction, pinned: what a program tells the LM never changes unseen.

After a change that is meant, write the file anew with `python -m tests.programs.test_goldens` and
read its diff.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import dspy

from ragbench.programs import PROGRAMS
from ragbench.signatures import ROLES
from tests.programs.shelf import shelf

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "instructions.json"


def described(signature: type[dspy.Signature]) -> dict[str, Any]:
    """What reaches the prompt: the instructions, and name, type and description of each field."""

    def line(name: str, field: Any) -> str:
        kind, desc = field.annotation, field.json_schema_extra.get("desc", "")
        plain = str(kind) if hasattr(kind, "__args__") else kind.__name__
        for module in ("typing.", "ragbench.signatures.types."):
            plain = plain.replace(module, "")
        return f"{name}: {plain}" + ("" if desc == f"${{{name}}}" else f" - {desc}")

    return {
        "instructions": signature.instructions,
        "inputs": [line(name, field) for name, field in signature.input_fields.items()],
        "outputs": [line(name, field) for name, field in signature.output_fields.items()],
    }


def current() -> dict[str, Any]:
    """The instructions of the code as it is."""
    signatures = {
        f"{role}.{name}": described(found)
        for role in ROLES
        for name, found in vars(import_module(f"ragbench.signatures.{role}")).items()
        if not name.startswith("_")
        and isinstance(found, type)
        and issubclass(found, dspy.Signature)
        and found.__module__.endswith(role)
    }
    programs = {
        f"{name}:{variant}": {
            path: described(predictor.signature)
            for path, predictor in program(shelf(), variant=variant).named_predictors()
        }
        for name, program in PROGRAMS
        for variant in program.variants
    }
    return {"signatures": signatures, "programs": programs}


def test_instructions_are_those_of_the_golden_file() -> None:
    assert current() == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(current(), indent=1, ensure_ascii=False) + "\n")
