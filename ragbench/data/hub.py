"""Data sets of the Hugging Face hub, downloaded once and verified at each read.

The published files have no known checksums. Their checksums are recorded after the download in
`SHA256SUMS`, so that a later change is detected. Files that the user puts into the folder are
recorded when they are first read.
"""

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
#: Timeout in seconds for the first answer of the hub.
REACH_S = 1.5


#: Names of parts on the hub -> splits.
_PARTS: Mapping[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


def source_of(spec: DataSettings) -> tuple[HubSource, str | None]:
    """Return the repository of the spec's data set, and the configuration.

    Raises:
        ConfigError: The data set has no repository, or not this configuration.
    """
    if (source := DATASETS.get(spec.dataset).hub) is None:
        if spec.hub_repo is None:
            published = ", ".join(name for name, entry in DATASETS if entry.hub)
            raise ConfigError(
                f"{spec.dataset} has no repository on the hub; choose from "
                f"{published}, or give --hub-repo OWNER/NAME or --data-file"
            )
        return HubSource(spec.hub_repo), spec.hub_config
    config = spec.hub_config or next(iter(source.configs), None)
    if spec.hub_repo is not None:
        return replace(source, repo=spec.hub_repo, configs=()), config
    if spec.hub_config and spec.hub_config not in source.configs:
        raise ConfigError(
            f"{source.repo} has no configuration {spec.hub_config!r}; choose from "
            f"{', '.join(source.configs) or 'none: it has only one'}"
        )
    return source, config


def hub_rows(spec: DataSettings) -> Iterator[Row]:
    """Yield the rows of the spec's data set on the hub, the evaluation part first.

    The test part of an official data set is skipped because it has no answers. Without a test part,
    the validation part becomes the test split, and the train part is cut into train and validation.
    A single part is cut into all three splits.
    """
    source, _ = source_of(spec)
    paths = fetched(spec)
    paths_by_part = {_PARTS[path.stem]: path for path in paths if path.stem in _PARTS}
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
    """Return the corpus file of the spec's data set on the hub, or None if it has none."""
    paths = fetched(spec) if source_of(spec)[0].corpus else []
    return next((checked(path) for path in paths if path.name == _CORPUS), None)


def fetched(spec: DataSettings) -> list[Path]:
    """Return the cached files of the spec's data set. Downloads them if missing.

    Raises:
        DataError: The hub cannot be reached and the cache is empty, or there is no such data set.
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
    """Return `path`. Raises DataError if its SHA-256 differs from the recorded one."""
    recorded = (path.parent / SUMS).read_text().splitlines()
    if f"{sha256_of(path)}  {path.name}" not in recorded:
        raise DataError(
            f"{path} differs from the downloaded file: its SHA-256 is not in {SUMS}; "
            f"delete the folder to download it again, or {SUMS} to accept the files"
        )
    return path


def _fetch(source: HubSource, config: str | None, folder: Path) -> None:
    """Download the data set into `folder`, completely or not at all."""
    with needs_extra(f"{source.repo} of the hub"):  # slow to import, and only the hub needs them
        import datasets
        import huggingface_hub

    work = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        if not huggingface_hub.constants.HF_HUB_OFFLINE:  # Its client retries for half a minute.
            endpoint = huggingface_hub.constants.ENDPOINT
            huggingface_hub.utils.get_session().head(endpoint, timeout=REACH_S)
        for name, target in ((source.questions, "train.json"), (source.corpus, _CORPUS)):
            if name:
                file = name.format(config=config)
                came = huggingface_hub.hf_hub_download(source.repo, file, repo_type="dataset")
                shutil.copyfile(came, work / target)
        if not source.questions:
            for name, rows in datasets.load_dataset(source.repo, config).items():
                rows.to_parquet(work / f"{name}.parquet")
        if folder.exists():
            folder.rmdir()  # empty
        os.replace(work, folder)
    except Exception as error:
        # The hub's client raises errors of several libraries; each means that there are no rows.
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"{source.repo} cannot be downloaded from the Hugging Face hub ({reason[:120]}); put "
            f"its files (train.json, dev.json) into {folder}, or pass --data-file PATH"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
