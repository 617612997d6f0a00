"""Quantiles, tails and power of the t distribution, and the sign test, are scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from ragbench.metrics.stats.power import t_power
from ragbench.metrics.stats.significance import sign_p
from ragbench.metrics.stats.student import t_quantile, t_tail

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


@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, 1.0, 2.5, 6.0, 40.0])
def test_a_tail_is_that_of_scipy(t: float) -> None:
    for df in DFS:
        wanted = float(scipy.special.stdtr(df, -t))
        assert t_tail(t, df) == pytest.approx(wanted, rel=1e-9, abs=1e-300), df


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 20])
def test_power_is_that_of_the_noncentral_t_of_scipy(alpha: float) -> None:
    for df in (1.0, 1.7, 2.0, 3.5, 10.0, 99.0, 1_000.0, 123_456.7):
        critical = float(scipy.stats.t.ppf(1 - alpha / 2, df))
        for shift in (0.5, 1.0, 2.0, 2.8, 4.0, 6.0):
            above = scipy.stats.nct.sf(critical, df, shift)
            below = scipy.stats.nct.cdf(-critical, df, shift)  # NaN where it is next to nothing
            wanted = float(above + np.nan_to_num(below))
            assert t_power(shift, df, alpha=alpha) == pytest.approx(wanted, abs=1e-10), (df, shift)


def test_the_sign_test_is_the_binomial_test_of_scipy() -> None:
    for n in (1, 2, 5, 8, 41, 300, 12_345):
        for positive in {0, 1, n // 3, n // 2, (n + 1) // 2, n - 1, n}:
            wanted = float(scipy.stats.binomtest(positive, n).pvalue)
            assert sign_p(positive, n) == pytest.approx(wanted, rel=1e-9, abs=1e-300), (n, positive)
    assert sign_p(0, 0) == 1.0
