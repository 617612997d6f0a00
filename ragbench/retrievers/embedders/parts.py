"""Send texts to a server that refuses large requests."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ragbench.lms.calls import TooLargeError

Answer = TypeVar("Answer")
#: If a server rejects a text this short for its length, it accepts no text.
_SHORTEST_CUT = 32


def in_parts(
    texts: Sequence[str],
    send: Callable[[Sequence[str]], Answer],
    cut: Callable[[str], None] = lambda text: None,
) -> list[tuple[Sequence[str], Answer]]:
    """Send texts in one request, or in halves if the server refuses their size.

    A single text that is too long is halved until the server accepts its beginning.

    Args:
        texts: At least one text.
        send: Function that sends texts in one request and returns the answer.
        cut: Function that receives a text before it is cut.

    Returns:
        Texts and the answer to them, for each request.

    Raises:
        TooLargeError: The server refuses even a short text.
    """
    try:
        return [(texts, send(texts))]
    except TooLargeError:
        if len(texts) == 1:
            [text] = texts
            if len(text) < _SHORTEST_CUT:
                raise
            cut(text)
            [(_, answer)] = in_parts([text[: len(text) // 2]], send)
            return [(texts, answer)]
    half = -(-len(texts) // 2)
    return [*in_parts(texts[:half], send, cut), *in_parts(texts[half:], send, cut)]
