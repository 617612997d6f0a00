from .board import Board as Board, make_board as make_board
from .html import (
    page_of as page_of,
    render_page as render_page,
    write_parts as write_parts,
    write_traces as write_traces,
)
from .server import make_server as make_server
