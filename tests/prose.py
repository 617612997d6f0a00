"""Measures the distance of the project's prose from plain technical English.

Patterns match wordings that are at least five times as frequent in prose with unusual syntax as in
the docstrings of popular packages, so nearly every match is worth rewriting. A low rate does not
prove good prose. CONTRIBUTING.md has the style guide.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_THINGS = "it|they|there|none|no|nothing|nobody|one|some|any|each|two|both"
_STATES = "is|are|was|were|has|have|had|can|could|does|do|did|may|must|takes?|gives?|holds?|needs?"
#: Kind of wording -> patterns.
PATTERNS = {
    "what-clause": [
        r"(?<!\bsee )\bwhat (?:is|was|are|were|it|they|the|a|an|one|all|no|nothing|has|had|did|does"
        r"|came|comes|goes|stands?|holds?|fits?|follows?|each|both|else|may|must|can|could)\b"
        r"(?! (?:is|are|to) )"
    ],
    "where-as-if": [
        rf"\b(?:none|blank|empty|true|false|nothing|null|unknown|only|also|just|but|;|,) where"
        rf"(?= (?:{_THINGS}|all|that|those|every|this|what|the|a|an)\b)",
        rf"(?<!file )(?<!folder )(?<!place )(?<!, )\bwhere (?:{_THINGS}) (?:{_STATES})\b",
    ],
    "agentless": [
        r"\b(?:is|are|was|were|be) (?:said|told|asked|spoken|held to|gone)\b(?! to be\b)"
    ],
    "negated-noun": [
        r"(?<!there )\b(?:is|are|was|were|be) no "
        r"(?!(?:longer|more|such|need|way|effect|guarantee|support|reason|op)\b)[a-z]+",
        r"\b(?:holds?|gives?|takes?|says?|knows?|reads?|finds?|names?|tells?) (?:no|nothing)\b",
    ],
    "own": [r"\bof (?:its|their|one's|your|our|his|her) own\b|\bone's own\b|\bones? of ours\b"],
    "person": [r"\b(?:a person|a person's|somebody|whoever|a stranger|strangers|nobody|anybody)\b"],
    "as-is": [r"\bas (?:it is|they are|it was|they were|it stands|they stand|they come)\b"],
    "stand": [r"\bst(?:ands?|ood)\b(?! (?:for|out|alone|up|by)\b)"],
    "beside": [r"\bbeside\b(?!s)|\bamong them\b"],
    "trailing-alone": [r"\b[a-z]+ alone(?=[.,;:)]|$)|\band nothing (?:else|beside|more)\b"],
    "just-as": [
        r"\bjust (?:where|when|so|what)\b|\bso many\b|\bas many as\b|\bat the (?:most|least)\b"
    ],
    "idiom": [
        r"\b(?:by heart|for ever|anew|for else|but for|and its like|and the like|to be had|a hair"
        r"|in one place|for want of|in doubt|in fewer steps|once more|of use|under way|in vain)\b"
    ],
    "archaic": [
        r"\b(?:dear|dearer|dearest|mends?|mended|mending|cures?|lest|whence|thereof|handed over"
        r"|goes on|go on|going on|reckon(?:s|ed)?|beforehand)\b"
    ],
}
_COMPILED = [re.compile(text, re.I) for texts in PATTERNS.values() for text in texts]
#: Words that begin a summary as a clause in place of a noun or a verb.
_CLAUSE = re.compile(
    r"^(?:what|whether|how|where|which|whose|that|those|these|who|why|nothing|nobody|of|one|so|as|"
    r"beside|both|all|also|at|by|for|from|to|such|whatever|whoever|neither|no|none)\b",
    re.I,
)


def matches_in(text: str) -> int:
    """Count the patterns that match in `text`."""
    plain = plain_text(text)
    return sum(len(pattern.findall(plain)) for pattern in _COMPILED)


def plain_text(text: str) -> str:
    """Return `text` on one line, with code, links and markup replaced."""
    text = re.sub(r"``[^`]*``|`[^`\n]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"https?://\S+|[*_]{2}", "", text).split())


def begins_as_clause(text: str) -> bool:
    """Return True if `text` begins with a clause in place of a noun or a verb."""
    return _CLAUSE.match(plain_text(text)) is not None


def docstrings_of(tree: ast.AST) -> Iterator[str]:
    """Yield all docstrings of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def comments_of(source: str) -> Iterator[str]:
    """Yield all comments of a module, except those for tools."""
    for comment in re.findall(r"^(?:.*  |\s*)#(.*)$", source, re.MULTILINE):
        if not re.match(r"\s*(?:type:|noqa|fmt|pragma|!|mypy|ruff)", comment):
            yield comment.lstrip("#: ")


def paragraphs_of(page: str) -> Iterator[str]:
    """Yield paragraphs, list items and table rows of a Markdown page without its code blocks."""
    plain = re.sub(r"^( *)```.*?^\1```", "", page, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-*|#]|\d+\. )", plain):
        if block.strip():
            yield block


def rate_of(texts: list[str]) -> float:
    """Return the matches per 1,000 words of `texts`."""
    words = sum(len(plain_text(text).split()) for text in texts)
    return 1000 * sum(map(matches_in, texts)) / max(words, 1)


def measure(folder: Path) -> dict[str, float]:
    """Measure the code below `folder`, or the module `folder`.

    Returns:
        "dialect": matches per 1,000 words of docstrings and comments. "clauses": percent of
        docstrings that begin as a clause.
    """
    texts: list[str] = []
    docstrings: list[str] = []
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        source = path.read_text("utf-8")
        docstrings += docstrings_of(ast.parse(source))
        texts += comments_of(source)
    clauses = sum(map(begins_as_clause, docstrings))
    return {
        "dialect": rate_of(texts + docstrings),
        "clauses": 100 * clauses / max(len(docstrings), 1),
    }
