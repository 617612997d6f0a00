"""Data sets of the Hugging Face hub: their repositories, and the fetching of their rows."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragbench.data.base import DataSpec, Split
from ragbench.data.readers import Row, read_rows
from ragbench.errors import ConfigError, DataError, needs_extra

#: Seconds in which the hub must answer; otherwise only the local cache is used.
PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class HubSource:
    """A repository on the hub; `configs` begins with the default one, and is empty for one only.

    `questions` and `corpus` are the paths of JSON files in it, with `{config}` for the
    configuration; where `questions` is empty, the questions are read by `datasets`.
    """

    repo: str
    configs: tuple[str, ...] = ()
    questions: str = ""
    corpus: str = ""


HUB: Mapping[str, HubSource] = {
    "hotpotqa": HubSource("hotpotqa/hotpot_qa", ("distractor", "fullwiki")),
    "musique": HubSource("dgslibisey/MuSiQue"),
    "2wikimultihopqa": HubSource("framolfese/2WikiMultihopQA"),
    "graphrag_bench": HubSource(
        "GraphRAG-Bench/GraphRAG-Bench",
        ("medical", "novel"),
        corpus="Datasets/Corpus/{config}.json",
    ),
    "arag": HubSource(
        "Zly0523/linear-rag",
        ("musique", "hotpotqa", "2wikimultihop", "medical"),
        questions="{config}/questions.json",
        corpus="{config}/chunks.json",
    ),
}

#: The hub's names of the parts of a data set, and the splits that they are.
_PARTS: Mapping[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


def source_of(spec: DataSpec) -> tuple[HubSource, str | None]:
    """The repository of the spec's data set, or the one that it names, and the configuration.

    ConfigError where the data set has no repository, or it has no such configuration.
    """
    if spec.dataset not in HUB:
        if spec.hub_repo is None:
            raise ConfigError(
                f"{spec.dataset} has no repository of its own on the hub; choose from "
                f"{', '.join(HUB)}, or give --hub-repo OWNER/NAME or --data-file"
            )
        return HubSource(spec.hub_repo), spec.hub_config
    source = HUB[spec.dataset]
    config = spec.hub_config or next(iter(source.configs), None)
    if spec.hub_repo is not None:
        return replace(source, repo=spec.hub_repo, configs=()), config
    if spec.hub_config and spec.hub_config not in source.configs:
        choices = ", ".join(source.configs) or "none: it has only one"
        raise ConfigError(
            f"{source.repo} has no configuration {spec.hub_config!r}; choose from {choices}"
        )
    return source, config


def hub_rows(spec: DataSpec) -> Iterator[Row]:
    """The rows of the spec's data set on the hub, its evaluation part first.

    In an official data set the hub's test part has no answers and is left out. Of a data set
    without a test part the validation part is the test split, and the train part is cut into train
    and validation; a single part is cut into all three. ConfigError and DataError as `source_of`
    and `fetch`.
    """
    source, config = source_of(spec)
    if source.questions:
        yield from read_rows(fetch_file(source.repo, source.questions.format(config=config)))
        return
    parts = fetch(source.repo, config)
    known = {_PARTS[name]: rows for name, rows in parts.items() if name in _PARTS}
    if spec.dataset in HUB:
        known.pop("test", None)
    if not known:
        raise DataError(
            f"{source.repo} has no part named {', '.join(_PARTS)}; it has {', '.join(parts)}"
        )
    splits: dict[Split, Split | None] = {part: part for part in known}
    if len(known) == 1:
        splits = dict.fromkeys(known)
    elif "test" not in known:
        splits = {"validation": "test", "train": None}
    order: tuple[Split, ...] = ("test", "validation", "train")
    for part in order:
        for number, data in enumerate(known.get(part, ()), start=1):
            yield Row(f"{source.repo} [{part}]: record {number}", dict(data), splits[part])


def fetch(repo: str, config: str | None) -> Mapping[str, Iterable[Mapping[str, Any]]]:
    """The parts of a parquet data set, from the hub or from its cache on this machine.

    DataError where the hub cannot be reached and nothing is cached, or has no such data set.
    """
    with _hub(repo, repo):
        import datasets

        parts: Mapping[str, Any] = datasets.load_dataset(repo, config)
    return parts


def fetch_file(repo: str, name: str) -> Path:
    """The local path of one file of a data set repository; DataError as `fetch`."""
    with _hub(repo, f"{repo}/{name}"):
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repo, name, repo_type="dataset"))


@contextmanager
def _hub(repo: str, wanted: str) -> Iterator[None]:
    """Ask the hub once; where it does not answer, look at the cache alone.

    The client's own retries take 25 s before they give up.
    """
    with needs_extra(f"{repo} of the hub"):  # slow to import, and only the hub needs them
        import datasets
        import huggingface_hub
        from huggingface_hub import constants
        from huggingface_hub.errors import HfHubHTTPError

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if not any(before):
        try:
            huggingface_hub.HfApi().dataset_info(repo, timeout=PROBE_TIMEOUT_S)
        except HfHubHTTPError:
            pass  # it answered; the real request will report what is wrong
        except Exception:
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:
        # The hub client raises errors of several libraries; each means that there are no rows.
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"{wanted} cannot be had from the Hugging Face hub ({reason[:120]}); download its "
            "files elsewhere and pass --data-file PATH (docs/data.md names the layouts)"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
