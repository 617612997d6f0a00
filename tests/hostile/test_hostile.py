"""Hostile configs, runs, compiled programs and replies end in one clear line or in a result.

No traceback, no hang, nothing lost. Each case is a change of something good, drawn from a seed;
`tests/data/test_malformed.py` does it to data files.
"""

import copy
import json
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import pytest
import yaml

from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs.asking import ask
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import read_card
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from ragbench.passages import Corpus
from ragbench.programs import PROGRAMS
from ragbench.retrievers.factory import make_retriever
from tests.cli.test_mistakes import run
from tests.experiments.scored_runs import CARD, four, make_run
from tests.experiments.towns import World
from tests.retrievers.wire import serving
from tests.runs import query, sign

SECONDS = 20  # a case that takes longer hangs
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮]")
VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), "", " ", "\x00", "\ud800",
    "\x1b[2J\x07", "../../etc/passwd", "=cmd()|x", "{{7*7}}", [], {}, [[]], [None], {"": None},
    {"a": {"b": []}}, "x" * 5000, "‮abc", ["q1", "q1"], -0.5, "null", "NaN", False,
]  # fmt: skip
RAW = [
    b"", b" \n", b"\xff\xfe\x00", b"\x00" * 64, b"null", b"[]", b"{}", b'"text"', b"[" * 20_000,
    b'{"a":' * 20_000, b"{" + b"9" * 5000, b"\x80\x04\x95", b"PK\x03\x04", b"\xef\xbb\xbf{}",
    b"<html>502</html>", b'{"qid": "q"}\n' * 3, b"\r\n\r\n", b'{"a": 1}{"a": 2}',
    b'{"a": NaN}', b"1e999",
]  # fmt: skip
_BOMB = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefg"))
YAML = [
    "program: [", "\tprogram: x", "- a\n- b", "program: !!python/object/apply:os.system [id]",
    "inherits: itself.yaml", "inherits: 7", "inherits: ../../etc/passwd", "1: 2", "? [a]\n: b",
    f"a: &a [x,x,x,x,x,x,x,x,x]\n{_BOMB}set: {{k: [*g,*g,*g,*g,*g,*g,*g,*g,*g]}}",
    "a: &a\n  b: *a", "program: \x00", "program: ircot\nprogram: 7\nprogarm: x", "---\n---\n",
    "set: {variant: {a: b}}", "limit: .inf", "seed: 0x7fffffffffffffffffffffff", "%YAML 9.9\n---\n",
    "out: /proc/nothing/here", "out: ''", "data_file: .", "lm_for: {answer: 7}", "set: [1]",
    "program: ‮tocri", "workers: 1e400", "dataset: '\x1b[2J'", "retriever_set: {k1: .nan}",
]  # fmt: skip
CONFIG: dict[str, Any] = {
    "program": "vanilla", "set": {"k": 1, "context_tokens": 500}, "dataset": "jsonl",
    "data_file": "questions.jsonl", "setting": "distractor", "split": "test", "limit": 1,
    "lm": "scripted", "lm_for": {"answer": "scripted"}, "temperature": 0.0, "adapter": "chat",
    "retriever": "bm25", "retriever_set": {"k1": 0.9}, "workers": 1, "seed": 42, "cache": False,
}  # fmt: skip
FULL_CARD: dict[str, Any] = {
    **CARD,
    "identity": {**CARD["identity"], "retriever": "bm25", "dataset": "jsonl"},
    "adapter": "LenientJSON", "limit": 4, "questions": 4, "preparation": {"calls": []},
    "versions": {"ragbench": "0", "dspy": "0", "python": "3"},
}  # fmt: skip
#: A reply that reads well in the chat format.
COMPLETION: dict[str, Any] = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "tool_calls": [],
        "content": "[[ ## reasoning ## ]]\nso\n\n[[ ## answer ## ]]\nOslo\n\n[[ ## completed ## ]]",
    }}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
}  # fmt: skip


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_yaml(value: Any) -> bytes:
    return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def changed(good: Any, n: int, write: Callable[[Any], bytes] = as_json) -> Iterator[bytes]:
    """`good` with one place set to another value, or dropped, `n` times."""
    rng = random.Random(20260)
    for _ in range(n):
        value = copy.deepcopy(good)
        target, place = value, rng.choice([p for p in places(value)[1:] if len(p) < 5])
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = rng.choice(VALUES)
        if rng.random() < 0.2:
            del target[place[-1]]
        yield write(value)


def damaged(good: bytes, raw: int, n: int) -> Iterator[bytes]:
    """`raw` contents that have nothing of `good`; and it, `n` times, cut and with a bit turned."""
    rng = random.Random(20261)
    yield from rng.sample(RAW, raw)
    for _ in range(n):
        at = rng.randrange(len(good))
        yield good[:at]
        yield good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :]


@contextmanager
def in_time(case: bytes) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"{case[:300]!r} hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., int]:
    """Runs `ragbench ARGS` in this process, and checks what it wrote; gives the exit code."""

    def checked(case: bytes, *args: object) -> int:
        with in_time(case):
            code, out, err = run(capsys, *map(str, args))
        told = f"{args}: {case[:300]!r}\n{err[-1500:]}"
        assert "Traceback" not in err, told
        assert not CONTROL.findall(out + err), told
        assert code in (0, 1, 2), told
        lines = [x for x in err.splitlines() if x.strip() and "questions to ask" not in x]
        if code == 2 and not out:
            *warnings, error = lines
            assert all(line.startswith("warning: ") for line in warnings), told
            assert error.startswith("error: "), told
            assert len(error) < 2100, told
        return code

    return checked


def test_configs(world: World, command: Callable[..., int]) -> None:
    cases = [*(text.encode() for text in YAML), *damaged(as_yaml(CONFIG), 8, 0)]
    refused = 0
    for case in [*cases, *changed(CONFIG, 15, as_yaml)]:
        Path("itself.yaml").write_bytes(case)
        some = ("--lm", "x", "--limit", 1, "--size", 100)
        refused += command(case, "eval", "--config", "itself.yaml", *some) == 2
    assert refused > 30


def test_run_folders(world: World, command: Callable[..., int]) -> None:
    good = make_run(Path("good"), four(), **FULL_CARD)
    score_run(good, ScoreRequest())
    (good / "summary.json").write_bytes(as_json(reopen(good).summary.to_dict()))
    cases: list[tuple[str, bytes]] = []
    for name in ("card.json", "run.db", "summary.json", "scores.json"):
        content = (good / name).read_bytes()
        cases += [(name, case) for case in damaged(content, 4, 8 if name == "run.db" else 1)]
    cases += [("card", case) for case in changed(read_card(good).model_dump(mode="json"), 10)]
    cases += [("record", case) for case in changed(four()[0].to_dict(), 15)]
    for number, (what, case) in enumerate(cases):
        folder = shutil.copytree(good, f"run-{number}")
        if what == "card":
            query(Path(folder), "UPDATE run SET value = ? WHERE name = 'card'", case.decode())
        elif what == "record":
            sign(Path(folder), 1, case.decode())
        else:
            Path(folder, what).write_bytes(case)
        name = ("show", "score", "errors", "compare", "report")[number % 5]
        more = {"compare": [good], "report": ["-o", "page.html"]}.get(name, [])
        command(case, name, folder, *more)
        command(case, "verify", folder)


def test_compiled_programs(world: World, command: Callable[..., int]) -> None:
    how = CompileConfig(optimizer="labeled", train_limit=4, val_limit=2, out=Path("good"))
    good = compile_program(world.config(), how, on_message=lambda line: None)
    refused = 0
    for name in ("sidecar.json", "program.json", "compile.json"):
        content = (good / name).read_bytes()
        cases = [*damaged(content, 4, 1)]
        signed = len(cases)  # from here on, so that the reader meets what checksums keep out
        if name != "compile.json":
            cases += changed(json.loads(content), 15)
        for number, case in enumerate(cases):
            folder = Path(shutil.copytree(good, f"{name}-{number}"))
            (folder / name).write_bytes(case)
            if name == "program.json" and number >= signed:
                sidecar = json.loads((folder / SIDECAR).read_bytes())
                sidecar["program_sha256"] = sha256(case).hexdigest()
                (folder / SIDECAR).write_text(json.dumps(sidecar))
            how = ["--data-file", world.data, "--lm", "x", "--limit", 1, "--compiled", folder]
            refused += command(case, "eval", *how, "--out", f"o-{folder}") == 2
            command(case, "verify", folder)
    assert refused > 12


def test_replies() -> None:
    case = b""
    program = PROGRAMS.get("direct")(make_retriever("bm25", Corpus(()), setting="pooled"))
    example = dspy.Example(qid="q", question="Where?", answers=["Oslo"])
    with serving(lambda path, body: (200, case)) as wire:
        lm = make_lm("openai/m", api_base=wire.address, cache=False, retries=0, timeout=5)
        for case in [*damaged(as_json(COMPLETION), len(RAW), 3), *changed(COMPLETION, 30)]:
            with in_time(case), dspy.context(lm=lm, adapter=make_adapter("chat", lm)):
                record = ask(program, example)
            if record.failure:
                assert record.failure.boundary in ("provider", "parse"), (case, record)
                assert "\n" not in record.failure.error
            assert json.loads(json.dumps(record.to_dict()))["qid"] == "q"
        lm.close()
    assert len(wire.requests) > 50
