"""Tokens of a text, estimated from its characters: one conversion for the whole package."""

CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def first_tokens(text: str, tokens: int) -> str:
    """Return the beginning of a text, cut at a word and marked, or the entire text if it fits.

    Args:
        text: Text.
        tokens: Maximum number of tokens, estimated.
    """
    if estimate_tokens(text) <= tokens:
        return text
    return text[: max(tokens * CHARACTERS_PER_TOKEN - 4, 0)].rsplit(" ", 1)[0] + " ..."
