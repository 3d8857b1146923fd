"""
Outliers
========

Student-t noise gives little weight to entries that do not fit the model. The ten rows with the
least weight are the ones that this example has corrupted.
"""

import matplotlib.pyplot as plt
import numpy as np

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(random_state=0)
rng = np.random.default_rng(0)
X = data.target.copy()
X[:10] += 20.0 * rng.standard_normal(X[:10].shape)
model = clvm.ContrastiveLVM(n_target=2, n_shared=10, likelihood="student_t")
model.fit(X, background=data.background)
clvm.plots.plot_outliers(model, X)
plt.show()
