"""
Is there any contrast?
======================

The test exchanges rows between the sets and asks how often chance alone gives as much contrast.
The bar is what 999 permutations gave, the line is what the data have.
"""

import matplotlib.pyplot as plt

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(150, 150, n_features=20, n_shared=3, random_state=0)
test = clvm.contrast_test(data.target, background=data.background, random_state=0)
clvm.plots.plot_null_distribution(test)
plt.show()
