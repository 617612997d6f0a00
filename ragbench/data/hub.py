"""Data sets of the Hugging Face hub: fetched once into the cache, and checked at every reading.

The checksums of what is published are not known here. What came is recorded instead, as
`SHA256SUMS` beside the files, so that a data set that changed later is noticed. Files put into the
folder by hand are recorded when they are first read.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from ragbench.data.base import DATASETS, HubSource, Split
from ragbench.data.readers import Row, read_rows
from ragbench.errors import ConfigError, DataError, needs_extra
from ragbench.folder_store import sha256_of
from ragbench.paths import cache_root, make_folder
from ragbench.settings import DataSettings

SUMS = "SHA256SUMS"
_CORPUS = "corpus.json"
#: Seconds in which the hub must answer at all.
REACH_S = 1.5


#: The hub's names of the parts of a data set, and the splits that they are.
_PARTS: Mapping[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


def source_of(spec: DataSettings) -> tuple[HubSource, str | None]:
    """The repository of the spec's data set, or the one that it names, and the configuration.

    ConfigError where the data set has no repository, or it has no such configuration.
    """
    if (source := DATASETS.get(spec.dataset).hub) is None:
        if spec.hub_repo is None:
            published = ", ".join(name for name, entry in DATASETS if entry.hub)
            raise ConfigError(
                f"{spec.dataset} has no repository of its own on the hub; choose from "
                f"{published}, or give --hub-repo OWNER/NAME or --data-file"
            )
        return HubSource(spec.hub_repo), spec.hub_config
    config = spec.hub_config or next(iter(source.configs), None)
    if spec.hub_repo is not None:
        return replace(source, repo=spec.hub_repo, configs=(), by_hand=""), config
    if spec.hub_config and spec.hub_config not in source.configs:
        raise ConfigError(
            f"{source.repo} has no configuration {spec.hub_config!r}; choose from "
            f"{', '.join(source.configs) or 'none: it has only one'}"
        )
    return source, config


def hub_rows(spec: DataSettings) -> Iterator[Row]:
    """Yields the rows of the spec's data set on the hub, its evaluation part first.

    In an official data set the hub's test part has no answers and is left out. Of a data set
    without a test part the validation part is the test split, and the train part is cut into train
    and validation; a single part is cut into all three.
    """
    source, _ = source_of(spec)
    paths = fetched(spec)
    paths_by_part = {}
    for path in paths:
        if path.stem in _PARTS:
            paths_by_part[_PARTS[path.stem]] = path
    if DATASETS.get(spec.dataset).hub:
        paths_by_part.pop("test", None)
    if not paths_by_part:
        stems = ", ".join(path.stem for path in paths)
        raise DataError(f"{source.repo} has no part named {', '.join(_PARTS)}; it has {stems}")
    order: tuple[Split, ...] = ("test", "validation", "train")
    for stage in filter(paths_by_part.__contains__, order):
        split: Split | None = None if len(paths_by_part) == 1 else stage
        if split and "test" not in paths_by_part:
            split = "test" if stage == "validation" else None
        for number, row in enumerate(read_rows(checked(paths_by_part[stage])), start=1):
            yield Row(f"{source.repo} [{stage}]: record {number}", row.data, split)


def hub_corpus(spec: DataSettings) -> Path | None:
    """Returns the corpus file of the spec's data set on the hub; None where it has none."""
    paths = fetched(spec) if source_of(spec)[0].corpus else []
    return next((checked(path) for path in paths if path.name == _CORPUS), None)


def fetched(spec: DataSettings) -> list[Path]:
    """The files of the spec's data set in the cache, fetched from the hub where they are not there.

    DataError where the hub cannot be reached and nothing is cached, or has no such data set.
    """
    source, config = source_of(spec)
    folder = cache_root() / "data" / source.repo.replace("/", "--") / (config or "default")
    make_folder(folder.parent)
    with FileLock(f"{folder}.lock"):
        if not any(folder.iterdir() if folder.is_dir() else ()):
            _fetch(source, config, folder)
        files = sorted({*folder.iterdir()} - {folder / SUMS})
        if not (folder / SUMS).exists():
            lines = [f"{sha256_of(path)}  {path.name}\n" for path in files]
            (folder / SUMS).write_text("".join(lines))
    return files


def checked(path: Path) -> Path:
    """Returns `path`, whose SHA-256 is the recorded one, else DataError."""
    recorded = (path.parent / SUMS).read_text().splitlines()
    if f"{sha256_of(path)}  {path.name}" not in recorded:
        raise DataError(
            f"{path} is not what was fetched: its SHA-256 is not the one in {SUMS} beside it; "
            f"delete the folder to fetch it again, or {SUMS} to take the files as they are"
        )
    return path


def _fetch(source: HubSource, config: str | None, folder: Path) -> None:
    """Make `folder` of what the hub has, whole or not at all."""
    with needs_extra(f"{source.repo} of the hub"):  # slow to import, and only the hub needs them
        import datasets
        import huggingface_hub

    work = Path(tempfile.mkdtemp(dir=folder.parent))
    away = _why_away()
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    if away:  # what the hub's own cache has is taken; else its client would try for half a minute
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        for name, target in ((source.questions, "train.json"), (source.corpus, _CORPUS)):
            if name:
                file = name.format(config=config)
                came = huggingface_hub.hf_hub_download(source.repo, file, repo_type="dataset")
                shutil.copyfile(came, work / target)
        tables = {}
        if not source.questions:
            tables = datasets.load_dataset(source.repo, config)
        for name, rows in tables.items():
            with (work / f"{name}.jsonl").open("w", encoding="utf-8") as lines:
                for row in rows:
                    lines.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        if folder.exists():
            folder.rmdir()  # empty
        os.replace(work, folder)
    except Exception as error:
        # The hub's client raises errors of several libraries; each means that there are no rows.
        cure = "download its files and pass --data-file PATH (docs/data.md names the layouts)"
        if source.by_hand and config == next(iter(source.configs), None):
            cure = f"download {source.by_hand}, into {folder}; or pass --data-file PATH"
        reason = away or next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"{source.repo} cannot be had from the Hugging Face hub ({reason[:120]}); {cure}"
        ) from error
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = offline
        shutil.rmtree(work, ignore_errors=True)


def _why_away() -> str:
    """Returns why the hub cannot be reached; blank where it answers."""
    from huggingface_hub import constants, utils

    try:
        utils.get_session().head(constants.ENDPOINT, timeout=REACH_S)
    except Exception as error:  # of the HTTP client that the hub's is made with
        return next(iter(str(error).splitlines()), "") or type(error).__name__
    return ""
