"""Plots of a page as separate files, drawn by the page's code in a browser."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ragbench.errors import RunError, needs_extra
from ragbench.experiments.report.page.html import page_of
from ragbench.experiments.report.page.report_data import ReportData
from ragbench.logs import get
from ragbench.outputs import Output

_log = get(__name__)
Format = Literal["svg", "pdf"]
_BROWSERS = ("chromium", "google-chrome", "chromium-browser", "chrome")
#: Style of a sheet without margins.
_INK = "body { margin: 0 } svg { display: block }"


def write_figures(
    board: ReportData, folder: Path, format: Format, *, force: bool = False
) -> list[Path]:
    """Write each plot of the page and its caption (.txt).

    A caption states the number of questions, the intervals and the test of the plot.

    Args:
        board: Content of the page.
        folder: Folder of the files.
        format: "svg" or "pdf".
        force: Replace files that `ragbench report` did not write.

    Returns:
        The files of the plots.

    Raises:
        RunError: There is no browser, or the folder cannot be written.
    """
    with needs_extra("figures"):
        import playwright  # noqa: F401
    page = page_of(board, traces=False)
    output = Output(folder, "report", force)
    with ThreadPoolExecutor(1) as pool:  # Playwright rejects the event loop of a notebook.
        return pool.submit(_drawn, page, output, format).result()


def _drawn(content: str, folder: Output, format: Format) -> list[Path]:
    from playwright.sync_api import Error, sync_playwright

    browsers = [path for path in map(shutil.which, _BROWSERS) if path]
    options: dict[str, Any] = {"args": ["--no-sandbox", "--disable-gpu"]}
    if browsers:
        options["executable_path"] = browsers[0]
    written = []
    with TemporaryDirectory(prefix="ragbench-") as temporary, sync_playwright() as started:
        address = Path(temporary) / "page.html"
        address.write_text(content, "utf-8", errors="replace")
        try:
            browser = started.chromium.launch(**options)
        except Error as error:
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"cannot start a browser to draw figures ({reason}). Install chromium or "
                "run `playwright install chromium`."
            ) from None
        page = browser.new_page(color_scheme="light")
        page.goto(address.as_uri())
        for figure in page.evaluate("figures()"):
            if "svg" not in figure:
                _log.warning("Skipping figure %s: %s", figure["name"], figure["reason"])
                continue
            drawing = figure["svg"].encode("utf-8", "replace")
            if format == "pdf":
                sheet = browser.new_page()
                sheet.set_content(f"<style>{_INK}</style>{figure['svg']}")
                drawing = sheet.pdf(
                    width=f"{figure['width']}px", height=f"{figure['height']}px",
                    print_background=True, page_ranges="1",
                )  # fmt: skip
                sheet.close()
            output = folder.inside(f"{figure['name']}.{format}")
            output.write(drawing)
            folder.inside(f"{figure['name']}.txt").write(f"{figure['caption']}\n".encode())
            written.append(output.path)
        browser.close()
    return written
