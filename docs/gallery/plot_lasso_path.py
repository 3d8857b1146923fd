"""
From all features to none
=========================

The group lasso sets the loadings of whole features to zero. The path shows which features stay as
the penalty grows.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(random_state=0)
model = clvm.ContrastiveLVM(n_target=2, n_shared=10)
path = clvm.group_lasso_path(model, data.target, background=data.background)
clvm.plots.plot_lasso_path(path)
plt.show()
