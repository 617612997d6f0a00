"""Child processes get what they need to run, and no key."""

import pytest

from ragbench.environment import NETWORK, child_environment


def test_keys_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("PYTHONPATH", "/here")
    monkeypatch.setenv("https_proxy", "http://proxy")
    given = child_environment(EXTRA="1")
    assert "canary" not in given.values()
    assert (given["PYTHONPATH"], given["EXTRA"]) == ("/here", "1")
    assert "https_proxy" not in given
    downloads = child_environment(*NETWORK, prefixes=("PIP_",))
    assert (downloads["PIP_INDEX_URL"], downloads["https_proxy"]) == ("canary", "http://proxy")
