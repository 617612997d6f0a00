"""Progress reports of a long command. Each method does nothing unless overridden."""

from collections.abc import Sequence

from ragbench.record import Call, Record, total as sum_of


class ProgressListener:
    """Observer of the progress of a command, which the command line displays."""

    def say(self, line: str) -> None:
        """Report the end of a step, such as a cell of a sweep."""

    def prepare(self, done: int, total: int, work: str = "") -> None:
        """Report the progress of shared work before the questions.

        Args:
            done: Units done.
            total: Total number of units.
            work: Name of the work. Empty: the index.
        """

    def start(self, title: str, todo: int, done: int) -> None:
        """Report the start of a run.

        Args:
            title: Title of the run.
            todo: Number of questions to run.
            done: Number of finished questions.
        """

    def update(self, record: Record, done: int, todo: int) -> None:
        """Report the record of a question.

        Args:
            record: Record of the question.
            done: Number of questions done.
            todo: Number of questions to run.
        """

    def count(self, work: str, done: int, total: int, details: str = "") -> None:
        """Report the progress of other work.

        Args:
            work: Name of the work, such as trials.
            done: Units done.
            total: Total number of units.
            details: Results so far.
        """


#: Shows nothing.
SILENT = ProgressListener()


#: Paid items of an index from which the cost of the others is measured.
LEAST = 3


class Forecast:
    """Progress of an index, with one estimate of the remaining cost of each stage."""

    def __init__(self, watch: ProgressListener, calls: Sequence[Call]) -> None:
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
