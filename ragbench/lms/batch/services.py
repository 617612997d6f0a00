"""The batch interfaces of OpenAI and Anthropic, through their own packages.

Both take a list of requests, work on it for up to a day, and give one result each, in any order.
A request to start a batch whose reply was lost may have started it: it is never sent again blindly,
but looked for among the batches that the provider lists (`find`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ragbench.errors import LMSetupError, needs_extra
from ragbench.lms.batch.batch_lm import BatchReply, Item
from ragbench.lms.specs import HostedSpec

#: Both take more: 50,000 requests and 200 MB (OpenAI), 100,000 and 256 MB (Anthropic).
MOST_ITEMS = 10_000
MOST_BYTES = 90_000_000
#: Where OpenAI keeps our name for a batch, and so how a lost one is found again.
MARK = "ragbench"

#: The providers' own addresses, given so that no variable of the environment decides where keys go;
#: for the same reason, redirects are not followed.
_OPENAI, _ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"
_CLOCK_SKEW_S = 300
_LISTED = 500  # batches looked through for a lost one
_STATUS = {"invalid_request_error": 400, "authentication_error": 401, "permission_error": 403,
           "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429,
           "timeout_error": 504, "overloaded_error": 529}  # fmt: skip


class UnsureError(Exception):
    """The provider could not be reached, or failed: what was asked may have been done."""


class RefusedError(Exception):
    """The provider said no, and did nothing."""


@dataclass(frozen=True)
class BatchState:
    """How far a batch is; `refused` is why the whole of it failed, if it did."""

    ended: bool
    done: int
    refused: str = ""


class BatchService(Protocol):
    """The batches of one provider. Each method raises `UnsureError` and `RefusedError`."""

    def submit(self, name: str, items: Sequence[Item]) -> str:
        """The id of a new batch of `items`, all of one path."""

    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """The id of a batch called `name`, or of one that may be it, not in `known`; or None.

        It has `n` items and was made at `since_s` (seconds since 1970) or later.
        """

    def state(self, batch_id: str) -> BatchState:
        """How far it is."""

    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """What came of its items by key; one without a result is left out."""

    def close(self) -> None:
        """Let go of connections."""


def service_of(spec: HostedSpec) -> BatchService:
    """The batch interface of the provider of `spec`, at its `api_base` if it has one.

    Raises:
        LMSetupError: it has none that is spoken here.
    """
    if spec.provider == "openai":
        return OpenAIBatches(spec)
    if spec.provider == "anthropic":
        return AnthropicBatches(spec)
    raise LMSetupError(f"no batch interface is known for {spec.identity()}")


class OpenAIBatches:
    """OpenAI's: a file of requests is uploaded, a batch made of it, and files come back."""

    def __init__(self, spec: HostedSpec) -> None:
        import openai

        self._package = openai
        self._client = openai.OpenAI(
            api_key=spec.key() or "none",
            base_url=spec.api_base or _OPENAI,
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )
        self._once = self._client.with_options(max_retries=0)

    def submit(self, name: str, items: Sequence[Item]) -> str:
        """See `BatchService`."""
        lines = (
            {"custom_id": item.key, "method": "POST", "url": _path(item), "body": item.body}
            for item in items
        )
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with _errors(self._package):
            file = self._client.files.create(file=(f"{name}.jsonl", content), purpose="batch")
            endpoint: Any = _path(items[0])
            made = self._once.batches.create(
                input_file_id=file.id, endpoint=endpoint, completion_window="24h",
                metadata={MARK: name},
            )  # fmt: skip
        return made.id

    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """See `BatchService`; by the name alone, which OpenAI keeps."""
        with _errors(self._package):
            for number, batch in enumerate(self._client.batches.list(limit=100)):
                if (batch.metadata or {}).get(MARK) == name and batch.id not in known:
                    return batch.id
                if number >= _LISTED or batch.created_at < since_s - _CLOCK_SKEW_S:
                    return None
        return None

    def state(self, batch_id: str) -> BatchState:
        """See `BatchService`."""
        with _errors(self._package):
            batch = self._client.batches.retrieve(batch_id)
        counts, refused = batch.request_counts, ""
        if batch.status == "failed":
            errors = (batch.errors.data if batch.errors else None) or []
            refused = "; ".join(e.message or e.code or "" for e in errors[:3]) or "no reason given"
        ended = batch.status in ("completed", "failed", "expired", "cancelled")
        return BatchState(ended, counts.completed + counts.failed if counts else 0, refused)

    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """See `BatchService`; from its file of outputs and its file of errors."""
        with _errors(self._package):
            batch = self._client.batches.retrieve(batch_id)
            files = [name for name in (batch.output_file_id, batch.error_file_id) if name]
            texts = [self._client.files.content(name).text for name in files]
        return {
            row["custom_id"]: _openai_reply(row)
            for text in texts
            for row in map(json.loads, filter(str.strip, text.splitlines()))
        }

    def close(self) -> None:
        """See `BatchService`."""
        self._client.close()


class AnthropicBatches:
    """Anthropic's message batches."""

    def __init__(self, spec: HostedSpec) -> None:
        with needs_extra("a batch of Anthropic's"):
            import anthropic
        self._package = anthropic
        self._client = anthropic.Anthropic(
            api_key=spec.key() or "none",
            base_url=(spec.api_base or _ANTHROPIC).removesuffix("/v1"),  # the package adds it
            http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
        )
        self._once = self._client.with_options(max_retries=0)

    def submit(self, name: str, items: Sequence[Item]) -> str:
        """See `BatchService`; Anthropic keeps no name of a batch."""
        requests: Any = [
            {"custom_id": i.key, "params": {k: v for k, v in i.body.items() if k != "stream"}}
            for i in items
        ]
        headers = {name: value for item in items for name, value in item.headers}
        with _errors(self._package):
            made = self._once.messages.batches.create(requests=requests, extra_headers=headers)
        return made.id

    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """See `BatchService`; by time and size, so that its results must be looked at."""
        with _errors(self._package):
            for number, batch in enumerate(self._client.messages.batches.list(limit=100)):
                if number >= _LISTED or batch.created_at.timestamp() < since_s - _CLOCK_SKEW_S:
                    return None
                if batch.id not in known and sum(_counts(batch).values()) == n:
                    return batch.id
        return None

    def state(self, batch_id: str) -> BatchState:
        """See `BatchService`."""
        with _errors(self._package):
            batch = self._client.messages.batches.retrieve(batch_id)
        counts = _counts(batch)
        done = sum(counts.values()) - counts["processing"]
        return BatchState(batch.processing_status == "ended", done)

    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """See `BatchService`."""
        with _errors(self._package):
            results: Any = self._client.messages.batches.results(batch_id)
            rows = [row.to_dict(mode="json") for row in results]
        return {str(row["custom_id"]): _anthropic_reply(row["result"]) for row in rows}

    def close(self) -> None:
        """See `BatchService`."""
        self._client.close()


def _path(item: Item) -> str:
    """The path as a batch names it: from /v1 on, whatever stands before it on this server."""
    _, version, rest = item.path.rpartition("/v1/")
    return f"{version}{rest}"


def _openai_reply(row: dict[str, Any]) -> BatchReply:
    response, error = row.get("response"), row.get("error")
    if response:
        return BatchReply(int(response["status_code"]), response.get("body") or {})
    code = (error or {}).get("code") or "no response"
    # An item of a cancelled batch is not tried again by itself: a person cancelled it.
    status = 400 if code == "batch_cancelled" else 504
    return BatchReply(status, {"error": {"message": f"{code}: {(error or {}).get('message')}"}})


def _anthropic_reply(result: dict[str, Any]) -> BatchReply:
    kind = result["type"]
    if kind == "succeeded":
        return BatchReply(200, result["message"])
    if kind == "errored":
        body = result["error"]
        return BatchReply(_STATUS.get((body.get("error") or {}).get("type", ""), 500), body)
    status, message = (400, "the batch was cancelled") if kind == "canceled" else (504, kind)
    return BatchReply(status, {"type": "error", "error": {"type": kind, "message": message}})


def _counts(batch: Any) -> dict[str, int]:
    counts: dict[str, int] = batch.request_counts.to_dict()
    return counts


@contextmanager
def _errors(package: Any) -> Iterator[None]:
    """Errors of either package as those of this module; a bad key is the user's to mend."""
    try:
        yield
    except package.APIStatusError as error:
        text = f"HTTP {error.status_code}: {error.message}"
        if error.status_code in (401, 403):
            raise LMSetupError(f"the provider refuses the key ({text[:200]})") from None
        kind = UnsureError if error.status_code >= 500 or error.status_code == 408 else RefusedError
        raise kind(text[:300]) from None
    except (package.APIError, OSError, ValueError, KeyError) as error:
        raise UnsureError(f"{type(error).__name__}: {error}"[:300]) from None
