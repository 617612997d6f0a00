"""An object in memory has no identity unless the caller names it; other things have content."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.errors import ConfigError, RagbenchError
from ragbench.external import keep, label_of, tag_of
from ragbench.lms.factory import keep_lm
from ragbench.passages import Corpus, Passage
from ragbench.retrievers import keep_retriever, make_retriever
from tests.fake_server import FakeServer

ROWS = [dspy.Example(question=f"Which river {n}?", answer="Po") for n in range(2)]


class Own(dspy.Module):
    """A module that asks what a function makes of the question."""

    def __init__(self, prompt: Callable[[str], str] = str) -> None:
        super().__init__()
        self.prompt = prompt
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.answer(question=self.prompt(question))


def model(server: FakeServer, **settings: Any) -> dspy.LM:
    return dspy.LM("openai/m", api_base=server.url, api_key="none", **settings)


def test_a_module_in_memory_starts_a_new_run_that_asks_only_changed_requests(
    server: FakeServer,
) -> None:
    text = Path("template.txt")
    text.write_text("a")
    module = Own(lambda q: q + text.read_text())
    folders = set()
    for content, asked in (("a", 2), ("a", 2), ("b", 4)):
        text.write_text(content)
        folders.add(rb.evaluate(module, ROWS, lm=model(server)).folder)
        assert len(server.hits) == asked
    assert len(folders) == 3


def test_a_named_object_continues_its_run_with_the_object_that_is_given_now(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first = rb.evaluate(Own(), ROWS[:1], lm=model(server), name="v3")
    again = rb.evaluate(Own(), ROWS[:1], lm=model(server), name="v3")
    assert first.folder == again.folder
    said = " ".join(capsys.readouterr().err.split())
    assert "under name='v3'; whether the object is the same is not checked; fresh=True" in said
    assert rb.evaluate(Own(), ROWS[:1], lm=model(server), name="v4").folder != first.folder
    assert first.evaluation.card.identity["program_source"] == "v3"
    rb.evaluate(Own(lambda q: f"second {q}"), ROWS[1:], lm=model(server), name="v3")
    assert "second" in server.hits[-1].prompt


def length(example: dspy.Example, prediction: Any, trace: Any = None) -> float:
    """A metric in memory."""
    return 1.0


class Searching:
    """A retriever in memory."""

    def search(self, query: str, k: int) -> list[str]:
        return ["Turin lies on the Po."]


class OwnLM(dspy.LM):  # type: ignore[misc]
    """An LM class in memory."""


@pytest.mark.parametrize("kind", ["program", "lm", "retriever", "adapter"])
def test_an_unnamed_object_is_refused_in_the_folder_of_an_earlier_run(
    kind: str, server: FakeServer
) -> None:
    class OwnAdapter(dspy.ChatAdapter):  # type: ignore[misc]
        """An adapter in memory."""

    given: dict[str, Any] = {"program": "vanilla", "lm": model(server), "corpus": ["Turin."]}
    objects: dict[str, Callable[[], Any]] = {
        "program": Own,
        "lm": lambda: OwnLM("openai/m", api_base=server.url, api_key="none"),
        "retriever": Searching,
        "adapter": OwnAdapter,
    }
    given[kind] = objects[kind]()
    rb.evaluate(data=ROWS, out="run", **given)
    with pytest.raises(ConfigError, match="give name='v1'") as caught:
        rb.evaluate(data=ROWS, out="run", **given)
    assert "\n" not in str(caught.value)
    first = rb.evaluate(data=ROWS, out="named", name="v1", **given)
    assert rb.evaluate(data=ROWS, out="named", name="v1", **given).folder == first.folder


@pytest.mark.parametrize("kind", ["metric", "optimizer"])
def test_a_compile_of_an_unnamed_object_is_new_and_of_a_named_one_the_same(
    kind: str, server: FakeServer
) -> None:
    given: dict[str, Any] = {"program": "direct", "optimizer": "labeled", "metric": "f1"}
    objects: dict[str, Callable[[], Any]] = {
        "metric": lambda: length,
        "optimizer": lambda: dspy.LabeledFewShot(k=1),
    }
    given |= {"trainset": ROWS[:1], "valset": ROWS[1:], "lm": model(server), "max_calls": 100}
    folders = []
    for name in ("", "", "v1", "v1"):
        given[kind] = objects[kind]()
        folders.append(rb.compile(name=name, **given))
    assert len(set(folders)) == 3
    assert folders[2] == folders[3]
    with pytest.raises(ConfigError, match="give name='v1'"):
        rb.compile(out=folders[0], **given)


CORPUS = Corpus((Passage("1", "", "Turin."), Passage("2", "", "Lyon.")))
#: What is identified by content -> two that are not the same.
CONTENT: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "temperature": (
        lambda: keep_lm(dspy.LM("openai/a", temperature=0.1)),
        lambda: keep_lm(dspy.LM("openai/a", temperature=0.2)),
    ),
    "server": (
        lambda: keep_lm(dspy.LM("openai/a", api_base="http://a/v1")),
        lambda: keep_lm(dspy.LM("openai/a", api_base="http://b/v1")),
    ),
    "header of an LM": (
        lambda: keep_lm(dspy.LM("openai/a", extra_headers={"X-Mode": "a"})),
        lambda: keep_lm(dspy.LM("openai/a", extra_headers={"X-Mode": "b"})),
    ),
    "settings of a retriever": (
        lambda: keep_retriever(make_retriever("bm25", CORPUS)),
        lambda: keep_retriever(make_retriever("bm25", CORPUS, k1=1.5)),
    ),
    "passages of a retriever": (
        lambda: keep_retriever(make_retriever("bm25", CORPUS)),
        lambda: keep_retriever(make_retriever("bm25", CORPUS.subset([0]))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENT)
def test_content_if_it_differs_is_another_identity_and_if_equal_the_same(name: str) -> None:
    one, other = CONTENT[name]
    assert one() == one() != other()


def _patched(value: Any, name: str) -> Any:
    setattr(value, name, lambda *args, **kwargs: [])
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: keep_lm(OwnLM("openai/a")),
        lambda: keep_lm(dspy.LM("openai/a", azure_ad_token_provider=lambda: "t")),
        lambda: keep_lm(_patched(dspy.LM("openai/a"), "forward")),
        lambda: keep_retriever(_patched(make_retriever("bm25", CORPUS), "search_many")),
        lambda: keep_retriever(Searching()),
        lambda: keep(Own(), "own:Own"),
    ],
)
def test_code_in_memory_has_another_identity_at_every_call(make: Callable[[], str]) -> None:
    assert make() != make()
    assert label_of(make()) == label_of(make())


def test_a_key_or_a_timeout_of_an_lm_changes_no_identity() -> None:
    names = {keep_lm(dspy.LM("openai/a", api_key=k, timeout=t)) for k, t in (("a", 1), ("b", 2))}
    assert len(names) == 1


@pytest.mark.parametrize("name", ["a/b", "../up", "a:b", "a#b", "x" * 90])
def test_a_name_that_no_folder_can_hold_is_one_line(name: str) -> None:
    with pytest.raises(RagbenchError, match="name="):
        keep(Own(), "own:Own", name=name)
    assert tag_of(keep(Own(), "own:Own", name="v3 of May")) == "v3 of May"


def test_a_header_is_another_run_and_other_replies(server: FakeServer) -> None:
    given: dict[str, Any] = {"lm": "hosted_vllm/m", "api_base": server.url, "corpus": ["Turin."]}
    folders = set()
    for mode in ("a", "b", "a"):
        folders.add(rb.evaluate("vanilla", ROWS[:1], header={"X-Mode": mode}, **given).folder)
    assert len(folders) == 2
    assert len(server.hits) == 2
