"""Runs the `sh` and `python` blocks of a page of the documentation in order.

bash runs each `sh` block, so that loops, patterns and redirections mean what they mean to a user.
`ragbench` is a function there: it hands its arguments to this process, which runs the command.
"""

import contextlib
import io
import os
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Arguments of `ragbench` -> exit code, standard output and standard error.
Command = Callable[..., tuple[int, str, str]]
_FUNCTION = """
ragbench() {{
  printf '%s\\0' "$@" > "$PLAYED/arguments"
  echo >&{asks}
  read -r code <&{answered}
  cat "$PLAYED/output"
  return "$code"
}}
"""


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    language: str
    code: str


@dataclass
class Played:
    """A command that a block ran, and its result."""

    words: list[str]
    exit_code: int
    output: str
    errors: str


@dataclass
class Player:
    """Plays the blocks of a page in the working folder.

    Args:
        command: Runs `ragbench` in this process.
        skipped: Programs other than ragbench that do nothing here.
        exempt: Return True for the arguments of a `ragbench` command that does not run here.
        folder: A folder for the messages between bash and this process.
    """

    command: Command
    skipped: tuple[str, ...]
    exempt: Callable[[list[str]], bool]
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "docs"})
    printed: io.StringIO = field(default_factory=io.StringIO)
    played: list[Played] = field(default_factory=list)

    def play(self, block: Block) -> None:
        """Run a block, or write a YAML block that begins with the name of its file.

        Raises what its Python code raises.
        """
        if block.language == "yaml":
            name = re.match(r"# (\w+\.yaml)", block.code)
            if name:
                Path(name[1]).write_text(block.code, "utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(self.printed):
                exec(compile(block.code, "a block of the page", "exec"), self.names)
        elif block.language == "sh":
            self._shell(block.code)

    def _shell(self, code: str) -> None:
        asked, asks = os.pipe()
        answered, answers = os.pipe()
        functions = [_FUNCTION.format(asks=asks, answered=answered)]
        functions += [f"{name}() {{ :; }}\n" for name in self.skipped]
        shell = subprocess.Popen(
            ["bash", "-c", "".join([*functions, code])],
            pass_fds=(asks, answered),
            env={**os.environ, "PLAYED": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(asks)
        os.close(answered)
        with shell, open(asked) as calls, open(answers, "w") as replies:
            for _ in calls:
                words = (self.folder / "arguments").read_text("utf-8").split("\0")[:-1]
                replies.write(f"{self._run(words)}\n")
                replies.flush()
            errors = shell.stderr.read() if shell.stderr else ""
        assert errors == "", errors

    def _run(self, words: list[str]) -> int:
        output, exit_code = "", 0
        if not self.exempt(words):
            exit_code, output, errors = self.command(*words)
            self.played.append(Played(words, exit_code, output, errors))
        (self.folder / "output").write_text(output, "utf-8")
        return exit_code

    def output_of(self, part: str) -> str:
        """Return the output of the first command that contains `part`."""
        return next(each.output for each in self.played if part in " ".join(each.words))


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of code of a page, also those in lists."""
    for _, language, indented in re.findall(r"^( *)```(\w+)\n(.*?)^\1```", page, re.M | re.S):
        yield Block(language, textwrap.dedent(indented))
