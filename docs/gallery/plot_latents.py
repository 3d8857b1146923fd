"""
Subgroups that PCA cannot see
=============================

Four subgroups of the target differ along two directions. Much larger variation, which the
background shares, hides them from PCA. The target latents of the contrastive model separate them.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA

import contrastive_lvm as clvm

data = clvm.datasets.make_subgroups(random_state=0)
model = clvm.ContrastiveLVM(n_target=2).fit(data.target, background=data.background)

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
clvm.plots.plot_latents(PCA(2).fit_transform(data.target), data.target_labels, ax=left)
clvm.plots.plot_latents(model.transform(data.target), data.target_labels, ax=right)
left.set_title("PCA")
right.set_title("contrastive latent variable model")
plt.show()
