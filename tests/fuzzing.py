"""What the fuzzing of loaders and of the record reader draws, and what must hold of it.

Used by short tests and, for as long as one likes, by `benchmarks/fuzz.py`.
"""

import copy
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import RagbenchError
from ragbench.experiments.runs.summary import summarize
from ragbench.experiments.store import read_records
from ragbench.record import parse_record
from tests.data.samples import CUSTOM, HOTPOT, MUSIQUE
from tests.experiments.scored_runs import answered, four, make_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
QUESTIONS = [{"id": "a", "question": "Who?", "answer": "x"}]
GOOD: dict[str, list[Any]] = {
    "hotpotqa": HOTPOT[:3],
    "2wikimultihopqa": HOTPOT[:3],
    "musique": MUSIQUE[:3],
    "jsonl": CUSTOM[:3],
    "arag": ["0:Ann wrote Red Sky.", "1:Bo wrote Blue Sea."],  # its chunks; its questions are above
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """`value` with one place replaced by any JSON, dropped, or copied beside itself."""
    value = copy.deepcopy(value)
    place = draw(st.sampled_from(places(value)[1:]))
    target = value
    for key in place[:-1]:
        target = target[key]
    how = draw(st.sampled_from(["replace", "drop", "double"]))
    if how == "drop":
        del target[place[-1]]
    elif how == "double" and isinstance(target, list):
        target.insert(place[-1], target[place[-1]])
    else:
        target[place[-1]] = draw(JSON)
    return value


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with up to four pieces cut out, put in, or turned over."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        how = draw(st.sampled_from(["cut", "insert", "flip", "end"]))
        if how == "cut":
            content = content[:at] + content[at + draw(st.integers(1, 60)) :]
        elif how == "insert":
            content = content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]
        elif how == "flip" and at < len(content):
            flipped = content[at] ^ draw(st.integers(1, 255))
            content = content[:at] + bytes([flipped]) + content[at + 1 :]
        elif how == "end":
            content = content[:at]
    return content


def data_files(name: str) -> st.SearchStrategy[bytes]:
    """Files that are almost of the data set `name`."""
    good = GOOD[name]
    as_json = changed(good).map(lambda value: json.dumps(value).encode())
    as_lines = changed(good).map(
        lambda rows: (
            b"\n".join(json.dumps(r).encode() for r in rows) if isinstance(rows, list) else b"{}"
        )
    )
    return as_json | as_lines | damaged(json.dumps(good).encode()) | st.binary(max_size=60)


def check_loader(name: str, content: bytes) -> None:
    """The file loads as a data set, or is refused in one line that names it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("any.jsonl" if len(content) % 2 else "any.json")
        path.write_bytes(content)
        spec = DataSpec(name, data_file=path)
        if name == "arag":
            questions = Path(folder) / "questions.json"
            questions.write_text(json.dumps(QUESTIONS))
            spec = DataSpec(name, data_file=questions, corpus_file=path)
        try:
            loaded = load_dataset(spec)
        except RagbenchError as error:
            message = str(error)
            assert "\n" not in message, message
            assert path.name in message or "questions.json" in message, message
            return
        assert loaded.digest
        assert all(example.answers for part in loaded.splits.values() for example in part)


@st.composite
def some_record(draw: st.DrawFn) -> bytes:
    """A record as JSON, with something in it changed, or damaged."""
    good = [*four(), answered("q5", "Norway, ‮ \x1b[2J")]
    content = json.dumps(draw(changed(draw(st.sampled_from(good)).to_dict()))).encode()
    return draw(damaged(content)) if draw(st.booleans()) else content


def check_record(content: bytes) -> None:
    """It is no record, or one that a run can keep, read again and sum up."""
    try:
        record = parse_record(content)
    except ValueError:
        return
    with tempfile.TemporaryDirectory() as made:
        folder = make_run(Path(made), [*four(), record])
        found = read_records(folder)
        assert found.damaged == ()
        assert record.cut_off or record.qid in found
        json.dumps(summarize(found, whole=True).to_dict())


#: Name -> what is drawn, and the check of it.
TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "records": (some_record(), check_record),
    **{name: (data_files(name), partial(check_loader, name)) for name in sorted(GOOD)},
}
