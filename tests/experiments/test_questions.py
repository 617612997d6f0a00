"""Questions from documents hold by the world's own facts, whatever the writer gets wrong."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.experiments.questions.chains import PassageChain, find_chains
from ragbench.experiments.questions.validation import Draft, text_reason, validate_draft
from ragbench.passages import Passage
from tests.fake_server import FakeServer, Fault, Hit

Command = Callable[..., tuple[int, str, str]]

SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "ru", "sa", "te")
#: Town, founder, the founder's birthplace: nothing else leads from one to the next.
FACTS = []
for first in SYLLABLES:
    for second in ("dor", "fel", "gan", "rin"):
        FACTS.append(
            (f"Town{first}{second}", f"Ann {first.capitalize()}{second}", f"Port{second}{first}")
        )


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of two passages for each fact, as a file."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for town, founder, port in FACTS:
        rows.append({"id": town, "title": town, "text": f"{town} was founded by {founder}."})
        rows.append({"id": founder, "title": founder, "text": f"{founder} was born in {port}."})
    file = tmp_path / "docs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


class Model:
    """Writes drafts, of which every fifth has a wrong answer, and reads only its passages."""

    def __init__(self) -> None:
        self.drafts = 0

    def __call__(self, hit: Hit) -> str:
        if "links" in hit.prompt and "sentences" in hit.prompt:
            self.drafts += 1
            return json.dumps(self.draft(hit.prompt))
        asked = re.search(r"(founder of|founded) (Town\w+)", hit.prompt)
        for town, founder, port in FACTS if asked else ():
            named = f"{town} was founded by {founder}." in hit.prompt
            born = f"{founder} was born in {port}." in hit.prompt
            if asked[2] == town and named and (born or asked[1] == "founded"):
                return json.dumps({"answer": founder if asked[1] == "founded" else port})
        return json.dumps({"answer": ""})

    def draft(self, prompt: str) -> dict[str, object]:
        passages = re.findall(r"((?:Town|Ann )\w+) \| ([^\"\\\u00ab\u00bb]+?\.)", prompt)
        town = passages[0][0]
        facts = {town: (founder, port) for town, founder, port in FACTS}
        founder, port = facts.get(town, ("", ""))
        question, answer = f"Who founded {town}?", founder
        if len(passages) == 2 and passages[1][0] == founder:
            question, answer = f"Where was the founder of {town} born?", port
        if self.drafts % 5 == 0:
            answer = "Atlantis"
        sentences = [sentence for _, sentence in passages]
        return {"question": question, "answer": answer, "sentences": sentences}


def test_what_is_kept_is_right_and_needs_every_hop(
    docs: Path, command: Command, server: FakeServer, tmp_path: Path
) -> None:
    server.script = Model()
    words = (
        "questions", docs, "-n", "12", "--hops", "2,1", "--lm", f"openai/m@{server.url}",
        "--adapter", "json", "-o", "q.jsonl", "--page", "look.html", "--workers", "8",
    )  # fmt: skip
    code, out, err = command(*words)
    assert code == 0, err
    rows = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    by_town = {town: (founder, port) for town, founder, port in FACTS}
    for row in rows:
        town = re.search(r"Town\w+", row["question"])[0]  # type: ignore[index]
        founder, port = by_town[town]
        assert row["answer"] == (port if row["hops"] == 2 else founder)
        assert row["gold"] == ([town, founder] if row["hops"] == 2 else [town])
    assert {row["hops"] for row in rows} == {1, 2}
    assert len({tuple(row["gold"]) for row in rows}) == 12
    assert len(server.hits) <= 12 * len(rows)
    assert "dropped: " in out
    drafts = (tmp_path / "q.jsonl.work" / "drafts.jsonl").read_text().splitlines()
    assert len(drafts) < 24  # as many as were missing, not eight at a time
    assert rows[0]["question"] in (tmp_path / "look.html").read_text()

    asked = len(server.hits)
    before = (tmp_path / "q.jsonl").read_bytes()
    assert command(*words)[0] == 0  # continued: every draft is there
    assert len(server.hits) == asked
    assert (tmp_path / "q.jsonl").read_bytes() == before

    data = load_dataset(
        DataSettings(dataset="jsonl", data_file=tmp_path / "q.jsonl", corpus_file=docs)
    )
    assert data.card["questions_with_gold"] == 12


@pytest.mark.parametrize(
    ("limit", "fault", "ends"),
    [(("--max-calls", "7"), None, (3, "--max-calls")), ((), Fault("401"), (2, ""))],
)
def test_a_limit_or_a_refused_key_is_one_line_and_the_command_continues(
    limit: tuple[str, ...],
    fault: Fault | None,
    ends: tuple[int, str],
    docs: Path,
    command: Command,
    server: FakeServer,
) -> None:
    model = Model()
    server.script = lambda hit: fault or model(hit)
    words = (
        "questions", docs, "-n", "6", "--hops", "2,1", "--lm", f"openai/m@{server.url}",
        "--adapter", "json", "--workers", "2", "-o", "q.jsonl",
    )  # fmt: skip
    code, _, err = command(*words, *limit)
    assert code == ends[0], err
    assert ends[1] in err
    assert "Traceback" not in err
    assert not Path("q.jsonl").exists()
    server.script = model
    code, _, err = command(*words)
    assert code == 0, err


A = Passage("a", "Aldor", "Aldor was founded by Ann Bo.")
B = Passage("b", "Ann Bo", "Ann Bo was born in Cedar Bay.")
CHAIN = PassageChain((A, B), ("Ann Bo",))
GOOD = Draft("Where was the founder of Aldor born?", "Cedar Bay", (A.text, B.text))


@pytest.mark.parametrize(
    ("draft", "knows", "reason"),
    [
        (GOOD, "all", ""),
        (GOOD, "nothing", "the passages do not give the answer"),
        (GOOD, "last", "passage 1 is not needed"),
        (GOOD, "memory", "known from memory"),
        (Draft(GOOD.question, "Aldor", GOOD.sentences), "all", "the last passage"),
        (Draft("Is it Cedar Bay?", "Cedar Bay", GOOD.sentences), "all", "not in the question"),
        (Draft("Where was Ann Bo born?", "Cedar Bay", GOOD.sentences), "all", "names no link"),
        (Draft(GOOD.question, "Cedar Bay", (A.text,)), "all", "the sentences"),
        (Draft(GOOD.question, "Cedar Bay", (A.text, "Made up.")), "all", "the sentences"),
    ],
)
def test_each_check_drops_what_it_is_for(draft: Draft, knows: str, reason: str) -> None:
    calls = 0

    def reader(question: str, passages: object) -> str:
        nonlocal calls
        calls += 1
        shown = list(passages)  # type: ignore[call-overload]
        right = {
            "all": len(shown) == 2,
            "nothing": False,
            "last": str(B) in shown,
            "memory": True,
        }[knows]
        return "Cedar Bay" if right else "unknown"

    certificate = validate_draft(draft, CHAIN, reader)
    assert bool(certificate.reason) == bool(reason)
    assert reason in certificate.reason
    assert calls <= 5


def test_a_question_of_the_words_of_another_is_dropped() -> None:
    assert text_reason(GOOD, CHAIN, ["Who was born in Cedar Bay?"]) == ""
    assert "words" in text_reason(GOOD, CHAIN, ["Was the founder of Aldor born where?"])


def test_chains_are_linked_by_names_and_differ(docs: Path) -> None:
    passages = list(load_dataset(DataSettings(dataset="documents", corpus_file=docs)).corpus)
    chains = list(find_chains(passages, (2,), seed=1))
    assert len(chains) > 20
    assert len({chain.key for chain in chains}) == len(chains)
    for chain in chains:
        first, second = chain.passages
        assert chain.links[0] in f"{first.title} {first.text}"
        assert chain.links[0] in f"{second.title} {second.text}"
    assert [chain.key for chain in find_chains(passages, (2,), seed=1)] == [
        chain.key for chain in chains
    ]


def ask_for(
    command: Command, server: FakeServer, passages: dict[str, str], *words: str
) -> tuple[list[dict[str, Any]], str]:
    """Return the questions that the command writes over passages by title, and its output."""
    docs = [{"id": title, "title": title, "text": text} for title, text in passages.items()]
    Path("docs.jsonl").write_text("\n".join(map(json.dumps, docs)))
    lm = ("--lm", f"openai/m@{server.url}", "--adapter", "json")
    code, out, err = command("questions", "docs.jsonl", *words, *lm, "-o", "q.jsonl")
    assert code == 0, err
    return [json.loads(line) for line in Path("q.jsonl").read_text().splitlines()], out


def test_question_that_other_passages_answer_is_dropped(
    command: Command, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    founders = {"Aldor": "Ann Bo", "Belmar": "Cy Dun"}
    passages = {
        "Aldor": "Aldor was founded by Ann Bo.",
        "Gazette": "In spring, Aldor was founded by Ann Bo, a miller.",
        "Belmar": "Belmar was founded by Cy Dun.",
    }

    def reply(hit: Hit) -> str:
        if "links" in hit.prompt:
            [title] = [name for name in passages if f"{name} | " in hit.prompt]
            town = "Belmar" if title == "Belmar" else "Aldor"
            return json.dumps(
                {
                    "question": f"Who founded {town}?",
                    "answer": founders[town],
                    "sentences": [passages[title]],
                }
            )
        town = re.findall(r"Who founded (\w+)\?", hit.prompt)[-1]
        stated = f"{town} was founded by {founders[town]}" in hit.prompt
        return json.dumps({"answer": founders[town] if stated else ""})

    server.script = reply
    rows, out = ask_for(command, server, passages, "-n", "3", "--hops", "1")
    assert [(row["question"], row["gold"]) for row in rows] == [("Who founded Belmar?", ["Belmar"])]
    assert "dropped: 2 other passages give the answer too" in out


def test_question_of_three_hops_is_certified_in_its_natural_wording(
    command: Command, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    passages = {
        "Aldor": "Aldor was founded by Ann Bo.",
        "Ann Bo": "Ann Bo was born in Cedar Bay.",
        "Cedar Bay": "Cedar Bay lies on the Amber Sea.",
    }
    natural = "On which sea lies the port where Aldor's founder was born?"

    def reply(hit: Hit) -> str:
        if "natural_question" in hit.prompt:
            return json.dumps({"natural_question": natural})
        if "links" in hit.prompt:
            sentences = list(passages.values())
            draft = "Which sea is it on which the birthplace of the founder of Aldor lies?"
            return json.dumps({"question": draft, "answer": "Amber Sea", "sentences": sentences})
        known = natural in hit.prompt and all(text in hit.prompt for text in passages.values())
        return json.dumps({"answer": "Amber Sea" if known else ""})

    server.script = reply
    [row], _ = ask_for(command, server, passages, "-n", "1", "--hops", "3")
    assert row["question"] == natural
    assert row["metadata"]["certificate"]["with_all"] == ["Amber Sea"] * 2
