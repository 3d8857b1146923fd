"""Draws from the posterior of a fitted estimator."""

from typing import Any

from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.checks import check_integer
from contrastive_lvm.draws import Draws
from contrastive_lvm.posterior import Posterior


class PosteriorDraws:
    """`draws` and `to_arviz` of models fitted by SVI or NUTS."""

    posterior_: Posterior

    def draws(self, n: int = 1000, *, random_state: Any = None) -> Draws:
        """Draws of everything that is not observed, all in the canonical gauge.

        Parameters
        ----------
        n : int
            How many, from the approximation that SVI has fitted. NUTS has its own number.
        random_state : int, RandomState instance or None

        Returns
        -------
        Draws
            `values` by name, each of shape (chains, draws, ...); under NUTS with R-hat and
            effective sample sizes.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_contrastive(30, 30, n_features=5, n_shared=1, random_state=0)
        >>> model = clvm.ContrastiveLVM(1, 1, inference=clvm.SVI(max_iter=2000), random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.draws(200, random_state=0).values["t"].shape
        (1, 200, 30, 1)
        """
        check_is_fitted(self)
        n = check_integer("n", n, 1)
        if self.posterior_.draws is not None:
            return self.posterior_.draws
        if self.posterior_.state is None:
            raise TypeError(
                "draws need a fit by inference='svi' or 'nuts' that was not read from a file; "
                "latents() has the posterior of rows under the other engines."
            )
        from contrastive_lvm.black_box.svi.svi_draws import variational_draws

        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return variational_draws(self.posterior_.state, n, seed)

    def to_arviz(self, n: int = 1000, *, random_state: Any = None) -> Any:
        """The draws as ArviZ's `InferenceData` (a `DataTree` from ArviZ 1.0 on).

        Needs the extra `arviz`.
        """
        return self.draws(n, random_state=random_state).to_arviz()
