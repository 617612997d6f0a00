"""Loaders of the user's questions (layout `jsonl`) and documents. docs/data.md has the layouts."""

from dataclasses import replace

from ragbench.data.base import Dataset, data_set, title_of
from ragbench.data.load import assemble, detect_layout, question_files
from ragbench.data.passages import documents_card, read_corpus
from ragbench.data.questions import QuestionRecord, make_item, read_questions
from ragbench.data.readers import Row
from ragbench.data.titles import corpus_and_titles
from ragbench.passages import Corpus
from ragbench.settings import DataSettings

#: Field names that a record or an example uses itself.
_READ = frozenset(
    {*QuestionRecord.model_fields, "golden_answers", "qid", "qtype", "gold_pids", "cluster"}
)


@data_set("documents", setting="pooled")
def load_documents(spec: DataSettings) -> Dataset:
    """Passages without questions, for `ragbench ask`: a corpus file or documents."""
    passages = read_corpus(spec)
    return Dataset("documents", {}, Corpus(passages), "pooled", documents_card(passages))


@data_set(
    "jsonl", "answer", "answers", "golden_answers", "query generation_gt", "query answer",
    keeps_ids=True, titled_by_file=True,
)  # fmt: skip
def load_jsonl(spec: DataSettings) -> Dataset:
    """Your questions, with passages or a corpus file. The data set has the file's name."""
    corpus, titles = corpus_and_titles(spec)
    items = []
    for row, record in read_questions(spec, QuestionRecord):
        items.append(make_item(row, record, titles, **_further_fields(row)))
    searched = corpus is not None or any(item.passages for item in items)
    layouts = {*map(detect_layout, question_files(spec).values())}
    if not searched and spec.setting is None and layouts <= {"jsonl", None}:
        spec = spec.but(setting="pooled")  # An empty corpus, for programs that do not search.
    dataset = assemble(spec, items, corpus=corpus)
    return replace(dataset, name=title_of(spec), layout=spec.dataset)


def _further_fields(row: Row) -> dict[str, str | int | float | bool]:
    """Return the other plain fields of a record, which a module may take as inputs."""
    further = {}
    for name, value in row.data.items():
        if name not in _READ and name.isidentifier() and isinstance(value, str | int | float):
            further[name] = value
    return further
