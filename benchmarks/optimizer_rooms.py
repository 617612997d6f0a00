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
import json
import random
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dspy

from ragbench import optimizers
from ragbench.experiments.artifacts import load_artefact, read_sidecar
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.plans import Plan, make_plan
from ragbench.experiments.runs import context as setup
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.optimizers.world import SMALL

#: Two fifths are for training, a fifth for validation, and two fifths are held out.
N = 360
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


def chance(what: str, number: int) -> float:
    """A number in [0, 1) that `what` and the question decide."""
    return random.Random(zlib.crc32(f"{what} {number}".encode())).random()


def write_questions(folder: Path, n: int = N) -> Path:
    """Write questions with four passages each, in HotpotQA's layout."""
    rows = []
    for i in range(n):
        gold = f"Which town number {i} lies on river number {i}: the seat of Town {i}."
        context = [[f"Entry {i}", [gold]]]
        for other in range(3):
            context.append(
                [f"River {i}.{other}", [f"A town near river number {i}, in part {other}."]]
            )
        rows.append({
            "_id": f"q{i}", "question": f"Which town number {i} lies on river number {i}?",
            "answer": f"Town {i}", "supporting_facts": [[f"Entry {i}", 0]], "context": context,
            "type": "bridge", "level": "hard",
        })  # fmt: skip
    path = folder / "questions.json"
    path.write_text(json.dumps(rows))
    return path


@contextmanager
def simulated(script: Callable[[Asked], Reply], name: str) -> Iterator[None]:
    """Answer every config by `script` inside the block."""
    lm = ScriptedLM(script, name=name)
    with patch.object(setup, "make_lm", lambda spec, *_, **__: lm):
        yield


def config_of(folder: Path) -> RunConfig:
    """Make a run of vanilla over questions written into `folder`."""
    fields: dict[str, Any] = {"program": "vanilla", "dataset": "hotpotqa", "lm": "scripted"}
    fields |= {"data_file": write_questions(folder), "k": 1, "adapter": "chat"}
    return RunConfig(**fields, limit=None, workers=1, cache=False)


def held_out_gain(plan: Plan, compiled: Path, most: int | None = None) -> float:
    """Measure the gain in F1 of a compiled program, over at most so many held-out questions."""
    context = plan.run_context
    held_out = context.dataset.splits["test"][:most]
    task = optimizers.Task(
        train=held_out, val=held_out, scorer=optimizers.make_scorer("f1"), lm=context.lm,
        log_folder=plan.folder,
    )  # fmt: skip
    with context.active():
        plain = optimizers.measure(context.program, held_out, task).mean
        program = context.program.deepcopy()
        load_artefact(compiled, program)
        return optimizers.measure(program, held_out, task).mean - plain


def cell(name: str, room: str) -> tuple[str, float, float]:
    """The outcome of a compile by the optimizer called `name`, and its gains in F1.

    On the 16 validation questions, and on 60 held-out ones.
    """
    settings = SETTINGS.get(name, SMALL.get(name, {}))
    with tempfile.TemporaryDirectory() as made, simulated(script_of(room), f"{name} {room}"):
        folder = Path(made)
        config = config_of(folder).but(program=PROGRAMS.get(name, "vanilla"))
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
            cells.append(f"{word} {gain:+z.2f}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
