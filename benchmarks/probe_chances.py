"""How good the chances are that `compile --probe` states, over simulated LMs with known gaps.

    python -m benchmarks.probe_chances --cells 40

Each cell is a real probe, then a real compile, then the plain and the compiled program on held-out
questions; only the LM is simulated. It has gaps of drawn sizes: in form (right answers inside a
sentence), in knowledge (some questions it never gets right), in retrieval (BM25 does not find the
passage), or in all of them, with answers that waver. Whether it follows demonstrations is drawn
too, and nothing that a probe asks shows it; whether it follows instructions, which repairing the
form shows. "Helps" is a held-out gain above the probe's margin.

A simulation says that the probe tells these gaps apart at its sizes. How often a real LM follows
demonstrations it does not say: we drew it.
"""

import argparse
import json
import random
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import dspy

from ragbench import optimizers
from ragbench.experiments.artifacts import load_artefact
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.plans import Plan, make_plan
from ragbench.experiments.probe import probe_program
from ragbench.experiments.probe.judging import MARGIN
from ragbench.experiments.runs import context as setup
from ragbench.programs.wrappers import FORM_INSTRUCTION
from tests.fakes import Asked, Reply, ScriptedLM, plausible

#: Of these two fifths are for training, a fifth for validation, and two fifths held out.
N = 360
KINDS = ("form", "knowledge", "retrieval", "all")
#: What the simulated writer of instructions proposes.
WRITTEN = "Reply with the town alone."


@dataclass(frozen=True)
class Gaps:
    """A simulated LM: shares of questions, in [0, 1], and what it follows.

    `wordy` are answered in a sentence, `unknown` never right, `hidden` without their passage,
    `wavering` right in half of the samples.
    """

    wordy: float = 0.0
    unknown: float = 0.0
    hidden: float = 0.0
    wavering: float = 0.0
    follows_demonstrations: bool = True
    follows_instructions: bool = True

    def script(self, asked: Asked) -> Reply:
        """The reply to `asked`, by hashes of the question: the same prompt has the same."""
        reply = plausible(asked)
        if "answer" not in reply:
            return {name: WRITTEN for name in reply}
        numbers = re.findall(r"Which town number (\d+) lies", asked.prompt)
        number = int(numbers[-1])
        shown = len(set(numbers)) > 1
        demonstrated = shown and self.follows_demonstrations
        bare = demonstrated
        if self.follows_instructions and (
            WRITTEN in asked.prompt or FORM_INSTRUCTION in asked.prompt
        ):
            bare = True
        right = f"seat of Town {number}." in asked.inputs.get("context", "")
        if chance("unknown", number) < self.unknown:
            right = False
        if chance("wavering", number) < self.wavering and not demonstrated:
            sample = asked.number if asked.request.config.temperature else 0
            right = right and chance(f"sample {sample}", number) < 0.5
        answer = f"Town {number}" if right else "Elsewhere"
        if chance("wordy", number) < self.wordy and not bare:
            answer = f"I have read the passages, and I believe that it must be {answer} in the end"
        return {**reply, "answer": answer}


def chance(what: str, number: int) -> float:
    """A number in [0, 1) that `what` and the question decide."""
    return random.Random(zlib.crc32(f"{what} {number}".encode())).random()


def drawn(kind: str, random_: random.Random) -> Gaps:
    """An LM with a gap of `kind` and of some size."""
    sizes = {"wordy": 0.0, "unknown": 0.0, "hidden": 0.0, "wavering": 0.0}
    gaps = {"form": ["wordy"], "knowledge": ["unknown"], "retrieval": ["hidden"]}
    for gap in gaps.get(kind, [*sizes]):
        sizes[gap] = random_.uniform(0.1, 0.8)
        if kind == "all":
            sizes[gap] /= 2
    return Gaps(
        **sizes,
        follows_demonstrations=random_.random() < 0.65,
        follows_instructions=random_.random() < 0.65,
    )


def write_questions(folder: Path, hidden: float, n: int = N) -> Path:
    """Questions with four passages each, in HotpotQA's layout; BM25 misses those of `hidden`."""
    rows = []
    for i in range(n):
        gold = f"Which town number {i} lies on river number {i}: the seat of Town {i}."
        if chance("hidden", i) < hidden:
            gold = f"Register, leaf {i}r: the seat of Town {i}."
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
def simulated(gaps: Gaps, name: str) -> Iterator[ScriptedLM]:
    """Inside the block every config is answered by `gaps`."""
    lm = ScriptedLM(gaps.script, name=name)
    with patch.object(setup, "make_lm", lambda spec, *_, **__: lm):
        yield lm


def config_of(folder: Path, gaps: Gaps) -> RunConfig:
    """A run of vanilla over questions written into `folder`."""
    fields: dict[str, Any] = {"program": "vanilla", "dataset": "hotpotqa", "lm": "scripted"}
    fields |= {"data_file": write_questions(folder, gaps.hidden), "k": 1, "adapter": "chat"}
    return RunConfig(**fields, limit=None, workers=1, cache=False)


def held_out_gain(plan: Plan, compiled: Path, most: int | None = None) -> float:
    """The gain in F1 of what was compiled, over at most so many questions held out."""
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


def cell(number: int, seed: int) -> tuple[str, float, float]:
    """Kind and optimizer of a cell, the chance that its probe stated, and the held-out gain."""
    random_ = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    gaps = drawn(kind, random_)
    optimizer = "copro"
    if number // len(KINDS) % 2:
        optimizer = "random_search"
    with tempfile.TemporaryDirectory() as name, simulated(gaps, f"cell {number}"):
        folder = Path(name)
        config = config_of(folder, gaps)
        fields: dict[str, Any] = {"train_limit": 60, "val_limit": 40, "out": folder / "out"}
        settings = CompileConfig(**{**fields, "optimizer": optimizer, "optimizer_seed": number})
        said: list[str] = []
        found = probe_program(config, settings, on_message=said.append)
        if found is None:
            raise SystemExit(f"cell {number}: {said}")
        compiled = compile_program(config, settings, on_message=said.append)
        gain = held_out_gain(make_plan(config, settings), compiled)
    return f"{kind:<9} {optimizer:<13}", found.chance, gain


def main() -> None:
    """Ask, compile and compare in every cell, and print the Brier score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    errors = []
    helped = []
    for number in range(given.cells):
        name, stated, gain = cell(number, given.seed)
        helps = gain > MARGIN
        errors.append((stated - helps) ** 2)
        helped.append(helps)
        print(f"{number:>2} {name} chance {stated:.2f}  gain {gain:+.3f}", flush=True)
    rate = fmean(helped)
    print(f"helps in {sum(helped)} of {len(helped)} cells")
    print(f"Brier score {fmean(errors):.3f}; always one half .250; always {rate:.2f} "
          f"{rate * (1 - rate):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
