"""What is told of a long command while it goes; each method does nothing until overridden."""

from ragbench.record import Record


class Watch:
    """Is told how far a command has come; the command line shows it."""

    def say(self, line: str) -> None:
        """Something came to an end: a cell of a sweep, a step of a compile."""

    def prepare(self, done: int, total: int, what: str = "") -> None:
        """So much of the index, or of `what` else all questions share, is made."""

    def start(self, title: str, todo: int, done: int) -> None:
        """`todo` questions begin, `done` were finished before."""

    def update(self, record: Record, done: int, todo: int) -> None:
        """A question has its record."""

    def count(self, what: str, done: int, total: int, more: str = "") -> None:
        """So many of something are done, such as trials; `more` is what they came to so far."""


#: Shows nothing.
SILENT = Watch()
