"""A fictional world of people, works, firms and places, generated from a seed.

`world` makes the facts, `render` the passages, `questions` the questions; `loader` is the data set.
"""

from ragbench.data.synthetic.loader import (
    load_synthetic as load_synthetic,
    number_of_questions as number_of_questions,
    stream_passages as stream_passages,
)
