"""The report as a page: its data, its HTML and its server."""

from ragbench.experiments.report.page.data import make_board as make_board
from ragbench.experiments.report.page.html import page_of as page_of, write_page as write_page
from ragbench.experiments.report.page.server import make_server as make_server
