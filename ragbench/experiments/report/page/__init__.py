"""Report as a page: its data, and its HTML as a file or from a server."""

from ragbench.experiments.report.page.board import make_board
from ragbench.experiments.report.page.figures import write_figures
from ragbench.experiments.report.page.html import make_server, page_of, write_page
