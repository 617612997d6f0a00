"""2WikiMultiHopQA's alias file: other names of the entities that answers and triples name.

The format is that of the official `id_aliases.json`: one object a line, `Q_id, aliases, demonyms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragbench.data.readers import Id, NonBlank, Record, read_rows, validate


class AliasRecord(Record):
    """The other names of one entity."""

    Q_id: Id
    aliases: tuple[NonBlank, ...] = ()
    demonyms: tuple[NonBlank, ...] = ()


class Aliases:
    """Other names by the id of an entity."""

    def __init__(self, names: dict[str, tuple[str, ...]]) -> None:
        self._names = names

    @classmethod
    def read(cls, path: Path) -> Aliases:
        """The aliases in a file.

        Raises:
            DataError: the file cannot be read, or a line is not of the format.
        """
        records = (validate(AliasRecord, row) for row in read_rows(path))
        return cls({record.Q_id: (*record.aliases, *record.demonyms) for record in records})

    def forms(self, name: str, entity: str | None) -> list[str]:
        """`name`, then the other names of the entity with this id, each once."""
        return list(dict.fromkeys([name, *self._names.get(entity or "", ())]))

    def triple_forms(
        self, triples: Sequence[tuple[str, str, str]], ids: Sequence[Sequence[str | None]]
    ) -> list[list[list[str]]]:
        """For each triple the forms of its subject, its relation alone, and those of its object.

        `ids` has the ids of each triple's parts; where it is empty, there are no other forms.
        """
        known = ids or [(None, None, None)] * len(triples)
        return [
            [self.forms(subject, entities[0]), [relation], self.forms(obj, entities[2])]
            for (subject, relation, obj), entities in zip(triples, known, strict=True)
        ]
