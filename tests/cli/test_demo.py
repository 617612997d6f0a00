"""`ragbench demo` serves the recorded runs that come with the package, and needs no model."""

import os
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen


def test_the_demo_serves_four_recorded_runs_until_ctrl_c(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ragbench", "demo", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp_path)},
    ) as demo:  # fmt: skip
        address = demo.stdout.readline().split()[0]
        with urlopen(f"{address}data") as answer:
            data = answer.read().decode()
        with urlopen(f"{address}piece/0/0") as answer:
            assert "system" in answer.read().decode(), "prompts are kept"
        demo.send_signal(signal.SIGINT)
        assert demo.stdout.read() == "stopped\n"
    for name in ("vanilla", "ircot", "react", "vanilla-compiled"):
        assert f"runs/{name}" in data
    assert demo.returncode == 0
    assert not any(tmp_path.iterdir()), "what was unpacked is gone"
    assert len(files("ragbench.cli").joinpath("demo.zip").read_bytes()) < 300_000
