"""The contrastive variational autoencoder as a scikit-learn estimator."""

from typing import Any, ClassVar, Self

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer, check_number
from contrastive_lvm.estimators.network_predictions import ContrastivePredictions
from contrastive_lvm.estimators.reporting import report
from contrastive_lvm.vae.fitted_networks import Fitted


class ContrastiveVAE(ContrastivePredictions):
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
    refine_steps : int
        Gradient steps by which the posterior of each row is improved beyond what its encoder says,
        whenever latents of rows are asked for; 0 takes the encoders' word, which is quicker and,
        for rows that were not trained on, farther off. Training and `lower_bound_` use encoders
        alone.
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
        `f_s` over the background, at the latents that encoders give.
    noise_variance_ : float or ndarray of shape (n_features,)
    dispersion_ : ndarray of shape (n_features,) or None
    history_ : dict of ndarray
        A value a round: `epoch`, the `bound` of the rows that train and its parts
        (`target_reconstruction`, `background_reconstruction`, `target_kl`, `target_shared_kl`,
        `background_shared_kl`), the `leak`, `validation_bound`, `learning_rate`,
        `target_kl_weight`.
    lower_bound_, lower_bounds_ : float, ndarray
        The bound of all rows of both sets at the end, and of those that train after each round.
    lower_bound_error_ : float
        Monte-Carlo standard error of the former.
    n_target_, n_shared_ : int
    n_samples_, n_background_samples_ : int
        Rows of the two sets.
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

    report = report

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
        refine_steps: int = 30,
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
        self.refine_steps = refine_steps
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
            The background. Cross-validation slices it by the folds of X if it has as many rows.
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
        n_target = check_integer("n_target", self.n_target, 1)
        n_shared = check_integer("n_shared", self.n_shared, 1)
        separation = self._separation()
        if background is None:
            raise ValueError(
                "background=None, but the shared latents are learned from it; pass background=..., "
                "or use VAE."
            )
        target = self._source(X, "X", reset=True)
        others = self._source(background, "background")
        sets = {"X": target, "background": others}
        self._train(sets, n_target, n_shared, separation, resume)
        return self

    def _separation(self) -> float:
        return check_number(
            "separation", self.separation, 0.0, 1e9, "a number that is not negative"
        )

    def _check_state(self, state: dict[str, Any]) -> None:
        super()._check_state(state)
        if not state["n_shared"]:
            raise ValueError("a ContrastiveVAE has shared dimensions")
        check_integer("n_target", self.n_target, 1)
        check_integer("n_shared", self.n_shared, 1)
        self._separation()

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
