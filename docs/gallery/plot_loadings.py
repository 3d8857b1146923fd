"""
Which features, and how sure
============================

Loadings of the first target dimension with 90 % intervals from 200 refits to resampled rows.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(200, 200, n_features=20, n_shared=3, random_state=0)
X, background = data.target, data.background
model = clvm.ContrastiveLVM(n_target=2, n_shared=3).fit(X, background=background)
found = clvm.bootstrap(model, X, background=background, random_state=0)
ax = clvm.plots.plot_loadings(model, bootstrap=found)
ax.set_title("target dimension 1, with 90 % intervals", loc="left")
plt.show()
