"""
Latents with their uncertainty
==============================

The latents of rows with many missing entries are less certain; the ellipses show how much less.
"""

import matplotlib.pyplot as plt
import numpy as np

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(60, random_state=0)
rng = np.random.default_rng(0)
X = np.where(
    rng.random(data.target.shape) < np.linspace(0, 0.8, len(data.target))[:, None],
    np.nan,
    data.target,
)
model = clvm.ContrastiveLVM(n_target=2, n_shared=10).fit(X, background=data.background)
clvm.plots.plot_uncertainty(model.latents(X))
plt.show()
