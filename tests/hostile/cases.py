"""The hostile cases, made from a seed.

A case is a change of something good, so that a line says what is wrong: `of` what it is a change
(a data set, a config, a file of a run or of a compiled program, a reply), `how` it was changed
(`raw`: all of it; `set`, `drop`: one place; `cut`: its first bytes; `flip`: one byte), and whether
checksums were made to fit (`signed`), so that the reader meets what they would have kept out.
"""

import random
from collections.abc import Iterator
from typing import Any

from tests.experiments.scored_runs import four
from tests.fuzzing import GOOD, places
from tests.hostile.bases import COMPLETION, CONFIG, FULL_CARD, SIDECAR_PLACES, STATE_PLACES

SEED = 20260

VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), "", " ", "\x00", "\ud800",
    "\x1b[2J\x07", "../../etc/passwd", "=cmd()|x", "{{7*7}}", [], {}, [[]], [None], {"": None},
    {"a": {"b": []}}, "x" * 5000, "‮abc", ["q1", "q1"], -0.5, "null", "NaN", False,
]  # fmt: skip
RAW = [
    b"", b" \n", b"\xff\xfe\x00", b"\x00" * 64, b"null", b"[]", b"{}", b'"text"', b"[" * 20_000,
    b'{"a":' * 20_000, b"{" + b"9" * 5000, b"\x80\x04\x95", b"PK\x03\x04", b"\xef\xbb\xbf{}",
    b"<html>502</html>", b'{"qid": "q"}\n' * 3, b"\r\n\r\n", b'{"a": 1}{"a": 2}',
    b'{"a": NaN}', b"1e999",
]  # fmt: skip
YAML = [
    "program: [", "\tprogram: x", "- a\n- b", "program: !!python/object/apply:os.system [id]",
    "inherits: itself.yaml", "inherits: 7", "inherits: ../../etc/passwd", "1: 2", "? [a]\n: b",
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
    "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
    "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nset: {k: [*g,*g,*g,*g,*g,*g,*g,*g,*g]}",
    "a: &a\n  b: *a", "program: \x00", "program: ircot\nprogram: 7\nprogarm: x", "---\n---\n",
    "set: {variant: {a: b}}", "limit: .inf", "seed: 0x7fffffffffffffffffffffff", "%YAML 9.9\n---\n",
    "out: /proc/nothing/here", "out: ''", "data_file: .", "lm_for: {answer: 7}", "set: [1]",
    "program: ‮tocri", "workers: 1e400", "dataset: '\x1b[2J'", "retriever_set: {k1: .nan}",
]  # fmt: skip
RUN_FILES = ("card.json", "run.db", "summary.json", "scores.json")


def cases(seed: int = SEED) -> Iterator[dict[str, Any]]:
    """All cases, in order; the same for the same seed."""
    rng = random.Random(seed)
    made = [*_data(rng), *_configs(rng), *_runs(rng), *_artefacts(rng), *_replies(rng)]
    for number, case in enumerate(made):
        yield {"id": f"{number:03d}", **case}


def _raw(content: bytes) -> dict[str, Any]:
    return {"how": "raw", "hex": content.hex()} if len(content) < 300 else {
        "how": "raw", "hex": content[:8].hex(), "times": len(content) // 8
    }  # fmt: skip


def _change(rng: random.Random, value: Any, only: list[list[Any]] | None = None) -> dict[str, Any]:
    place = rng.choice(only or [list(p) for p in places(value)[1:]])
    if rng.random() < 0.2:
        return {"how": "drop", "at": place}
    return {"how": "set", "at": place, "to": rng.choice(VALUES)}


def _bytes(rng: random.Random) -> dict[str, Any]:
    share = round(rng.uniform(0.02, 0.98), 3)
    how = rng.choice(["cut", "flip"])
    return {"how": how, "share": share, **({"bit": rng.randrange(8)} if how == "flip" else {})}


def _data(rng: random.Random) -> Iterator[dict[str, Any]]:
    for name in sorted(GOOD):
        for raw in rng.sample(RAW, 6):
            yield {"kind": "data", "of": name, **_raw(raw)}
        for _ in range(10):
            yield {"kind": "data", "of": name, **_change(rng, GOOD[name])}
        for _ in range(2):
            yield {"kind": "data", "of": name, **_bytes(rng)}


def _configs(rng: random.Random) -> Iterator[dict[str, Any]]:
    for text in YAML:
        yield {"kind": "config", "of": "yaml", "how": "raw", "hex": text.encode().hex()}
    for raw in rng.sample(RAW, 8):
        yield {"kind": "config", "of": "yaml", **_raw(raw)}
    for _ in range(30):
        yield {"kind": "config", "of": "yaml", **_change(rng, CONFIG)}


def _runs(rng: random.Random) -> Iterator[dict[str, Any]]:
    for name in RUN_FILES:
        for raw in rng.sample(RAW, 4):
            yield {"kind": "run", "of": name, **_raw(raw)}
        for _ in range(16 if name == "run.db" else 2):
            yield {"kind": "run", "of": name, **_bytes(rng)}
    for _ in range(20):
        yield {"kind": "run", "of": "card", **_change(rng, FULL_CARD)}
    for _ in range(30):
        change = _change(rng, four()[0].to_dict())
        yield {"kind": "run", "of": "record", **change}


def _artefacts(rng: random.Random) -> Iterator[dict[str, Any]]:
    for name in ("sidecar.json", "program.json", "compile.json"):
        for raw in rng.sample(RAW, 4):
            yield {"kind": "artefact", "of": name, **_raw(raw)}
        yield {"kind": "artefact", "of": name, **_bytes(rng)}
    for _ in range(20):
        change = _change(rng, None, SIDECAR_PLACES)
        yield {"kind": "artefact", "of": "sidecar.json", **change}
    for _ in range(20):
        change = _change(rng, None, STATE_PLACES)
        yield {"kind": "artefact", "of": "program.json", "signed": True, **change}


def _replies(rng: random.Random) -> Iterator[dict[str, Any]]:
    for raw in RAW:
        yield {"kind": "reply", "of": "body", **_raw(raw)}
    for _ in range(30):
        yield {"kind": "reply", "of": "body", **_change(rng, COMPLETION)}
    for _ in range(6):
        yield {"kind": "reply", "of": "body", **_bytes(rng)}
