"""Store search indexes on this machine, under a hash of corpus and settings.

The vectors of an interrupted build stay in `KEY.unfinished` until the index is complete.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Hashable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ragbench.folder_store import FolderStore, Manifest, read_manifest
from ragbench.retrievers.base import Progress, Retriever

#: Version of the folder of an index, part of its key.
_FORMAT = 3
#: Packages whose new version may read an index differently.
_ENGINES = {"dense": "faiss-cpu"}


class IndexStore(FolderStore):
    """Stored indexes: `FolderStore` that makes and loads retrievers."""

    def fill(self, retriever: Retriever, progress: Progress | None = None) -> Manifest | None:
        """Load the index of a retriever. Build and store it first if it does not exist.

        Args:
            retriever: Retriever whose index is loaded.
            progress: Function that receives the progress.

        Returns:
            The manifest of the stored index. None if it cannot be read.
        """
        key = index_key(retriever)
        unfinished = self.root / f"{key}.unfinished"

        def make(folder: Path) -> dict[str, Any]:
            retriever._unfinished = unfinished
            retriever._make(progress)
            retriever._save(folder)
            return {
                "retriever": retriever.name,
                "corpus": retriever.corpus.digest,
                "passages": len(retriever.corpus),
                "settings": retriever.index_settings(),
                "facts": retriever.facts(),
            }

        def load(folder: Path) -> bool:
            retriever._load(folder)
            return retriever.is_whole

        with self._locked(key):
            if not self._usable(key, load):
                self._write(key, make)
                shutil.rmtree(unfinished, ignore_errors=True)
                retriever._load(self.root / key)  # from now on mapped, not held in memory
            return read_manifest(self.root / key)


def index_key(retriever: Retriever) -> str:
    """Return the name of a retriever's index: a hash of corpus, settings and versions."""
    package = _ENGINES.get(retriever.name)
    content = {
        "retriever": retriever.name,
        "settings": retriever.index_settings(),
        "corpus": retriever.corpus.digest,
        "versions": [_FORMAT, retriever.index_version, package and version(package)],
    }
    text = json.dumps(content, sort_keys=True)
    return f"{retriever.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def opened(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return the index that this process holds under a key, or create it.

    A process holds 512 indexes, as many as the distractor setting holds retrievers.

    Args:
        key: Key of the index.
        make: Function that creates the index.
    """
    with _LOCK:
        index = _OPEN.pop(key, None) or make()
        _OPEN[key] = index
        if len(_OPEN) > 512:
            del _OPEN[next(iter(_OPEN))]  # the least recently used index
    return index


_LOCK = threading.Lock()
_OPEN: dict[Hashable, Any] = {}
