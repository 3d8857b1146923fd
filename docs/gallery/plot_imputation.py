"""
How well are missing entries imputed?
=====================================

A tenth of the entries are hidden, and the model fills them in. If the model is right, 90 % of the
hidden entries lie inside their intervals.
"""

import matplotlib.pyplot as plt
import numpy as np

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(200, 200, n_features=20, n_shared=3, random_state=0)
hidden = np.random.default_rng(0).random(data.target.shape) < 0.1
incomplete = np.where(hidden, np.nan, data.target)
model = clvm.ContrastiveLVM(n_target=2, n_shared=3).fit(incomplete, background=data.background)
clvm.plots.plot_imputation(model, data.target, hidden)
plt.show()
