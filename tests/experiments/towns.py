"""Questions about towns, and a scripted LM that compiling helps, for tests of whole commands."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import StopSignal
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs import context as setup
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.kills import write_questions

N = 40  # 16 for training, 8 for validation, 16 held out


def write_towns(folder: Path) -> Path:
    return write_questions(folder, N)


def town(asked: Asked) -> int:
    """The number asked for, of the question itself and not of a demonstration."""
    found = re.findall(r"Which town number (\d+) lies", asked.inputs.get("question", ""))
    return int(found[-1]) if found else -1


def helped_by_demos(asked: Asked) -> Reply:
    """Right for a quarter; in a sentence for a quarter; for another quarter with demonstrations."""
    reply = plausible(asked)
    if "answer" not in reply:
        return reply
    number = town(asked)
    shown = len(re.findall(r"Which town number", asked.prompt)) > 1
    right = number % 4 == 0 or (number % 4 in (1, 2) and shown)
    long = "The answer is " if number % 4 == 1 and not shown else ""
    return {**reply, "answer": f"{long}Town {number}" if right or long else "elsewhere"}


Script = Callable[[Asked], Reply]


class Killed(StopSignal, KeyboardInterrupt):
    """The user's Ctrl-C, or as good as a kill: no `except Exception` sees it."""


def killed_at(call: int, script: Script = helped_by_demos) -> Script:
    """`script` until the `call`-th call, at which the process is stopped."""
    calls = itertools.count(1)

    def counted(asked: Asked) -> Reply:
        if next(calls) >= call:
            raise Killed
        return script(asked)

    return counted


class World:
    """A config over the towns, and the LM that every command made from it asks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAGBENCH_CACHE", str(folder / "cache"))
        self.folder, self._patch = folder, monkeypatch
        self.data = write_towns(folder)
        self.lm = self.use()

    def use(self, script: Script = helped_by_demos, **settings: Any) -> ScriptedLM:
        """An LM of the same name, so of the same cache, that `script` answers from now on."""
        name = f"towns-{self.folder}"
        self.lm = ScriptedLM(script, **{"cache": True, "name": name, **settings})
        self._patch.setattr(setup, "make_lm", lambda spec, *_, **__: self.lm)
        return self.lm

    def config(self, **over: Any) -> RunConfig:
        given = {
            "program": "vanilla", "dataset": "jsonl", "data_file": self.data, "lm": "scripted",
            "limit": None, "workers": 2, "adapter": "chat", **over,
        }  # fmt: skip
        if given["program"] == "vanilla":
            given.setdefault("k", 1)
        if given.get("k", 1) is None:  # the knob is left to the search
            del given["k"]
        return RunConfig(**given)
