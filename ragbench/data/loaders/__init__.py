"""The loaders: each registers the name of its data set."""

from ragbench.data import synthetic as synthetic
from ragbench.data.loaders import (
    beir as beir,
    chunked as chunked,
    custom as custom,
    multihop as multihop,
)
