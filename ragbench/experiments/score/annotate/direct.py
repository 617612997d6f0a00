"""Annotation by direct calls, several at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context

from ragbench.errors import RunError
from ragbench.experiments.records import RecordWriter
from ragbench.experiments.score.annotate.asking import Asking, ask_once
from ragbench.experiments.score.annotate.journal import Replies, Task, file_reply


class DirectRunner:
    """Asks tasks at once, up to the limit of spending, and writes each result as it comes."""

    def __init__(self, asking: Asking, writer: RecordWriter, replies: Replies) -> None:
        self.asking, self.writer, self.replies = asking, writer, replies
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, todo: Sequence[Task]) -> None:
        """Ask `todo`.

        Raises:
            RunError: a reply cannot be written.
            KeyboardInterrupt: the user stopped it; every reply so far is kept.
        """
        with ThreadPoolExecutor(self.asking.workers, thread_name_prefix="judge") as pool:
            futures = [pool.submit(copy_context().run, self._one, task) for task in todo]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    if self.asking.on_reply:
                        self.asking.on_reply(done, len(todo))
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _one(self, task: Task) -> None:
        if self._stop.is_set():
            return
        reply = ask_once(task, self.asking.lm)
        try:
            with self._lock:
                file_reply(self.writer, self.replies, task, reply)
        except RunError:
            self._stop.set()
            raise
