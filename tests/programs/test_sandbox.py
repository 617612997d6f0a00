"""Generated code that tries to get out, or to use more than it may; see docs/architecture.md."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dspy.primitives.code_interpreter import CodeExecutionError

from ragbench.programs.rlm_repl.sandbox import Limits, Sandbox

SECRET = "canary-7c1f"
#: One second of running time per block; all the rest is slack for a busy machine.
BOUND_S = 150.0  # far above what it takes on a busy machine, far below for ever


def echo(text: str) -> str:
    """A tool."""
    return text


def flood() -> str:
    """A tool that returns too much."""
    return "x" * 5_000_000


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = Limits(seconds=1.0, memory_mb=32, output_chars=5_000, tool_calls=500)
    box = Sandbox(limits, tools={"echo": echo, "flood": flood})
    yield box
    box.shutdown()


SHARED = "x = []\nfor i in range(40): x = [x, x]\n"
HASHED = "x = 1\nfor i in range(40): x = (x, x)\n"
LINKED = "x = 1\nfor i in range(40):\n  a = A()\n  a.one, a.two = x, x\n  x = a\n"

# name, code ({file} is a readable file with the secret), what the refusal must say
ATTACKS = [
    ("open a file", "print(open('{file}').read())", "Permission"),
    ("write a file", "open('{file}.new', 'w').write('x')", "Permission"),
    ("make a link", "import os\nos.symlink('/etc', '{file}.new')", "Permission|no attribute"),
    ("environment", "import os\nprint(os.environ)", "not supported"),
    ("fork", "import os\nos.fork()", "no attribute"),
    ("SystemExit", "raise SystemExit", "SystemExit"),
    ("socket", "import socket\nsocket.create_connection(('127.0.0.1', 80))", "No module"),
    ("__import__", "__import__('os').system('id')", "not defined"),
    ("subclasses", "().__class__.__bases__[0].__subclasses__()", "no attribute"),
    ("globals of a tool", "print(echo.__globals__)", "no attribute|not defined"),
    ("format string", "print('{{0.__class__.__mro__}}'.format(1))", "no attribute"),
    ("traceback", "try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame", "no attribute"),
    ("caught endless loop", "while True:\n  try: 1/0\n  except: pass", "time limit"),
    ("endless generator", "x = all(i >= 0 for i in range(10**13))", "time limit|memory"),
    ("doubling string", "x = 'a'\nwhile True: x = x + x", "memory limit"),
    ("memory caught", "x = []\nwhile True:\n  try: x.append('a' * 10**6)\n  except: pass", "limit"),
    ("recursion", "def f(): return f()\nf()", "recursion"),
    ("nested JSON", "import json\njson.loads('[' * 100_000)", "recursion"),
    ("endless output", "while True: print('x' * 1000)", "time limit"),
    ("long submission", "SUBMIT('x' * 1_000_000)", "SUBMIT takes"),
    ("long error", "raise ValueError('x' * 1_000_000)", r"ValueError: x+ \.\.\."),
    ("long argument", "echo('x' * 1_000_000)", "too large"),
    ("unknown tool", "print(delete_everything())", "not defined"),
    ("endless tool calls", "while True: echo('x')", "tool call limit"),
    ("caught tool calls", "while True:\n  try: echo(1, 2, 3)\n  except: pass", "limit"),
    ("hoarded tool output", "x = []\nwhile True: x.append(flood())", "memory limit"),
    # values that take for ever to format or to hash; SHARED is 2^40 lists in 40 objects
    ("shared list for a tool", SHARED + "echo(x)", "too large"),
    ("shared list printed", SHARED + "print(x)", "limit|killed"),
    ("shared class", "class A: pass\n" + LINKED + "echo(x)", "too large"),
    ("hash of shared tuples", HASHED + "{{x: 1}}", "stopped at a limit"),
    ("deep list", "x = []\nfor i in range(100_000): x = [x]\necho(x)", "nested|memory|string"),
    ("huge number", "echo(10 ** 9000)", "too large"),
    ("wrong arguments", "echo(path='/etc/passwd')", "argument"),
]


@pytest.mark.parametrize(("code", "refusal"), [a[1:] for a in ATTACKS], ids=[a[0] for a in ATTACKS])
def test_attack_is_stopped(
    sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    code: str,
    refusal: str,
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setattr(sandbox, "_calls_left", 500)  # each attack is a question of its own
    before = time.perf_counter()
    with pytest.raises((CodeExecutionError, SyntaxError)) as caught:
        sandbox.execute(code.format(file=secret), {"given": "a variable"})
    assert time.perf_counter() - before < BOUND_S
    message = str(caught.value)
    assert re.search(refusal, message), message
    assert SECRET not in message
    assert len(message) <= 2100 + 5_000
    assert [f.name for f in tmp_path.iterdir()] == ["secret.txt"]
    assert sandbox.execute("print(1 + 1)") == "2"  # a worker that was stopped is replaced


def test_sandboxes_share_no_variables_and_count_the_tool_calls_of_a_question(
    sandbox: Sandbox, request: pytest.FixtureRequest
) -> None:
    box = Sandbox(Limits(tool_calls=3, memory_mb=32), tools={"echo": echo})
    request.addfinalizer(box.shutdown)
    sandbox.execute("mine = 1")
    with pytest.raises(CodeExecutionError, match="mine"):
        box.execute("print(mine)")
    assert box.execute("print(echo('a'), echo('b'))") == "a b"
    with pytest.raises(CodeExecutionError, match="all variables were lost"):
        box.execute("x = []\nwhile True: x.append('a' * 1_000_000)")
    box.execute("try: echo(1, 2)\nexcept TypeError: pass")  # one that fails counts as well
    with pytest.raises(CodeExecutionError, match=r"tool call limit \(3 per question\)"):
        box.execute("echo('c')")


def test_long_output_is_shown_by_its_two_ends(sandbox: Sandbox) -> None:
    shown = sandbox.execute("for i in range(9_999): print(i)")
    assert shown.startswith("0\n1\n")
    assert shown.endswith("\n9998")
    assert "characters left out" in shown
    assert len(shown) <= 5_000
    assert sandbox.execute("[1, {'a': (2, None)}]") == "[1, {'a': (2, None)}]"
    assert "too large" in sandbox.execute(SHARED + "x")


@pytest.mark.parametrize("gone", [False, True])
def test_killed_worker_is_replaced(sandbox: Sandbox, gone: bool) -> None:
    def workers() -> set[int]:
        children = Path("/proc/self/task").glob("*/children")
        return {int(pid) for task in children for pid in task.read_text().split()}

    if not any(Path("/proc/self/task").glob("*/children")):
        pytest.skip("needs /proc to find the worker's process")
    before = workers()
    box = Sandbox(Limits(seconds=2.0))
    try:
        box.execute("x = 1")
        (worker,) = workers() - before
        os.kill(worker, signal.SIGKILL)
        if gone:  # nobody reads what is written: closing the pipe would flush it once more
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        with pytest.raises(CodeExecutionError, match="all variables were lost"):
            box.execute("print(x)")
        assert box.execute("print('alive')") == "alive"
    finally:
        box.shutdown()
    assert workers() <= before  # none is left behind
