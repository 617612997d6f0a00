"""Report as a page: its data, and its HTML as a file or from a server."""

from ragbench.experiments.report.page.figures import write_figures
from ragbench.experiments.report.page.html import make_server, page_of, write_page
from ragbench.experiments.report.page.report_data import make_board
