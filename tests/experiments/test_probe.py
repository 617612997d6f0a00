"""A probe: what it asks, what it says of gaps that are known, and what it advises."""

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from dspy import lm15

import ragbench as rb
from benchmarks.probe_chances import Gaps, chance, config_of, simulated
from ragbench.cli.main import cli
from ragbench.errors import RagbenchError, RunError
from ragbench.experiments.budgets import estimate_compile
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.plans import make_plan
from ragbench.experiments.probe import probe_program
from ragbench.experiments.probe.judging import (
    UNLIKELY,
    Answers,
    Means,
    chance_beyond,
    judge,
    means_of,
)
from ragbench.lms.calls import Limits, spending
from ragbench.optimizers import OPTIMIZERS
from ragbench.programs import PROGRAMS, RAGProgram
from ragbench.retrievers import Corpus, make_retriever
from tests.fakes import Asked, Reply, never_parses


def how(folder: Path, optimizer: str = "copro", **fields: Any) -> CompileConfig:
    sizes = {"train_limit": 40, "val_limit": 40, "out": folder / "out"}
    return CompileConfig(optimizer=optimizer, **{**sizes, **fields})


@pytest.mark.parametrize(
    ("gaps", "shown", "likely"),
    [
        (Gaps(wordy=0.8), ["form: .*: there is room$", "advice: the room is in the form"], True),
        (
            Gaps(hidden=0.7),
            [
                "form: .*no room is shown", "retrieval: .*: there is room; they were all found for",
                "no prompt of this program changes what is retrieved",
                "advice: do not compile; change what is retrieved",
            ],
            False,
        ),
        (Gaps(unknown=0.7), ["reading: 0.[5-9]", "samples: 0 of 22", "do not compile"], False),
        (Gaps(), ["zero-shot: f1 1.000", "advice: do not compile; the score is full"], False),
    ],
    ids=["form", "retrieval", "knowledge", "none"],
)  # fmt: skip
def test_it_says_where_there_is_room(
    gaps: Gaps, shown: list[str], likely: bool, tmp_path: Path
) -> None:
    config = config_of(tmp_path, gaps)
    settings = how(tmp_path, opt_set={"breadth": 6})
    said: list[str] = []
    with simulated(gaps, "probed") as lm:
        plan = make_plan(config, settings)
        found = probe_program(config, settings, on_message=said.append)
        most = estimate_compile(plan).likely.calls / 5
    assert found is not None
    assert (found.chance >= UNLIKELY) is likely, said
    for pattern in shown:
        assert any(re.search(pattern, line) for line in said), (pattern, said)
    assert len(lm.asked) == 5 * 22 <= most
    asked = {call.inputs["question"].partition("\n")[0] for call in lm.asked}
    assert asked <= {example.question for example in plan.train}
    assert len(asked) == 22
    kept = json.loads((tmp_path / "out" / "probe" / "probe.json").read_text())
    assert (kept["calls"], len(kept["gold"]), kept["chance"]) == (110, 22, found.chance)
    assert not (tmp_path / "out" / "compile.json").exists(), "it began to compile"


def test_where_ten_questions_do_not_fit_it_asks_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, Gaps())
    file = tmp_path / "unknown.py"
    file.write_text("class Unknown:\n    def compile(self, student, *, trainset):\n        1 / 0\n")
    for settings, words in (
        (how(tmp_path, "bootstrap"), "10 questions would take 50, more than a fifth"),
        (how(tmp_path, train_limit=8, val_limit=60), "there are 8 training questions"),
        (how(tmp_path, f"{file}:Unknown"), "will spend is unknown"),
    ):
        said: list[str] = []
        with simulated(Gaps(), "small") as lm:
            assert probe_program(config, settings, on_message=said.append) is None
        assert len(said) == 1
        assert words in said[0]
        assert lm.asked == []


def test_an_optimizer_that_can_change_nothing_is_told_without_a_call(tmp_path: Path) -> None:
    config = config_of(tmp_path, Gaps())
    said: list[str] = []
    with simulated(Gaps(), "labels") as lm:
        found = probe_program(config, how(tmp_path, "labeled"), on_message=said.append)
    assert found is not None
    assert found.chance == 0
    assert said[0].startswith("advice: do not compile; labeled has no demonstration")
    assert lm.asked == []


def test_calls_that_come_dearer_than_likely_end_it_within_its_share(tmp_path: Path) -> None:
    gaps = Gaps()
    config = config_of(tmp_path, gaps).but(workers=3)
    said: list[str] = []
    with simulated(gaps, "dear") as lm:
        lm.client.script = never_parses  # each reply is asked for twice
        found = probe_program(config, how(tmp_path), on_message=said.append)
    most = int(said[0].split("at most ")[1].split()[0])
    assert len(lm.asked) <= most
    assert found is None or "zero-shot: f1 0.000" in said[1]


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_failures_are_counted_and_are_no_answer(share: float, tmp_path: Path) -> None:
    gaps = Gaps()
    config = config_of(tmp_path, gaps)
    said: list[str] = []

    def failing(asked: Asked) -> Reply:
        town = re.findall(r"Which town number ([0-9]+) lies", asked.prompt)[-1]
        if chance("fails", int(town)) < share:
            return cast(Exception, lm15.InvalidRequestError("not this one", status=400))
        return gaps.script(asked)

    with simulated(gaps, f"failing {share}") as lm:
        lm.client.script = failing
        if share == 1:
            with pytest.raises(RunError, match="every question failed"):
                probe_program(config, how(tmp_path), on_message=said.append)
            return
        probe_program(config, how(tmp_path), on_message=said.append)
    failed = int(next(line for line in said if "runs failed" in line).split()[0])
    assert failed > 0
    assert failed % 5 == 0  # the same questions, each in five ways


def test_a_limit_of_the_command_ends_it_with_that_limit(tmp_path: Path) -> None:
    gaps = Gaps()
    config = config_of(tmp_path, gaps)
    stopped = pytest.raises(RagbenchError, match="--max-calls 20")
    with simulated(gaps, "limited") as lm, spending(Limits(calls=20)), stopped:
        probe_program(config, how(tmp_path), on_message=lambda line: None)
    assert len(lm.asked) == 20


def test_the_dry_run_says_its_size(tmp_path: Path) -> None:
    config = config_of(tmp_path, Gaps())
    words = (
        f"compile --probe --dry-run --program vanilla --k 1 --dataset hotpotqa --data-file "
        f"{config.data_file} --lm scripted --optimizer copro --out {tmp_path / 'out'}"
    )
    with simulated(Gaps(), "dry") as lm:
        result = CliRunner().invoke(cli, words.split(), catch_exceptions=False)
    assert result.output.startswith("probe: "), result.output
    assert lm.asked == []
    assert not (tmp_path / "out").exists()


def test_python_asks_the_same_and_gives_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = Gaps(wordy=0.8)
    config = config_of(tmp_path, gaps)
    settings = how(tmp_path, opt_set={"breadth": 6})
    said: list[str] = []
    with simulated(gaps, "command"):
        right = probe_program(config, settings, on_message=said.append)
    words: dict[str, Any] = {"data_file": config.data_file, "lm": "scripted", "k": 1}
    words |= {"adapter": "chat", "workers": 1, "cache": False, "limit": None}
    sizes = {"train_limit": 40, "val_limit": 40, "opt_set": {"breadth": 6}}
    with simulated(gaps, "python"):
        found = rb.compile(
            "vanilla", "hotpotqa", optimizer="copro", probe=True,
            settings={**sizes, "out": tmp_path / "python"}, **words,
        )  # fmt: skip
    assert found == right
    assert capsys.readouterr().out.splitlines() == said
    assert (tmp_path / "python" / "probe" / "probe.json").is_file()
    assert not (tmp_path / "python" / "compile.json").exists()


N = 20


def answers(**fields: Any) -> Answers:
    wrong = [0.0] * N
    plain = {"zero_shot": wrong, "form": wrong, "gold": wrong, "samples": [wrong, wrong]}
    return Answers(**{**plain, "exact": 0, "own_queries": False, **fields})


@pytest.fixture
def vanilla() -> RAGProgram:
    return PROGRAMS.get("vanilla")(make_retriever("bm25", Corpus(())))


@pytest.mark.parametrize(
    ("name", "exact", "teacher", "low", "high"),
    [
        ("bootstrap", 0, False, 0.2, 0.7),
        ("bootstrap", 10, False, 0.99, 1.0),
        ("bootstrap", 0, True, 0.9, 0.9),
        ("labeled", 10, False, 0.0, 0.0),  # a bare answer is no demonstration for a reader
        ("copro", 10, False, 0.0, 0.0),
        ("mipro", 10, False, 0.99, 1.0),
    ],
)
def test_demonstrations_are_of_right_answers(
    name: str, exact: int, teacher: bool, low: float, high: float, vanilla: RAGProgram
) -> None:
    optimizer = OPTIMIZERS.get(name)()
    means = means_of(optimizer, vanilla, answers(exact=exact), 50, teacher=teacher)
    assert low <= means.demonstrations <= high
    assert means.instructions is (name in ("copro", "mipro"))
    assert bool(means.why) is (not teacher and high < 0.9 and not means.instructions)


def test_no_means_no_chance_and_queries_of_its_own_can_reach_retrieval() -> None:
    gold = [1.0] * N
    full = Means(1.0, True)
    none = judge(answers(gold=gold), Means(0.0, False, "so it is"), "labeled", "em")
    assert none.chance == 0
    assert "labeled cannot help: so it is" in none.sentences
    fixed = judge(answers(gold=gold), full, "mipro", "em")
    own = judge(answers(gold=gold, own_queries=True), full, "mipro", "em")
    assert own.chance > fixed.chance + 0.1
    unknown = judge(answers(gold=None), full, "mipro", "em")
    assert any(line.startswith("retrieval: not known") for line in unknown.sentences)
    steady = judge(answers(samples=[gold, [0.0] * N]), full, "mipro", "em")
    assert steady.chance > 0.4
    assert any(f"samples: {N} of {N} questions" in line for line in steady.sentences)


def test_more_questions_make_the_chance_surer() -> None:
    assert chance_beyond([0.0] * 10) > chance_beyond([0.0] * 30)
    assert chance_beyond([1.0, 0.0] * 5) < chance_beyond([1.0, 0.0] * 15)
    assert chance_beyond([-1.0, 0.0] * 5) < 0.05
