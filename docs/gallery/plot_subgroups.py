"""
Subgroups found by the model
============================

A mixture of four normal distributions on the target latents. Each ellipse contains 90 % of a
component; rows whose subgroup is uncertain are grey.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(random_state=0)
model = clvm.ContrastiveLVM(n_target=2, n_shared=10, latent_prior=clvm.Mixture(4))
model.fit(data.target, background=data.background)
clvm.plots.plot_subgroups(model, data.target)
plt.show()
