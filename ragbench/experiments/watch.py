"""What is told of a long command while it goes; each method does nothing until overridden."""

from collections.abc import Sequence

from ragbench.record import Call, Record, total as sum_of


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


#: Paid items of an index from which the cost of the others is measured.
LEAST = 3


class Forecast:
    """Passes the progress of an index on, and once says what the rest of a stage will take."""

    def __init__(self, watch: Watch, calls: Sequence[Call]) -> None:
        """Read the calls so far from `calls`, which grows while the index is built."""
        self._watch = watch
        self._calls = calls
        self._stage = ""
        self._begun = 0
        self._stored = 0
        self._is_said = False

    def __call__(self, done: int, total: int, what: str = "") -> None:
        self._watch.prepare(done, total, what)
        if what != self._stage:
            self._stage = what
            self._stored = 0
            self._is_said = False
        spent = sum_of([call for call in self._calls[self._begun :] if not call.cached])
        if done == total:
            self._begun = len(self._calls)
        elif not spent.calls:
            self._stored = done
        elif done - self._stored >= LEAST and not self._is_said:
            self._is_said = True
            share = (total - done) / (done - self._stored)
            price = "unknown price"
            if spent.cost_usd is not None:
                price = f"${share * spent.cost_usd:,.4f}"
            self._watch.say(
                f"{what or 'index'}: {total - done:,} of {total:,} are left, about "
                f"{share * spent.calls:,.0f} calls, {share * spent.all_tokens:,.0f} tokens, {price}"
            )
