"""Loaders. Each registers the name of its data set."""

from ragbench.data import own, synthetic
from ragbench.data.loaders import chunked, custom, multihop
