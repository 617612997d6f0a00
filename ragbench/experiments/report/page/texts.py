"""The five texts at the top of a page: one sentence, and the answers to four fixed questions.

Each statement about a difference comes from the family of tests or from the advice. A text is a
list of parts: a kind ("b" for bold, "" for plain) and its words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.experiments.letters import joined, letter_ranges
from ragbench.experiments.report.table import counted

Json = dict[str, Any]
Parts = list[tuple[str, str]]
NO_RECORD = "No run has a record yet. This page shows the first one when it arrives."
QUESTIONS = (
    "Is it real?",
    "What does it cost?",
    "Does compiling help?",
    "What is wrong with the runs?",
)
#: Maps the outcome of compiled against uncompiled to the answer on compiling.
_WORDS = {"better": "Yes", "worse": "No, it is worse"}


def _empty_texts() -> Json:
    """Return the texts that the page shows before the first record exists."""
    nothing: Parts = [("", "Not asked here.")]
    return {
        "title": "ragbench: no record yet",
        "headline": [("", NO_RECORD)],
        "facts": [(question, nothing) for question in QUESTIONS],
    }


def page_texts(
    programs: Sequence[Json], family: Json, metric: str, artefacts: Sequence[Json], subject: str
) -> Json:
    """Return the five texts of a group of programs.

    Args:
        programs: Rows of the group's programs, in the order of their letters.
        family: Tests of `metric` over these programs, with their advice.
        metric: Name of the metric.
        artefacts: Verdicts, sweeps and other experiments of the page.
        subject: Data, questions, LM and retriever that the programs share.

    Returns:
        The title of the browser tab, the parts of the sentence, and question and parts of each of
        the four answers.
    """
    if not programs:
        return _empty_texts()
    sentence = _sentence(programs, family, metric, artefacts)
    answers = (
        _is_real(programs, family),
        _cost(programs, family),
        _compiling(programs, family, metric, artefacts),
        _faults(programs),
    )
    return {
        "title": f"{sentence.rstrip('.')} · {subject}",
        "headline": _bold_names(sentence, programs),
        "facts": list(zip(QUESTIONS, answers, strict=True)),
    }


def letters(places: Sequence[Json]) -> str:
    """Return the letters of programs as a list with ranges, such as "A, C to F and H".

    Args:
        places: Rows of programs.
    """
    return letter_ranges([program["key"] for program in places])


def called(program: Json) -> str:
    """Return the letter and the short name of a program, as in the table: without its LM."""
    return f"{program['key']}, {program['row']}"


def _sentence(
    programs: Sequence[Json], family: Json, metric: str, artefacts: Sequence[Json]
) -> str:
    for artefact in artefacts:
        headline = artefact.get("headlines", {}).get(metric)
        if headline:
            return f"{headline}."
    done = [program for program in programs if program["done"]]
    leader = programs[0]
    if not done:
        n = sum(program["n"] for program in programs)
        total = sum(program["asked"] for program in programs)
        return f"Running: {n:,} of {total:,} questions are finished, and no run is complete."
    advice = family.get("advice")
    if len(programs) > 1 and advice and advice["sentences"]:
        sentence = advice["sentences"][0]
        return f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}."
    score = leader["means"][metric][metric]
    words = "has no score" if score is None else f"scores {_score(score)} {metric}"
    sample = f"on {counted(leader['n'], 'question')}"
    if len(programs) == 1:
        return f"{called(leader)}, {words} {sample}; a second run makes a comparison."
    return f"{called(leader)}, {words} {sample}; these runs cannot be tested against each other."


def _is_real(programs: Sequence[Json], family: Json) -> Parts:
    best = family["best"]
    if len(programs) < 2 or best is None:
        return [("b", "Not asked here."), ("", " There is one complete program.")]
    worse = []
    alike = []
    for program in programs:
        test = difference_from(program["at"], best, family)
        if test is None and program["at"] != best:
            continue
        if test is not None and test["word"] == "worse":
            worse.append(program)
        else:
            alike.append(program)
    top = next(program for program in programs if program["at"] == best)
    tested = len(worse) + len(alike) - 1
    strong = f"{len(worse)} of {tested} significantly worse than {top['key']}"
    plain = f" ({letters(worse)})." if worse else "."
    if len(alike) > 1:
        plain += f" {letters(alike)} do not differ significantly."
    advice = family.get("advice") or {}
    for line in advice.get("sentences", [])[1:2]:
        plain += f" {line[:1].upper()}{line[1:].rstrip('.')}."
    return [("b", strong), ("", plain)]


def _cost(programs: Sequence[Json], family: Json) -> Parts:
    unknown = [program for program in programs if program["cost_usd"] is None]
    priced = [program for program in programs if program["cost_usd"] is not None]
    missing = f" No price for {letters(unknown)}." if unknown else ""
    if not priced or not any(program["cost_usd"] for program in priced):
        tokens = [program["tokens"] for program in programs if program["tokens"]]
        if not tokens:
            return [("b", "Unknown."), ("", " No run counts tokens or dollars.")]
        free = "No price is known." if unknown else "$0: the LM runs locally."
        return [("b", free), ("", f" {_range(tokens, '{:,.0f}')} tokens a question.")]
    dollars = [1000 * program["cost_usd"] for program in priced]
    strong = f"{_range(dollars, '${:,.2f}')} per 1,000 questions."
    cheapest = min(priced, key=lambda program: (program["cost_usd"], program["rank"]))
    plain = ""
    if len(priced) > 1:
        plain = f" {cheapest['key']} costs least"
        test = difference_from(cheapest["at"], family["best"], family)
        if test is not None:
            lost = _score(abs(test["difference"]))
            side = "more" if test["difference"] > 0 else "less"
            plain += f" and scores {lost} {side} than the best" if float(lost) else ""
        plain += "."
    return [("b", strong), ("", plain + missing)]


def _compiling(
    programs: Sequence[Json], family: Json, metric: str, artefacts: Sequence[Json]
) -> Parts:
    for artefact in artefacts:
        if metric in artefact.get("answers", ()):
            answer, details = artefact["answers"][metric]
            return [("b", f"{answer}: "), ("", f"{details}.")]
    place = {program["at"]: program for program in programs}
    spans: Parts = []
    for program in programs:
        before = place.get(program["before"])
        if before is None:
            continue
        test = difference_from(program["at"], before["at"], family)
        if test is None:
            spans.append(("", f"{program['key']} against {before['key']}: not tested. "))
            continue
        word = _WORDS.get(test["word"], "Not significantly")
        gain = _score(abs(test["difference"]))
        side = "more" if test["difference"] > 0 else "less"
        spans.append(("b", f"{word}: "))
        spans.append(
            ("", f"{program['key']} scores {gain} {side} than {before['key']}, uncompiled. ")
        )
    return spans or [
        ("b", "Not asked here."), ("", " No program is next to its uncompiled self.")
    ]  # fmt: skip


def _faults(programs: Sequence[Json]) -> Parts:
    failed = sum(program["failed"] for program in programs)
    unpriced = [program for program in programs if program["cost_usd"] is None]
    lacking = []
    for program in programs:
        if program["right"] and 2 * program["without_gold"] >= program["right"]:
            lacking.append(program)
    unfinished = [program for program in programs if not program["done"]]
    strong = f"{counted(failed, 'question')} failed"
    strong += f", {letters(unpriced)} without a price." if unpriced else ", no price missing."
    plain = ""
    refused = []
    for program in programs:
        if program["refused"]:
            refused.append(f"{program['key']} refused {counted(program['refused'], 'question')}")
    if refused:
        plain += f" {joined(refused)}."
    if unfinished:
        plain += f" {letters(unfinished)} not complete."
    if lacking:
        plain += (
            f" In {letters(lacking)}, half or more of the right answers came without their "
            "passages: memorized or guessed."
        )
    return [("b", strong), ("", plain)]


def difference_from(at: int, reference: int | None, family: Json) -> Json | None:
    """Return the comparison of the program at `at` minus the reference.

    Args:
        at: Index of the program.
        reference: Index of the reference, or None.
        family: Tests, by "A,B" for B minus A.

    Returns:
        Difference, interval and outcome of the program at `at`. None if they were not compared.
    """
    pairs: Mapping[str, Json] = family.get("pairs", {})
    if f"{reference},{at}" in pairs:
        return pairs[f"{reference},{at}"]
    turned = pairs.get(f"{at},{reference}")
    if turned is None:
        return None
    word = {"better": "worse", "worse": "better"}.get(turned["word"], turned["word"])
    return {"difference": -turned["difference"], "word": word}


def _bold_names(sentence: str, programs: Sequence[Json]) -> Parts:
    """Split a sentence into parts, with the names of programs in bold."""
    labels = sorted(map(called, programs), key=len, reverse=True)
    pattern = "|".join(map(re.escape, labels))
    spans: Parts = []
    for number, text in enumerate(re.split(f"({pattern})", sentence)):
        if text:
            spans.append(("b" if number % 2 else "", text))
    return spans


def _score(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _range(values: Sequence[float], form: str) -> str:
    low = form.format(min(values))
    high = form.format(max(values))
    return low if low == high else f"{low} to {high}"
