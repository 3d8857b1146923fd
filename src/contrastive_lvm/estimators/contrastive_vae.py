"""The contrastive variational autoencoder as a scikit-learn estimator."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.core.blocks import widen
from contrastive_lvm.core.types import Array
from contrastive_lvm.estimators.autoencoder import Autoencoder
from contrastive_lvm.estimators.predictions import PARTS, SETS
from contrastive_lvm.estimators.validation import (
    check_choice,
    check_number,
    check_whole,
    read_background,
    refuse_sliced_background,
)
from contrastive_lvm.estimators.views import Latents
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.vae.fitted import Fitted
from contrastive_lvm.vae.rows import Source, is_lazy, source


class ContrastiveVAE(Autoencoder):
    """Nonlinear structure that a target set has and a background set has not.

    Rows of the target follow `x = f_s(z) + f_t(t) + mean + noise`, rows of the background
    `y = f_s(z) + background_mean + noise`, with networks `f_s` and `f_t` and standard normal
    latents (Severson, Ghosh & Ng 2019, section 2.4). Two more networks give the posteriors
    `q(t, z | x)` and `q(z | y)`; all are trained together on the sum of both sets' bounds. NaN is a
    missing entry: it does not count in the likelihood, and encoders see where it is.

    Parameters
    ----------
    n_target : int
        Latent dimensions of the target.
    n_shared : int
        Latent dimensions shared with the background.
    hidden : tuple of int
        Widths of the hidden layers of encoders and of decoders; `()` makes both linear.
    activation : {"relu", "elu", "gelu", "softplus", "tanh"}
    likelihood : {"gaussian", "bernoulli", "poisson", "negative_binomial"} or an object
        What decoders predict: means, or the logarithms of odds or rates. `Gaussian` learns its
        noise variance, `NegativeBinomial` its dispersions.
    separation : float
        Weight of a penalty on what the shared latents give away, nats a row of the target: the
        squared maximum mean discrepancy between those of the two sets, plus the dependence between
        shared and target latents. 0 is the paper's model; see `leakage` for what it is about.
    learning_rate : float
        Of Adam, at its largest: it rises over 200 steps and falls to nothing in half a cosine.
    batch_size : int
        Rows of a minibatch, both sets together in proportion to their lengths.
    max_epochs : int or None
        Times through the data; None makes at least 40 epochs and 5,000 steps.
    kl_warm_up : float
        Share of the epochs over which the weight of the target latents' divergence rises from 0 to
        1 while a floor under the noise falls, from 20 times the data's variance: what only the
        target has settles in the target latents. Afterwards the objective is the bound.
    clip : float
        Largest norm of a gradient of the bound, nats an entry.
    validation_fraction : float
        Share of the rows of each set (at most 4,096) that is held out. The state with the best
        bound there is kept; 0 keeps the last.
    patience : int or None
        Rounds (an epoch, and at least 50 steps) without a better bound of held-out rows after which
        training ends.
    checkpoint : path or None
        A file that is written after every round and that `fit(..., resume=path)` goes on from.
    n_devices : int or None
        Devices of JAX over which the rows of a minibatch are spread; None takes all.
    random_state : int, RandomState instance or None
        Seeds the networks, the held-out rows, the order of rows and the draws.
    verbose : bool
        Report progress on stderr.

    Attributes
    ----------
    mean_, background_mean_ : ndarray of shape (n_features,)
        What decoders add to, for rows of the two sets; `f_t` averages to zero over the target,
        `f_s` over the background.
    noise_variance_ : float or ndarray of shape (n_features,)
    dispersion_ : ndarray of shape (n_features,) or None
    history_ : dict of ndarray
        A value a round: `epoch`, the `bound` of the rows that train and its parts
        (`target_reconstruction`, `background_reconstruction`, `target_kl`, `target_shared_kl`,
        `background_shared_kl`), the `leak`, `validation_bound`, `learning_rate`,
        `target_kl_weight`.
    bound_, bound_trace_ : float, ndarray
        The bound of all rows of both sets at the end, and of those that train after each round.
    bound_error_ : float
        Monte-Carlo standard error of the former.
    n_target_, n_shared_ : int
    n_iter_ : int
        Epochs.
    converged_ : bool
        False after an interrupt, or when training diverged again and again.
    state_ : State
        What `fit(..., resume=model.state_)` goes on from; not in model files.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=50, random_state=0)
    >>> model.fit_transform(data.target, background=data.background).shape
    (400, 2)
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"background": True}

    def __init__(
        self,
        n_target: int = 2,
        n_shared: int = 8,
        *,
        hidden: tuple[int, ...] = (128, 256),
        activation: str = "relu",
        likelihood: Any = "gaussian",
        separation: float = 0.0,
        learning_rate: float = 2e-3,
        batch_size: int = 512,
        max_epochs: int | None = None,
        kl_warm_up: float = 0.5,
        clip: float = 1.0,
        validation_fraction: float = 0.1,
        patience: int | None = 20,
        checkpoint: Any = None,
        n_devices: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_target = n_target
        self.n_shared = n_shared
        self.hidden = hidden
        self.activation = activation
        self.likelihood = likelihood
        self.separation = separation
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.kl_warm_up = kl_warm_up
        self.clip = clip
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.checkpoint = checkpoint
        self.n_devices = n_devices
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, background: Any = None, resume: Any = None) -> Self:
        """Train on a target set and a background set.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
            The target. Rows are read a few minibatches at a time and nothing is copied whole,
            except that arrays of whole numbers become floating-point ones (those of Dask a block
            at a time).
        y : ignored
        background : the same, of shape (m, d)
        resume : State, path or None
            `state_` of an earlier fit to the same data, or the file of its `checkpoint`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=50, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> bool(model.history_["bound"][-1] > model.history_["bound"][0])
        True
        """
        n_target = check_whole("n_target", self.n_target, 1)
        n_shared = check_whole("n_shared", self.n_shared, 1)
        separation = check_number(
            "separation", self.separation, 0.0, 1e9, "a number that is not negative"
        )
        if background is None:
            raise ValueError(
                "background=None, but the shared latents are learned from it; pass background=..., "
                "or use VAE."
            )
        target = self._source(X, "X", reset=True)
        others = self._background(background)
        refuse_sliced_background(target.n_rows, others.n_rows)
        sets = {"X": target, "background": others}
        self._train(sets, n_target, n_shared, separation, resume)
        return self

    def _background(self, background: Any) -> Source:
        if is_lazy(background):
            return self._source(background, "background")
        return source(read_background(self, background))

    def _publish(self, fitted: Fitted, history: dict[str, Array]) -> None:
        super()._publish(fitted, history)
        self.background_mean_ = fitted.units.restored(fitted.scaling.background_mean)
        self.n_target_, self.n_shared_ = fitted.design.n_target, fitted.design.n_shared

    @property
    def _n_features_out(self) -> int:
        return int(self.n_target_)

    def fit_transform(
        self, X: Any, y: Any = None, *, background: Any = None, resume: Any = None
    ) -> Array:
        """Fit, then `transform(X)`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit_transform(data.target, background=data.background).shape
        (400, 2)
        """
        return self.fit(X, y, background=background, resume=resume).transform(X)

    def transform(self, X: Any) -> Array:
        """Posterior mean of the target latents of rows of the target, (n, n_target).

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).transform(data.target[:3]).shape
        (3, 2)
        """
        fitted, rows = self._rows(X)
        return fitted.codes(rows, "target")[0][:, : self.n_target_]

    def latents(self, X: Any, *, of: str = "target") -> Latents:
        """Posterior of all latents of rows, with standard deviations.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}

        Returns
        -------
        Latents
            Named tuple `target, target_sd, shared, shared_sd, cov`; `cov` is diagonal.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> latents = model.fit(data.target, background=data.background).latents(data.target)
        >>> latents.shared_sd.shape, latents.cov.shape
        ((400, 4), (400, 6, 6))
        """
        fitted, rows = self._rows(X, of)
        mean, sd = fitted.codes(rows, of)
        cov = sd[:, :, None] ** 2 * np.eye(sd.shape[1])
        if of == "background":
            return Latents(None, None, mean, sd, cov)
        t = self.n_target_
        return Latents(mean[:, :t], sd[:, :t], mean[:, t:], sd[:, t:], cov)

    def inverse_transform(self, T: Any) -> Array:
        """Features from target latents: the expected row at `mean_ + f_t(t)`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).inverse_transform([[0, 0]]).shape
        (1, 30)
        """
        check_is_fitted(self)
        T = self._latents_given(T, self.n_target_)
        return self._decoded(T, None, len(T), "target")

    def reconstruct(self, X: Any, *, parts: tuple[str, ...] = PARTS, of: str = "target") -> Array:
        """Expected rows from the named parts, at the posterior means of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        parts : tuple of {"shared", "target"}
            What to add to the mean; rows of the background have no target part.
        of : {"target", "background"}

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.reconstruct(data.target, parts=("target",)).shape
        (400, 30)
        """
        chosen = (parts,) if isinstance(parts, str) else tuple(parts)
        for part in chosen:
            check_choice("parts", part, PARTS)
        _, rows = self._rows(X, of)
        t, z = self._means(rows, of)
        kept = (t if "target" in chosen else None, z if "shared" in chosen else None)
        return self._decoded(*kept, rows.n_rows, of, self._sizes(rows))

    def _means(self, rows: Source, of: str) -> tuple[Array | None, Array]:
        """Posterior means of target and shared latents."""
        mean = self.network_.codes(rows, of)[0]
        k = self.n_target_ if of == "target" else 0
        return (mean[:, :k] if k else None), mean[:, k:]

    def denoise(self, X: Any) -> Array:
        """Rows of the target with the shared part removed, `x - f_s(E[z | x])`.

        Missing entries come back filled: `mean_ + f_t(E[t | x])`. Counts and binary entries become
        the expected value there, of a row of average size.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).denoise(data.target).shape
        (400, 30)
        """
        fitted, rows = self._rows(X)
        t, z = self._means(rows, "target")
        denoised = self._decoded(t, None, rows.n_rows, "target")
        if not isinstance(fitted.design.likelihood, Gaussian):
            return denoised
        values = np.concatenate([widen(block) for block in rows.blocks()])
        shared = fitted.predictor(rows.n_rows, None, z, "target") - self.mean_
        return np.where(np.isnan(values), denoised, values - shared)

    def impute(
        self, X: Any, *, of: str = "target", return_std: bool = False, n_draws: int = 100
    ) -> Array | tuple[Array, Array]:
        """X with its NaN replaced by their expectations over the posterior of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return standard deviations, zero for observed entries.
        n_draws : int
            Of the latents.

        Examples
        --------
        >>> import numpy as np
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> data.target[0, 0] = np.nan
        >>> filled, std = model.impute(data.target, return_std=True)
        >>> bool(np.isnan(filled).any()), bool(std[0, 0] > 0), bool(std[0, 1] > 0)
        (False, True, False)
        """
        filled, std = self._filled(X, of, check_whole("n_draws", n_draws, 1))
        return (filled, std) if return_std else filled

    def sample(self, n: int, *, of: str = "target", random_state: Any = None) -> Array:
        """Draw new rows.

        Parameters
        ----------
        n : int
        of : {"target", "background", "denoised"}
            `"denoised"` draws the target without its shared part and without noise.
        random_state : int, RandomState instance or None

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.sample(5, of="denoised", random_state=0).shape
        (5, 30)
        """
        check_is_fitted(self)
        check_choice("of", of, (*SETS, "denoised"))
        n, rng = check_whole("n", n, 1), check_random_state(random_state)
        t = rng.standard_normal((n, self.n_target_)) if of != "background" else None
        if of == "denoised":
            return self._decoded(t, None, n, "target")
        return self._drawn(t, rng.standard_normal((n, self.n_shared_)), n, of, rng)

    def score_samples(self, X: Any, *, of: str = "target", n_draws: int = 100) -> Array:
        """A bound on the log-likelihood of each row's observed entries.

        `ln mean_k p(x, h_k) / q(h_k | x)` with draws `h_k` of the latents (Burda et al. 2016): in
        expectation below the log-likelihood, and nearer to it the more draws there are.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        n_draws : int

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.score_samples(data.target).shape
        (400,)
        """
        fitted, rows = self._rows(X, of)
        return fitted.weighted_bounds(rows, of, 0, check_whole("n_draws", n_draws, 1))
