"""A compiled program loads only where it belongs, and is never scored on its own questions."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.data.base import make_example
from ragbench.errors import DataError, RunError
from ragbench.experiments.artifacts import (
    FORMAT,
    Sidecar,
    assert_held_out,
    data_card,
    fields_of,
    load_artefact,
    read_sidecar,
    save_program,
    versions,
    warn_of_shared_passages,
    write_sidecar,
)
from ragbench.experiments.config import compiled_digest, make_config
from ragbench.experiments.runs import compiled as compiled_runs
from ragbench.programs.core.program import RAGProgram
from tests.optimizers.world import TRAIN, VAL, program


def compiled(name: str = "vanilla", **knobs: Any) -> RAGProgram:
    made = program(name, **knobs)
    for number, predictor in enumerate(made.predictors()):
        predictor.signature = predictor.signature.with_instructions(f"Instruction {number}.")
        predictor.demos = [{"question": "Who?", "answer": "Ann", "augmented": True}]
    return made


def artefact(folder: Path, made: RAGProgram | None = None, **changes: Any) -> Path:
    made = made or compiled()
    folder.mkdir(exist_ok=True)
    fields: dict[str, Any] = {
        "format": FORMAT, "program": made.name, "variant": made.knobs.variant,
        "knobs": made.knobs.model_dump(mode="json"), "predictors": fields_of(made),
        "program_sha256": save_program(made, folder / "program.json"),
        "data": data_card("towns", "digest", TRAIN, VAL), "optimizer": {"name": "bootstrap"},
        "versions": versions(), "config": {}, "lms": {}, "scores": {}, "cost": {},
    }  # fmt: skip
    write_sidecar(folder, Sidecar(**{**fields, **changes}))
    return folder


def refused(folder: Path, into: RAGProgram | None = None) -> str:
    target = into or program()
    before = json.dumps(target.dump_state())
    with pytest.raises(RunError) as caught:
        load_artefact(folder, target)
    assert json.dumps(target.dump_state()) == before, "a refused state was loaded in part"
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["vanilla", "react"])
def test_loads_what_was_saved(name: str, tmp_path: Path) -> None:
    made, fresh = compiled(name), program(name)
    load_artefact(artefact(tmp_path, made), fresh)
    assert fresh.dump_state() == made.dump_state()


def with_other_fields() -> RAGProgram:
    """DSPy zips the fields by position, so other fields would load without a word."""
    made = compiled()
    answer = made.predictors()[0]
    answer.signature = dspy.Signature("evidence: list[str], question -> answer", "Changed.")
    return made


def with_an_lm() -> RAGProgram:
    made = compiled()
    made.set_lm(dspy.LM("openai/somewhere", api_key="none"))
    return made


@pytest.mark.parametrize(
    ("made", "changes", "into", "words"),
    [
        (compiled, {}, ("ircot", {}), "give --program vanilla"),
        (lambda: compiled("self_rag"), {}, ("self_rag", {"variant": "per_passage"}),
         "--set variant=combined"),
        (compiled, {}, ("vanilla", {"k": 3}), "give --set k=5"),
        (compiled, {"predictors": {"reader": "question -> answer"}}, ("vanilla", {}),
         "compile again"),
        (compiled, {"versions": {"dspy": "3.3"}}, ("vanilla", {}), "install dspy==3.3"),
        (with_other_fields, {}, ("vanilla", {}), "answer=evidence, question -> answer, not"),
        (with_an_lm, {}, ("vanilla", {}), "has its own LM"),
    ],
)  # fmt: skip
def test_what_it_was_not_compiled_for_is_refused(
    made: Callable[[], RAGProgram], changes: dict[str, Any], into: tuple[str, dict[str, Any]],
    words: str, tmp_path: Path,
) -> None:  # fmt: skip
    assert words in refused(artefact(tmp_path, made(), **changes), program(into[0], **into[1]))


def test_a_changed_missing_or_broken_file_is_refused_a_pickle_never_read(tmp_path: Path) -> None:
    folder = artefact(tmp_path)
    path, sidecar = folder / "program.json", folder / "sidecar.json"
    path.write_text(path.read_text().replace("Ann", "Bob"))
    assert "was changed after it was compiled" in refused(folder)
    path.rename(folder / "program.pkl")
    assert "no program.json; copy the whole folder" in refused(folder)
    for text in ("", "[1]", "{", '{"format": 99}', '{"format": 1}', "\x00"):
        sidecar.write_text(text)
        assert "sidecar.json" in refused(folder)


def question(qid: str, text: str) -> dspy.Example:
    return make_example(qid=qid, question=text, answers=["x"])


@pytest.mark.parametrize(
    ("asked", "dataset", "words"),
    [
        ([question("q3", "Another?"), question("z", "New?")], None, r"1 of 2 questions .*q3"),
        ([question("new", "  who is the MAYOR of town 12 ")], None, "on the test split"),
        (VAL, "towns", f"{len(VAL)} of {len(VAL)} questions"),
        (TRAIN, "cities", "used to compile"),
        ([question("q3", "Another?")], "cities", ""),  # an id that means another question
        ([question("new", "Something else?")], None, ""),
    ],
)
def test_what_it_was_compiled_with_is_not_held_out(
    tmp_path: Path, asked: list[dspy.Example], dataset: str | None, words: str
) -> None:
    data = read_sidecar(artefact(tmp_path)).data
    with pytest.raises(DataError, match=words) if words else nullcontext():
        assert_held_out(data, asked, dataset=dataset)


def test_questions_that_share_passages_are_named(caplog: pytest.LogCaptureFixture) -> None:
    def needing(qid: str, *pids: str) -> dspy.Example:
        return dspy.Example(qid=qid, question=f"Question {qid}?", gold_pids=list(pids))

    card = data_card("mine", "0", [needing("a", "p1", "p2")], [needing("b", "p3")])
    copy = [needing("x", "p9"), needing("y", "p3", "p4"), needing("z", "p2")]
    warn_of_shared_passages(card, copy[:1])
    assert not caplog.records
    warn_of_shared_passages(card, copy)
    assert "2 of 3 questions share gold passages" in caplog.text
    assert "(first: y)" in caplog.text


def test_two_banks_of_one_state_are_two_programs_an_edited_one_is_refused(tmp_path: Path) -> None:
    def identity(folder: Path) -> str:
        return str(make_config({"program": "vanilla", "compiled": folder}).identity()["compiled"])

    def with_bank(folder: Path) -> Path:
        """A compiled program that keeps a bank of examples beside its state."""
        folder.mkdir()
        (folder / "bank.json").write_text(json.dumps({"k": 1, "of": folder.name}))
        save_program(compiled(), folder / "program.json")
        digest = compiled_digest(folder, ["bank.json"])
        return artefact(folder, files=["bank.json"], program_sha256=digest)

    one, two = (with_bank(tmp_path / name) for name in "ab")
    before = identity(one)
    assert load_artefact(one, program()).program_sha256 in before != identity(two)
    (one / "bank.json").write_text('{"k": 2}')
    assert identity(one) != before
    assert "bank.json was changed after it was compiled" in refused(one)
    (one / "bank.json").unlink()
    assert "no bank.json; copy the whole folder" in refused(one)


def test_option_of_a_compiled_folder_shows_numbers_and_hides_texts() -> None:
    given = {"k1": "1.5", "b": 0.4, "url": "http://127.0.0.1:9", "file": "1.py"}
    shown = " ".join(compiled_runs._option("retriever_set", given))
    numbers = "--retriever-set k1=1.5 --retriever-set b=0.4"
    assert shown == f"{numbers} --retriever-set url=... --retriever-set file=..."
