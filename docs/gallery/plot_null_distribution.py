"""
Is there any contrast?
======================

The test exchanges rows between the sets and asks how often chance alone gives as much contrast.
The bars show the contrast in 999 permutations, and the line shows the contrast in the data.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(150, 150, n_features=20, n_shared=3, random_state=0)
test = clvm.contrast_test(data.target, background=data.background, random_state=0)
clvm.plots.plot_null_distribution(test)
plt.show()
