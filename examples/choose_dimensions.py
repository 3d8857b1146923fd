"""Choose the number of shared dimensions by held-out log-likelihood.

Run with `python examples/choose_dimensions.py`.
"""

import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm


def main() -> dict[str, int]:
    """Return the best parameters on a set with eight shared dimensions."""
    data = clvm.datasets.make_contrastive(300, 250, n_shared=8, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = Pipeline(
            [
                ("scale", StandardScaler()),
                ("model", clvm.ContrastiveLVM(n_target=2, likelihood=clvm.Gaussian("feature"))),
            ],
            transform_input=["background"],
        )
        search = GridSearchCV(pipeline, {"model__n_shared": [4, 6, 8, 10]}, cv=3)
        search.fit(data.target, background=data.background)
    best: dict[str, int] = search.best_params_
    return best


if __name__ == "__main__":
    print(main())
