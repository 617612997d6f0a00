"""Whether every optimizer that can help does, over scripted LMs with room of a known kind.

    python -m benchmarks.optimizer_rooms

Each cell is a real compile, then the plain and the compiled program on held-out questions; only the
LM is scripted. A third of the questions it always answers right. For the rest there is room:

- form: the right answer stands in a sentence, unless an instruction or a demonstration shows how;
- instruction: it is wrong, unless one sentence stands in the instructions, which the writer knows;
- demonstrations: it is wrong, unless a demonstration is shown;
- none: it is wrong.

What an optimizer can change it should use, and where nothing helps it should say so.
"""

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy

from benchmarks.probe_chances import Gaps, chance, config_of, held_out_gain, simulated
from ragbench import optimizers
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.plans import make_plan
from tests.fakes import Asked, Reply, plausible
from tests.optimizers.world import SMALL

ROOMS = ("form", "instruction", "demonstrations", "none")
QUESTION = re.compile(r"Which town number (\d+) lies")
#: What the writer proposes.
SENTENCE = "Reply with the town alone."
#: Optimizer -> settings and program, where they are not the small ones of the tests over vanilla.
SETTINGS: dict[str, dict[str, Any]] = {
    "better_together": {"strategy": "random_search -> copro", "copro.breadth": 3},
    "gepa": {"runs": 100},
    "simba": {"minibatch": 12, "candidates": 4, "steps": 3},
}
PROGRAMS = {"labeled": "direct"}


def script_of(room: str) -> Callable[[Asked], Reply]:
    """The LM whose room is `room`; a sample of a temperature is right by luck at times."""

    def script(asked: Asked) -> Reply:
        reply = plausible(asked)
        if "answer" not in reply:
            for name, value in reply.items():
                reply[name] = {"answer": SENTENCE} if isinstance(value, dict) else SENTENCE
            return reply
        numbers = [int(text) for text in QUESTION.findall(asked.prompt)]
        number = numbers[-1]
        is_shown = len({*numbers}) > 1
        helped = {
            "form": SENTENCE in asked.prompt or is_shown,
            "instruction": SENTENCE in asked.prompt,
            "demonstrations": is_shown,
            "none": False,
        }[room]
        lucky = bool(asked.request.config.temperature)
        lucky = lucky and chance(f"sample {asked.number}", number) < 0.3
        if number % 3 == 0 or helped or lucky:
            return {**reply, "answer": f"Town {number}"}
        if room == "form":
            return {**reply, "answer": f"I believe that it must be Town {number} in the end"}
        return {**reply, "answer": "Elsewhere"}

    return script


def cell(name: str, room: str) -> tuple[str, float, float]:
    """The outcome of a compile by the optimizer called `name`, and its gains in F1.

    On the 16 validation questions, and on 60 held-out ones.
    """
    settings = SETTINGS.get(name, SMALL.get(name, {}))
    with tempfile.TemporaryDirectory() as made, simulated(Gaps(), f"{name} {room}") as lm:
        lm.client.script = script_of(room)
        folder = Path(made)
        config = config_of(folder, Gaps()).but(program=PROGRAMS.get(name, "vanilla"))
        if config.program == "direct":
            config = config.but(k=None)
        fields: dict[str, Any] = {"train_limit": 16, "val_limit": 16, "out": folder / "out"}
        asked = CompileConfig(optimizer=name, opt_set=settings, **fields)
        compiled = compile_program(config, asked, on_message=lambda line: None)
        card = read_sidecar(compiled)
        gain = held_out_gain(make_plan(config, asked), compiled, 60)
    return card.outcome, card.scores["difference"], gain


def main() -> None:
    """Compile in every cell, and print a table of outcomes and held-out gains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="optimizers; by default all")
    names = parser.parse_args().names or optimizers.OPTIMIZERS.names()
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    print(f"| optimizer | {' | '.join(ROOMS)} |")
    print("|---|" + "---|" * len(ROOMS))
    for name in names:
        cells = []
        for room in ROOMS:
            word, _, gain = cell(name, room)
            cells.append(f"{word} {gain:+.2f}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
