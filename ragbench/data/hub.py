"""Where a loader's records come from: a file, or the same data set on the Hugging Face hub.

Hub rows go through the parser of the official files. The hub's train part is cut into train and
validation; its validation part, whose answers are public, is the test split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.data.base import DataSpec
from ragbench.data.files import Row, read_rows
from ragbench.errors import ConfigError, DataError

#: How long the hub may take to say that it is there.
PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class HubSource:
    """A repository on the hub; `configs` begins with the default one, and is empty for one only.

    `files` says that a configuration is a folder of JSON files instead of parquet.
    """

    repo: str
    configs: tuple[str, ...] = ()
    files: bool = False


HUB: Mapping[str, HubSource] = {
    "hotpotqa": HubSource("hotpotqa/hotpot_qa", ("distractor", "fullwiki")),
    "musique": HubSource("dgslibisey/MuSiQue"),
    "2wikimultihopqa": HubSource("framolfese/2WikiMultihopQA"),
    "graphrag_bench": HubSource("GraphRAG-Bench/GraphRAG-Bench", ("medical", "novel")),
    "arag": HubSource(
        "Zly0523/linear-rag", ("musique", "hotpotqa", "2wikimultihop", "medical"), files=True
    ),
}


def rows_of(spec: DataSpec) -> Iterator[Row]:
    """The records of the spec's data file, or of its data set on the hub.

    Raises:
        DataError: neither is given, or what is given cannot be read.
        ConfigError: no such configuration on the hub.
    """
    if not spec.hub:
        return read_rows(_data_file(spec))
    source, config = _source(spec)
    if source.files:
        return read_rows(fetch_file(source.repo, f"{config}/questions.json"))
    return hub_rows(source.repo, fetch(source.repo, config))


def need_corpus(spec: DataSpec) -> Path:
    """The corpus file of a data set that cannot do without.

    Raises:
        DataError: none is given, and the hub has none.
    """
    if spec.corpus_file is not None:
        return spec.corpus_file
    if spec.hub:
        source, config = _source(spec)
        if source.files:
            return fetch_file(source.repo, f"{config}/chunks.json")
    raise DataError(f"{spec.dataset} needs its corpus as a file: pass --corpus-file PATH")


def hub_rows(repo: str, parts: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[Row]:
    """The rows of a hub data set, its validation part first, and held out where there is a train.

    The hub's own test part is left out, since its answers are hidden.
    """
    evaluation = "train" in parts
    for part in ("validation", "train"):
        for number, data in enumerate(parts.get(part, ()), start=1):
            held_out = evaluation and part == "validation"
            yield Row(f"{repo} [{part}]: record {number}", dict(data), held_out)


def fetch(repo: str, config: str | None) -> Mapping[str, Iterable[Mapping[str, Any]]]:
    """The parts of a parquet data set, from the hub or from its cache on this machine.

    Raises:
        DataError: the hub cannot be reached and nothing is cached, or has no such data set.
    """
    import datasets  # slow to import, and only the hub needs it

    try:
        with _quick_offline(repo):
            parts: Mapping[str, Any] = datasets.load_dataset(repo, config)
    except Exception as error:
        # The hub client raises errors of several libraries; each means that there are no rows.
        raise DataError(_cure(repo, error)) from error
    return parts


def fetch_file(repo: str, name: str) -> Path:
    """The local path of one file of a data set repository.

    Raises:
        DataError: as `fetch`.
    """
    from huggingface_hub import hf_hub_download

    try:
        with _quick_offline(repo):
            return Path(hf_hub_download(repo, name, repo_type="dataset"))
    except Exception as error:
        raise DataError(_cure(f"{repo}/{name}", error)) from error


def _data_file(spec: DataSpec) -> Path:
    if spec.data_file is None:
        hub = f" or take {HUB[spec.dataset].repo} from the hub" if spec.dataset in HUB else ""
        raise DataError(f"{spec.dataset} needs its questions: pass --data-file PATH{hub}")
    return spec.data_file


def _source(spec: DataSpec) -> tuple[HubSource, str | None]:
    if spec.dataset not in HUB:
        raise ConfigError(
            f"{spec.dataset} is not on the hub; choose from {', '.join(HUB)}, or pass --data-file"
        )
    source = HUB[spec.dataset]
    config = spec.hub_config or next(iter(source.configs), None)
    if spec.hub_config and spec.hub_config not in source.configs:
        choices = ", ".join(source.configs) or "none: it has only one"
        raise ConfigError(
            f"{source.repo} has no configuration {spec.hub_config!r}; choose from {choices}"
        )
    return source, config


@contextmanager
def _quick_offline(repo: str) -> Iterator[None]:
    """Ask the hub once; where it does not answer, look at the cache alone.

    The client's own retries take 25 s before they give up.
    """
    import datasets
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if not any(before):
        try:
            huggingface_hub.HfApi().dataset_info(repo, timeout=PROBE_TIMEOUT_S)
        except HfHubHTTPError:
            pass  # it answered: whatever is wrong, the real request says it better
        except Exception:
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _cure(what: str, error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return (
        f"{what} cannot be had from the Hugging Face hub ({reason[:120]}); "
        "download its files elsewhere and pass --data-file PATH (docs/data.md names the layouts)"
    )
