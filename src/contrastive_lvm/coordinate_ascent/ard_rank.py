"""How many columns the data supports, in closed form.

For one complete row set with isotropic noise, `q(z) q(S)` and a variance for every column, the
global optimum of the bound is known (Nakajima et al. 2013, Theorem 2 and Corollary 1; 2015,
Theorem 1): along eigenvector h of the covariance a column exists only if

    x_h = N lambda_h / (max(N, D) sigma^2) > (1 + tau)(1 + a / tau),    a = min(N, D) / max(N, D),

where `tau` solves `phi(tau) + phi(tau / a) = 0`, `phi(z) = ln(1 + z) / z - 1/2`; and the noise
minimises

    sum_h x_h - ln x_h + sum_{kept h} ln(1 + t_h) + a ln(1 + t_h / a) - t_h,
    t_h = (y_h + sqrt(y_h^2 - 4 a)) / 2,    y_h = x_h - (1 + a).

With two row sets this is where automatic sizing begins: coordinate ascent from hundreds of
columns would need as many sweeps to drop them one by one, and ends in a poorer optimum, with
little noise and too many columns.
"""

from functools import cache

import numpy as np
from scipy.optimize import brentq

from contrastive_lvm.arrays import Array

NOISE_LEVELS = 400  # tried, from a millionth of the mean variance upwards


def supported_rank(values: Array, total: float, n_rows: float, n_features: int) -> int:
    """Columns at the optimum, given the leading eigenvalues and the trace of a covariance.

    >>> import numpy as np
    >>> supported_rank(np.array([9.0, 4.0, 1.1, 1.0]), 15.1, n_rows=1000, n_features=4)
    2
    """
    if not total > 0:
        return 0
    wide = max(n_rows, n_features)
    a = min(n_rows, n_features) / wide
    threshold = _threshold(a)
    energy = np.maximum(values, 0.0) * n_rows / wide
    rest = max(total * n_rows / wide - float(energy.sum()), 0.0)

    mean = total / n_features
    noise = mean * np.geomspace(1e-6, 1.3, NOISE_LEVELS)
    x = energy / noise[:, None]  # (levels, columns)
    kept = x > threshold
    y = np.where(kept, x - (1.0 + a), threshold)
    t = 0.5 * (y + np.sqrt(np.maximum(y**2 - 4.0 * a, 0.0)))
    gain = np.where(kept, np.log1p(t) + a * np.log1p(t / a) - t, 0.0).sum(axis=1)
    n_columns = min(n_rows, n_features)
    cost = x.sum(axis=1) + rest / noise + n_columns * np.log(noise) + gain
    return int(kept[int(np.argmin(cost))].sum())


def price(n_rows: float, n_features: int) -> float:
    """Return what a column must gain in nats: as much as one of the least supported variance.

    >>> round(price(400, 40)), round(price(1e6, 40))
    (66, 148)
    """
    wide = max(n_rows, n_features)
    least = _threshold(min(n_rows, n_features) / wide) * wide / n_rows  # in units of the noise
    return float(0.5 * n_rows * (least - 1.0 - np.log(least)))


@cache
def _threshold(a: float) -> float:
    def balance(tau: float) -> float:
        return sum(float(np.log1p(z) / z) - 0.5 for z in (tau, tau / a))

    tau = brentq(balance, 1e-9, 3.0)  # phi(3) < 0, and tau <= 2.513
    return float((1.0 + tau) * (1.0 + a / tau))
