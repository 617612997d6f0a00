"""What every optimizer keeps to: those that ship, chains, DSPy's own by name, and a stranger's."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError, KnobError, RunError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import CallRefusedError
from ragbench.lms.reply_cache import configure_cache
from ragbench.optimizers import OPTIMIZERS
from ragbench.optimizers.base import measure
from ragbench.user_code import allow
from tests.fakes import Asked, ScriptedLM
from tests.optimizers.world import SMALL, VAL, compiled, even_towns, program, scripted, task, town

STRANGER = '''
import dspy
from dspy.teleprompt import Teleprompter

class Tells(Teleprompter):
    """Asks for an instruction, and shows what was answered right."""

    def __init__(self, metric, prompt_model, shown=1, key_phrase=""):
        self.metric, self.lm, self.shown = metric, prompt_model, shown

    def compile(self, student, *, trainset, valset=None, seed=0, **kwargs):
        made = dspy.BootstrapFewShot(metric=self.metric, max_bootstrapped_demos=self.shown)
        best = made.compile(student, trainset=trainset)
        with dspy.context(lm=self.lm):
            said = dspy.Predict("task -> instruction")(task=trainset[0].question).instruction
        other = best.deepcopy()
        for p in other.predictors():
            p.signature = p.signature.with_instructions(said)
        means = [sum(self.metric(e, one(**e.inputs())) for e in valset) for one in (best, other)]
        return other if means[1] > means[0] else best

'''
#: Chains and one of DSPy's own, by the class that it has there.
FURTHER: dict[str, dict[str, Any]] = {
    "bootstrap -> copro": {"copro.breadth": 2, "copro.depth": 1},
    "dspy:BootstrapFewShotWithRandomSearch": {"num_candidate_programs": 1},
    "Tells": {"shown": 2},
}


@pytest.fixture
def names(tmp_path: Path) -> dict[str, str]:
    """The name in full of the class of the stranger's file."""
    file = tmp_path / "stranger.py"
    file.write_text(STRANGER)
    full = {"Tells": f"{file}:Tells"}
    allow(*full.values(), *FURTHER)
    return full


@pytest.mark.parametrize(
    ("name", "shape"),
    [("bootstrap", "self_rag"), *((name, "vanilla") for name in (*OPTIMIZERS.names(), *FURTHER))],
)
def test_a_killed_compile_comes_to_the_same_program_and_shows_nothing_that_is_held_out(
    name: str, shape: str, names: dict[str, str], tmp_path: Path
) -> None:
    full, knobs = names.get(name, name), SMALL.get(name) or FURTHER.get(name, {})
    configure_cache(tmp_path / "cache")

    def find(folder: str, most: int | None) -> tuple[dict[str, Any], ScriptedLM, ScriptedLM]:
        def script(asked: Asked) -> Any:
            if most is not None and asked.number > most:
                return CallRefusedError("no more")
            return even_towns(asked, style="x")

        student = scripted(script, name=f"{tmp_path.name}-{most is None}-lm", cache=True)
        writer = scripted(script, name=f"{tmp_path.name}-{most is None}-writer", cache=True)
        where = tmp_path / folder
        found = compiled(
            full, where, student, knobs=knobs, start=program(shape), prompt_lm=writer, workers=1
        )
        state = {"state": found.program.dump_state(), "files": dict(found.files)}
        return state, student, writer

    whole, student, writer = find("whole", None)
    cut = len(student.asked) // 2
    if cut > 2:
        with pytest.raises(RunError, match="same command"):
            find("cut", cut)
    again, _, _ = find("again", 10**6)
    assert json.dumps(again) == json.dumps(whole), "a compile that was cut came to another program"
    held_out = [example.question for example in VAL]
    if name not in ("labeled", "bootstrap", "knn", "Tells"):
        # DSPy's random search falls back to the training set without a word.
        assert all(any(text in asked.prompt for asked in student.asked) for text in held_out)
    shown = json.dumps(whole)
    assert not [text for text in held_out if text in shown]
    for asked in writer.asked:
        assert not [text for text in held_out if text in asked.prompt]
    for text in (shown, *(asked.prompt for asked in (*student.asked, *writer.asked))):
        assert "gold passage" not in text


def test_a_strangers_optimizer_gets_all_that_dspy_gives_and_its_knobs_are_its_arguments(
    names: dict[str, str], tmp_path: Path
) -> None:
    kind = OPTIMIZERS.get(names["Tells"])
    assert {"shown", "key_phrase"} <= kind.Knobs.model_fields.keys()
    assert kind.Knobs.model_fields.keys().isdisjoint({"metric", "prompt_model", "trainset"})
    with pytest.raises(KnobError, match="no knob 'shwon'; did you mean shown"):
        kind(shwon=2)
    found = compiled(names["Tells"], tmp_path, knobs={"shown": "2"})
    assert len(found.program.predictors()[0].demos) == 2
    assert len(found.candidates) == 2, "what it tried on validation is kept"


def test_a_writer_has_room_is_asked_once_more_and_what_is_cut_is_left_out(tmp_path: Path) -> None:
    """The student's replies may have 40 tokens; an instruction has 4,096, and twice that once."""

    def long(asked: Asked) -> dict[str, Any]:
        reply = even_towns(asked)
        for name in reply:
            if "instruction" in name:  # the first proposal is cut twice, the second once
                reply[name] = "word " * (1_000 if asked.number > 3 else 12_000)
        return reply

    student = scripted(max_tokens=40, cuts=True)
    writer = scripted(long, max_tokens=40, cuts=True, name="writer")
    knobs = {"breadth": 4, "depth": 1}
    with dspy.context(adapter=make_adapter("json")):  # DSPy's own asks for all again
        found = compiled("copro", tmp_path, student, prompt_lm=writer, knobs=knobs)
    rooms = [asked.request.config.max_tokens for asked in writer.asked]
    assert rooms == [4096, 8192, 4096, 8192, 4096]
    assert [text.startswith("the reply was cut at 8,192") for text in found.left_out] == [True]
    plain = len(program().predictors()[0].signature.instructions.split())
    for candidate in found.candidates:
        assert len(candidate.program.predictors()[0].signature.instructions.split()) in (
            1_000, plain
        )  # fmt: skip


def test_prompts_of_an_optimizer_do_not_depend_on_latency(tmp_path: Path) -> None:
    def luck(asked: Asked) -> dict[str, Any]:
        return {"answer": f"Ann {town(asked)}" if asked.number % 3 else "somebody"}

    prompts = []
    for number, latency in enumerate((0.0, 0.005)):
        writer = scripted(name="writer")
        student = scripted(luck, latency_s=latency)
        where = tmp_path / str(number)
        knobs = {**SMALL["simba"], "demos": 0}
        compiled("simba", where, student, knobs=knobs, prompt_lm=writer, workers=1)
        prompts.append([asked.prompt for asked in writer.asked])
    assert prompts[0]
    assert prompts[0] == prompts[1]
    assert "latency" not in prompts[0][0]
    assert "feedback" in prompts[0][0]


def test_candidate_log_has_scores_calls_and_tokens_of_all_candidates(tmp_path: Path) -> None:
    with open_ledger():
        found = compiled("random_search", tmp_path)
    assert len(found.candidates) >= 2
    for candidate in found.candidates:
        assert candidate.is_whole
        assert candidate.calls == len(VAL)
        assert candidate.tokens > 0
        again = measure(candidate.program, VAL, task(tmp_path))
        assert list(candidate.scores) == list(again.scores)


def test_mipro_takes_dspys_names_and_writes_instructions_alone(tmp_path: Path) -> None:
    knobs = {
        "num_candidates": 3, "num_trials": 2, "max_bootstrapped_demos": 0, "max_labeled_demos": 0,
        "tip_aware_proposer": "false", "program_aware_proposer": False,
    }  # fmt: skip
    lm = scripted()
    found = compiled("mipro", tmp_path, lm, knobs=knobs)
    assert all(not candidate.program.predictors()[0].demos for candidate in found.candidates)
    assert len(found.candidates) >= 2
    with pytest.raises(ConfigError, match="give one of them"):
        OPTIMIZERS.get("mipro")(num_candidates=3, candidates=3)


def test_the_page_has_the_table_of_optimizers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compiling.md").read_text()
    for name, kind in OPTIMIZERS:
        row = f"| `{name}` | {kind.changes} | {kind.sees} |"
        assert row in page, f"the table of docs/compiling.md has no such row; add: {row}"
    assert page.count("\n| `") >= len(OPTIMIZERS.names())
