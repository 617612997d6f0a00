"""Quantiles of the t distribution are scipy's."""

from __future__ import annotations

import math

import pytest
import scipy

from ragbench.metrics.stats.student import t_quantile

DFS = (0.5, 1.0, 1.7, 2.0, 3.0, 7.3, 19.0, 99.0, 99.9, 100.1, 999.5, 1e4, 123_456.7, 1e6)


@pytest.mark.parametrize("p", [0.5000001, 0.6, 0.75, 0.9, 0.95, 0.975, 0.995, 0.9995, 0.9999999])
def test_it_is_that_of_scipy(p: float) -> None:
    for df in DFS:
        wanted = float(scipy.special.stdtrit(df, p))
        assert t_quantile(p, df) == pytest.approx(wanted, rel=1e-10, abs=1e-15), df
        assert t_quantile(1 - p, df) == pytest.approx(-wanted, rel=1e-8), df


def test_what_is_known_exactly() -> None:
    assert t_quantile(0.5, 3.0) == pytest.approx(0.0, abs=1e-15)
    assert t_quantile(0.975, 1.0) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-12)
    assert t_quantile(0.75, 2.0) == pytest.approx(math.sqrt(2 / 3), rel=1e-12)
