"""
Shares of the variance
======================

How much of the target's variance is the target's own, how much is shared with the background, and
how much is noise.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(random_state=0)
model = clvm.ContrastiveLVM(n_target=2).fit(data.target, background=data.background)
clvm.plots.plot_variance_shares(model)
plt.show()
