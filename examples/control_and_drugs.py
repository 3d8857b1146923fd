"""What do two drugs share, and what does each do alone? Three sets, with missing entries.

Run with `python examples/control_and_drugs.py`.
"""

import numpy as np

import contrastive_lvm as clvm


def main() -> dict[str, float]:
    """Return how far the true latents of each block are found, as squared correlations."""
    truth = {"a+b+control": 4, "a+b": 1, "a": 1, "b": 1}
    data = clvm.datasets.make_multi_set(truth, n_rows=200, n_features=30, random_state=0)
    rows = data.rows.copy()
    rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    design = clvm.designs.one_background("control", ["a", "b"], n_shared=4, n_targets=1, n_each=1)
    model = clvm.MultiSetLVM(design).fit(rows, sets=data.sets)
    latents = model.latents(rows, sets=data.sets).mean
    found = {}
    for block, name in {"targets": "a+b", "a": "a", "b": "b"}.items():
        active = ~np.isnan(data.latents[name][:, 0])
        own, planted = latents[block][active, 0], data.latents[name][active, 0]
        found[block] = float(np.corrcoef(own, planted)[0, 1] ** 2)
    return found


if __name__ == "__main__":
    print(main())
