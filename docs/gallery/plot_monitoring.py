"""
When does a process leave normal operation?
===========================================

The charts compare 200 new rows with normal operation, which the background recorded. The fault
begins at row 100. The dashed lines are limits for 1 % false alarms.
"""

import matplotlib.pyplot as plt
import numpy as np

import contrastive_lvm as clvm

data = clvm.datasets.make_contrastive(300, 500, n_features=20, n_shared=3, random_state=0)
normal, background = data.background[:100], data.background[100:]
model = clvm.ContrastiveLVM(n_target=2, n_shared=3).fit(data.target, background=background)
charts = model.monitor(np.vstack([normal, data.target[:100]]), alpha=0.01)
clvm.plots.plot_monitoring(charts)
plt.show()
