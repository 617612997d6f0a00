"""The identity of what is handed over: nothing that may answer otherwise is taken for the same."""

import dataclasses
import enum
import functools
import io
import logging
import os
import random
import re
import subprocess
import sys
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from pydantic import BaseModel

import ragbench as rb
from ragbench import handed_over
from ragbench.handed_over import identity_of
from ragbench.passages import Corpus, Passage
from ragbench.retrievers import make_retriever
from tests.fake_server import FakeServer

FACTOR = [1, 2]
SETTINGS = {"depth": 1}


class Helper:
    """A helper of a module."""

    level = 1

    def __init__(self, name: str = "x") -> None:
        self.name = name

    def work(self, question: str) -> str:
        return self.name + question


@dataclasses.dataclass
class Plan:
    """Steps."""

    steps: list[str]
    helper: Helper | None = None


class Slotted:
    """State in slots."""

    __slots__ = ("__hidden", "shown")

    def __init__(self, shown: int, hidden: int) -> None:
        self.shown, self.__hidden = shown, hidden


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


class Row(BaseModel):
    """A model."""

    x: int = 1


class Words(dict[str, int]):
    """A dict with an attribute."""

    most = 3


class Own(dspy.Module):
    """A module whose state and code are given."""

    def __init__(self, state: Any = None, code: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.state, self.code = state, code
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(self.answer(question=question))


def factor(question: str, times: int = 2) -> str:
    return question * times * len(FACTOR)


def indirect(question: str) -> str:
    return factor(question)


def closed(value: Any) -> Callable[[], Any]:
    def inner() -> Any:
        return value

    return inner


def with_default(value: Any) -> Callable[..., Any]:
    def inner(question: str, *, most: Any = value) -> Any:
        return most

    return inner


def array(last: float, kind: str = "float32") -> Any:
    return np.asarray([[1.0, 2.0], [3.0, last]], kind)


def predict(instructions: str) -> dspy.Predict:
    return dspy.Predict(dspy.Signature("question -> answer", instructions))


def with_demos(answer: str) -> dspy.Predict:
    made = dspy.Predict("question -> answer")
    made.demos = [dspy.Example(question="q", answer=answer)]
    return made


def retriever(text: str, **settings: Any) -> Any:
    return make_retriever("bm25", Corpus((Passage("1", "", text),)), **settings)


def in_cycle(value: Any) -> list[Any]:
    made: list[Any] = [value]
    made.append(made)
    return made


def changed(function: Callable[[], Any], target: Any, name: str, value: Any) -> Callable[[], Any]:
    """`function`, called while `target` has another value under `name`."""

    def call() -> str:
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(target, dict):
                patch.setitem(target, name, value)
            else:
                patch.setattr(target, name, value)
            return identity_of(function()).digest

    return call


M = sys.modules[__name__]
#: What is compared -> two makers of what must not be one.
DIFFERENT: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "number": (lambda: Own(1), lambda: Own(2)),
    "number and bool": (lambda: Own(1), lambda: Own(True)),
    "number and text": (lambda: Own(1), lambda: Own("1")),
    "zeros of two signs": (lambda: Own(0.0), lambda: Own(-0.0)),
    "list": (lambda: Own([1, [2]]), lambda: Own([1, [3]])),
    "list and tuple": (lambda: Own([1]), lambda: Own((1,))),
    "where texts end": (lambda: Own(["ab", "c"]), lambda: Own(["a", "bc"])),
    "order of a dict": (lambda: Own({"a": 1, "b": 2}), lambda: Own({"b": 2, "a": 1})),
    "set": (lambda: Own({"a", "b"}), lambda: Own({"a", "c"})),
    "counter": (lambda: Own(Counter("aab")), lambda: Own(Counter("abb"))),
    "ordered dict": (lambda: Own(OrderedDict(a=1)), lambda: Own(OrderedDict(a=2))),
    "deque": (lambda: Own(deque([1])), lambda: Own(deque([2]))),
    "bytes": (lambda: Own(bytearray(b"a")), lambda: Own(bytearray(b"b"))),
    "array": (lambda: Own(array(4.0)), lambda: Own(array(4.5))),
    "type of an array": (lambda: Own(array(4.0)), lambda: Own(array(4.0, "float64"))),
    "array of objects": (
        lambda: Own(np.array([Helper("a"), None])), lambda: Own(np.array([Helper("b"), None]))
    ),
    "number of numpy": (lambda: Own(np.float64(1)), lambda: Own(np.float64(2))),
    "helper": (lambda: Own(Helper("a")), lambda: Own(Helper("b"))),
    "dataclass": (lambda: Own(Plan(["a"])), lambda: Own(Plan(["b"]))),
    "deep": (lambda: Own(Plan([], Helper("a"))), lambda: Own(Plan([], Helper("b")))),
    "slots": (lambda: Own(Slotted(1, 1)), lambda: Own(Slotted(1, 2))),
    "enum": (lambda: Own(Colour.RED), lambda: Own(Colour.BLUE)),
    "model": (lambda: Own(Row(x=1)), lambda: Own(Row(x=2))),
    "own dict": (lambda: Own(Words(a=1)), lambda: Own(Words(a=2))),
    "pattern": (lambda: Own(re.compile("a")), lambda: Own(re.compile("a", re.I))),
    "path": (lambda: Own(Path("a")), lambda: Own(Path("b"))),
    "partial": (
        lambda: Own(functools.partial(factor, times=1)),
        lambda: Own(functools.partial(factor, times=2)),
    ),
    "bound method": (lambda: Own(Helper("a").work), lambda: Own(Helper("b").work)),
    "method of C": (lambda: Own(["a"].append), lambda: Own(["b"].append)),
    "closure": (lambda: Own(code=closed(1)), lambda: Own(code=closed(2))),
    "default": (lambda: Own(code=with_default(1)), lambda: Own(code=with_default(2))),
    "code": (lambda: Own(code=lambda q: q + "a"), lambda: Own(code=lambda q: q + "b")),
    "cached function": (
        lambda: Own(code=functools.cache(closed(1))), lambda: Own(code=functools.cache(closed(2)))
    ),
    "cycle": (lambda: Own(in_cycle(1)), lambda: Own(in_cycle(2))),
    "nested module": (lambda: Own(Own(1)), lambda: Own(Own(2))),
    "attribute that was added": (lambda: Own(), lambda: _with(Own(), extra=1)),
    "instructions": (lambda: predict("Answer."), lambda: predict("Answer briefly.")),
    "demonstration": (lambda: with_demos("a"), lambda: with_demos("b")),
    "fields": (lambda: dspy.Predict("q -> a"), lambda: dspy.Predict("q -> a: int")),
    "setting of a predictor": (
        lambda: dspy.Predict("q -> a", temperature=0.1), lambda: dspy.Predict("q -> a", n=2)
    ),
    "LM of a predictor": (
        lambda: _with(dspy.Predict("q -> a"), lm=dspy.LM("openai/a")),
        lambda: _with(dspy.Predict("q -> a"), lm=dspy.LM("openai/b")),
    ),
    "server of an LM": (
        lambda: dspy.LM("openai/a", api_base="http://a/v1"),
        lambda: dspy.LM("openai/a", api_base="http://b/v1"),
    ),
    "sampling of an LM": (
        lambda: dspy.LM("openai/a", temperature=0.1), lambda: dspy.LM("openai/a", temperature=0.2)
    ),
    "passages": (lambda: Own(retriever("a")), lambda: Own(retriever("b"))),
    "settings of a retriever": (
        lambda: Own(retriever("a", k1=1.0)), lambda: Own(retriever("a", k1=1.1))
    ),
    "state in C": (lambda: Own(random.Random(1)), lambda: Own(random.Random(2))),
    "header of an LM": (
        lambda: dspy.LM("openai/a", extra_headers={"x-kind": "a"}),
        lambda: dspy.LM("openai/a", extra_headers={"x-kind": "b"}),
    ),
    "adapter": (
        lambda: dspy.ChatAdapter(), lambda: dspy.ChatAdapter(use_json_adapter_fallback=False)
    ),
    "field of a signature": (
        lambda: dspy.Predict(_signature("short")), lambda: dspy.Predict(_signature("long"))
    ),
}  # fmt: skip


def _with(value: Any, **attributes: Any) -> Any:
    for name, each in attributes.items():
        setattr(value, name, each)
    return value


def _signature(said: str) -> type[dspy.Signature]:
    class Asked(dspy.Signature):
        """Answer."""

        question: str = dspy.InputField()
        rows: list[Row] = dspy.OutputField(desc=said)

    return Asked


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_another_and_what_is_made_again_is_the_same(name: str) -> None:
    first, second = DIFFERENT[name]
    one, other = identity_of(first()), identity_of(second())
    assert (one.unread, other.unread) == ((), ())
    assert one.digest != other.digest
    assert (identity_of(first()), identity_of(second())) == (one, other)


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (M, "FACTOR", [1, 2, 3]),
        (SETTINGS, "depth", 2),
        (Helper, "level", 2),
        (Helper, "work", lambda self, question: "another"),
        (M, "factor", lambda question: "another"),
        (factor, "__defaults__", (3,)),
    ],
)
def test_what_the_code_of_a_function_names_is_read(target: Any, name: str, value: Any) -> None:
    def code(question: str) -> str:
        return Helper().work(indirect(question)) * SETTINGS["depth"]

    before = identity_of(code).digest
    assert changed(lambda: code, target, name, value)() != before
    assert identity_of(code).digest == before


MODE = ContextVar("mode", default="a")
LOCAL = threading.local()
LOCAL.mode = "a"
KEPT = Helper()
WEAK: weakref.WeakValueDictionary[str, Helper] = weakref.WeakValueDictionary(kept=KEPT)
#: What is read -> what changes under it.
CHANGED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "variable of a context": (lambda: Own(code=lambda q: MODE.get()), lambda: MODE.set("b")),
    "thread's own": (lambda: Own(code=lambda q: LOCAL.mode), lambda: setattr(LOCAL, "mode", "b")),
    "weak reference": (lambda: Own(weakref.ref(KEPT)), lambda: setattr(KEPT, "name", "b")),
    "weak table": (lambda: Own(code=lambda q: WEAK["kept"]), lambda: setattr(KEPT, "name", "c")),
    "file that code reads": (
        lambda: Own(code=lambda q: Path("facts.txt").read_text()),
        lambda: Path("facts.txt").write_text("two"),
    ),
    "file that an attribute names": (
        lambda: Own("facts.txt"), lambda: Path("facts.txt").write_text("three")
    ),
    "path": (lambda: Own([Path("facts.txt")]), lambda: Path("facts.txt").write_text("four")),
    "name that is put together": (
        lambda: Own(code=lambda q: getattr(M, "FAC" + "TOR")), lambda: FACTOR.append(3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_under_an_object_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("facts.txt").write_text("one")
    make, change = CHANGED[name]
    before = identity_of(make())
    assert identity_of(make()) == before
    change()
    assert identity_of(make()).digest != before.digest


def test_a_file_that_the_code_itself_writes_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text("")
    module = Own(code=lambda q: Path("log.txt").write_text(q))
    before = identity_of(module)
    Path("log.txt").write_text("more")
    assert identity_of(module) == before


def test_a_name_counts_where_something_cannot_be_read_alone() -> None:
    names = {handed_over.keep(Own(1), "own:Own", stands_for=name) for name in "ab"}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (io.StringIO("x"), ""),
        ((n for n in [1]), "cannot pickle 'generator' object"),
        (open(__file__, encoding="utf-8"), "TextIOWrapper"),  # noqa: SIM115  # closed below
        (lambda text: eval(text), "eval() does stands in no code"),
    ],
)
def test_what_cannot_be_read_is_named(part: Any, said: str) -> None:
    identity = identity_of(Own({"client": [part]}))
    assert bool(identity.unread) == bool(said)
    if said:
        assert identity.unread[0].startswith("Own.state.client (")
        assert said in identity.unread[0]
    if hasattr(part, "close") and not isinstance(part, io.StringIO):
        part.close()


def test_locks_logs_and_histories_tell_nothing_apart() -> None:
    module = Own([threading.Lock(), threading.Condition(), logging.getLogger("x")])
    before = identity_of(module)
    module.history.append({"cost": 1})
    module.answer.stage = "another"
    assert identity_of(module) == before
    assert before.unread == ()
    keys = [dspy.LM("openai/a", api_key=key, timeout=t) for key, t in (("a", 1), ("b", 2))]
    assert identity_of(keys[0]) == identity_of(keys[1])


def test_an_object_with_an_unreadable_part_is_another_each_time_but_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = Own(n for n in [1])
    names = [handed_over.keep(module, "own:Own") for _ in range(2)]
    assert names[0] != names[1]
    assert "Own.state (cannot pickle 'generator' object) cannot be read" in caplog.text
    assert "give name=... or out=FOLDER" in caplog.text
    named = [handed_over.keep(module, "own:Own", stands_for=name) for name in "aab"]
    assert named[0] == named[1] != named[2]
    assert handed_over.find(named[0]) is module
    assert handed_over.label_of(named[0]) == "own:Own"


SCRIPT = """
import helper_of_mine
from ragbench.handed_over import identity_of
print(identity_of(helper_of_mine.Own()).digest, identity_of(helper_of_mine.late).digest)
"""
HELPER = """
import dspy
NAMES = {"a", "b", "c", "d"}

def late(question):
    from part_of_mine import tail
    return tail(question)

class Own(dspy.Module):
    def __init__(self):
        super().__init__()
        self.kinds = {kind: {kind} for kind in ("x", "y")}
        self.answer = dspy.ChainOfThought("question -> answer")

    def forward(self, question):
        return self.answer(question=question + str(NAMES))
"""


def test_another_process_gives_the_same_identity_until_code_changes(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text(HELPER)

    def read(seed: str) -> list[str]:
        command = [sys.executable, "-c", SCRIPT]  # which finds modules where it is started
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.check_output(command, text=True, cwd=tmp_path, env=env).split()

    (tmp_path / "part_of_mine.py").write_text("def tail(q):\n    return q\n")
    first = read("1")
    assert read("2") == first
    (tmp_path / "part_of_mine.py").write_text("def tail(q):\n    return q + '?'\n")
    now = read("1")
    assert (now[0], now[1] != first[1]) == (first[0], True)
    (tmp_path / "helper_of_mine.py").write_text(HELPER.replace('"a", ', ""))
    assert read("1")[0] != first[0]


def test_an_attribute_that_changed_is_another_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    corpus = Corpus(tuple(Passage(str(n), "", f"town {n}") for n in range(9)))
    examples = [dspy.Example(question=f"Which town {n}?", answer="9") for n in range(2)]

    class Reads(dspy.Module):
        """Read the first passages."""

        def __init__(self, k: int) -> None:
            super().__init__()
            self.k, self.retriever = k, rb.make_retriever("bm25", corpus)
            self.answer = dspy.Predict("context, question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            found = self.retriever.search(question, k=self.k)
            answer = self.answer(context=str(found), question=question).answer
            return dspy.Prediction(answer=answer, passages=found)

    with FakeServer() as server:
        lm = dspy.LM("openai/m", api_base=server.url, api_key="none")
        runs = [rb.evaluate(Reads(k), examples, lm=lm) for k in (1, 3, 1)]
        assert runs[0].folder == runs[2].folder != runs[1].folder
        assert [len(run.records[0].passages) for run in runs] == [1, 3, 1]
        assert len(server.hits) == 4
