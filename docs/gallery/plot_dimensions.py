"""
How many dimensions
===================

Held-out log-likelihood for every pair of sizes. The choice is the smallest pair within one
standard error of the best.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(150, 150, n_features=15, n_shared=3, random_state=0)
choice = clvm.choose_dimensions(
    data.target, background=data.background, n_shared=(1, 2, 3, 4), random_state=0
)
clvm.plots.plot_dimensions(choice)
plt.show()
