"""Loaders. Each registers the name of its data set."""

from ragbench.data import synthetic, user_data
from ragbench.data.loaders import chunked, custom, multihop
