"""The contrastive variational autoencoder as a scikit-learn estimator."""

import logging
import warnings
from dataclasses import replace
from typing import Any, ClassVar, Self

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.checks import RandomState, check_integer, check_number
from contrastive_lvm.estimators.autoencoder import PreparedRows
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.input_rows import refuse_background_as_y
from contrastive_lvm.estimators.leakage import (
    HeldOut,
    Leakage,
    check_held_out,
    describes_both_sets,
    judge_held_out,
    separation_warnings,
)
from contrastive_lvm.estimators.network_predictions import NetworkPredictions
from contrastive_lvm.estimators.reporting import report
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.vae.fit_networks import NetworkFit, Resume, continues
from contrastive_lvm.vae.trained_networks import TrainedNetworks
from contrastive_lvm.vae.training import TrainingPlan
from contrastive_lvm.vae.training_data import NetworkRows

logger = logging.getLogger(__name__)
MORE = 3  # times as many shared dimensions in a second training; docs/digits.md


class ContrastiveVAE(NetworkPredictions):
    """Nonlinear structure that a target set has and a background set lacks.

    Rows of the target follow `x = f_s(z) + f_t(t) + mean + noise`, rows of the background
    `y = f_s(z) + background_mean + noise`, with networks `f_s` and `f_t` and standard normal
    latents (Severson, Ghosh & Ng 2019, section 2.4). Two more networks give the posteriors
    `q(t, z | x)` and `q(z | y)`; all are trained together on the sum of both sets' lower bounds.
    NaN is a missing entry: it does not count in the likelihood, and encoders see where it is.

    Parameters
    ----------
    n_target : int
        Latent dimensions of the target.
    n_shared : int
        Latent dimensions shared with the background; three times as many are used in a second
        training (see `kl_warm_up`).
    hidden_layer_sizes : tuple of int
        Widths of the hidden layers of encoders and of decoders; `()` makes both linear.
    activation : {"relu", "elu", "gelu", "softplus", "tanh"}
    encoder, decoder : network or None
        Networks in place of the fully connected ones, each for both sets or both kinds of latents:
        `ConvolutionalEncoder` and `ConvolutionalDecoder` for images, or any hashable object with
        the methods `init(n_inputs, n_outputs, rng)`, which returns weights (nested tuples, lists or
        dicts of float32 arrays), and `apply(weights, inputs)`, which returns outputs of shape
        (B, n_outputs) by functions of JAX. An encoder's outputs are means and log standard
        deviations.
    likelihood : {"gaussian", "bernoulli", "poisson", "negative_binomial"} or an object
        What the decoders predict: means, or log odds or log rates. `Gaussian` learns its noise
        variance, `NegativeBinomial` its dispersions.
    separation : float
        Weight of a penalty on what the shared latents reveal about the target: the squared maximum
        mean discrepancy between the shared latents of the two sets, plus the dependence between
        shared and target latents, plus how much more precise the shared latents of target rows are
        than those of background rows. Its unit is the cost, at the present noise, of a row of which
        no variance is explained, so the same weight suits any number of features, noise and batch
        size. 0 is the paper's model; see `leakage_`.
    learning_rate : float
        Largest learning rate of Adam. The rate rises over 200 steps and then falls to zero along
        half a cosine.
    batch_size : int
        Rows of a minibatch, both sets together in proportion to their lengths.
    max_epochs : int or None
        Number of passes over the data; None means at least 40 epochs and 5,000 steps.
    kl_warm_up : float
        Share of the epochs during which the weight of the target latents' divergence rises from 0
        to 1, while a lower limit of the noise falls from 20 times the variance of the data. This
        makes the target latents describe what only the target has. Afterwards the objective is the
        lower bound. If held-out rows show at the end that the target latents describe what both
        sets have, the shared latents may have been too few, or have stayed unused: `fit` then
        trains once more from the beginning, without warm-up and with three times as many shared
        dimensions. If rows are counts or binary, the target's encoder then describes half of the
        background rows too, without target latents, and the penalty rises from zero. `fit` keeps
        these second networks, and `n_shared_`, `history_` and all other results are theirs. With 0
        it trains only once.
    clip : float
        Largest norm of a gradient of the lower bound, in nats per entry.
    validation_fraction : float
        Share of the rows of each set that is held out, at most 4,096 rows and at least 100 (or a
        fifth of the set, if that is less). The networks with the best lower bound on these rows are
        kept; with 0, the last networks are kept.
    patience : int or None
        Training ends after this many rounds without a better lower bound of held-out rows. A round
        is an epoch, and at least 50 steps.
    checkpoint : path or None
        A file that is written after every round and that `fit(..., resume=path)` continues from.
    refine_steps : int
        Number of gradient steps that improve the posterior of each row, starting from the encoder's
        result, whenever latents are computed. 0 uses the encoders alone, which is faster but less
        accurate for rows outside the training set. Training and `lower_bound_` use the encoders
        alone.
    n_devices : int or None
        Number of JAX devices over which the rows of a minibatch are spread; None uses all.
    random_state : int, RandomState instance or None
        Seeds the networks, the held-out rows, the order of rows and the draws.
    verbose : bool
        Report progress on stderr.

    Attributes
    ----------
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means to which the decoders add, for the two sets; at the encoded latents `f_t` averages to
        zero over the target, and `f_s` over the background.
    noise_variance_ : float or ndarray of shape (n_features,)
    dispersion_ : ndarray of shape (n_features,) or None
    history_ : dict of ndarray
        One value per epoch: `epoch`, the `bound` of the rows that train and its terms
        (`target_reconstruction`, `background_reconstruction`, `target_kl`, `target_shared_kl`,
        `background_shared_kl`), the `leak`, `validation_bound` (after the last epoch of a round,
        NaN elsewhere), `learning_rate`, `target_kl_weight`.
    lower_bound_, lower_bounds_ : float, ndarray
        The lower bound of all rows of both sets at the end, and the lower bound of the training
        rows after each epoch.
    lower_bound_error_ : float
        Monte-Carlo standard error of `lower_bound_`.
    leakage_ : Leakage or None
        What the encoded shared latents of held-out rows reveal (see `leakage`); None with fewer
        than 10 held-out rows in a set.
    target_gain_, target_gain_error_ : float
        How much the target latents add to the lower bound of a held-out row of the target, minus
        how much they add for a row of the background (through the target's encoder), in nats per
        row, and the standard error of this difference. They add nothing by what all rows of a set
        have in common. Without contrast the rows of both sets are alike, and the difference is zero
        on average. NaN with fewer than 10 held-out rows in a set.
    background_gain_ : float
        How much the target latents add to the lower bound of a held-out row of the background. This
        should be nothing; if it is much, the target latents describe what both sets have.
    n_held_out_ : int
        Number of held-out rows, in the set that has fewer of them.
    n_target_, n_shared_ : int
        Latent dimensions; three times `n_shared` shared ones after a second training.
    n_samples_, n_background_samples_ : int
        Rows of the two sets.
    n_iter_ : int
        Epochs.
    converged_ : bool
        Whether training ended because the bound of held-out rows did not improve for `patience`
        rounds. False if training used all epochs, was interrupted, or diverged repeatedly.
    state_ : TrainingState
        The state from which `fit(..., resume=model.state_)` continues; model files do not hold it.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveVAE(2, 4, hidden_layer_sizes=(8,), max_epochs=50, random_state=0)
    >>> model = model.fit(data.target, background=data.background)
    >>> bool(model.lower_bounds_[-1] > model.lower_bounds_[0])
    True

    Latents of the target, and of both sets with standard deviations:

    >>> model.transform(data.target).shape
    (400, 2)
    >>> latents = model.latents(data.background, of="background")
    >>> latents.shared.shape, latents.shared_std.shape, latents.cov.shape
    ((400, 4), (400, 4), (400, 4, 4))

    Rows from latents, without the shared part, without missing entries, and new ones:

    >>> model.inverse_transform([[0, 0]]).shape
    (1, 30)
    >>> model.reconstruct(data.target, parts=("target",)).shape
    (400, 30)
    >>> model.denoise(data.target).shape
    (400, 30)
    >>> data.target[0, 0] = float("nan")
    >>> filled, std = model.impute(data.target, return_std=True)
    >>> bool(filled[0, 0] == filled[0, 0]), bool(std[0, 0] > 0), bool(std[0, 1] > 0)
    (True, True, False)
    >>> model.sample(5, of="denoised", random_state=0).shape
    (5, 30)

    How well rows are described:

    >>> model.score_samples(data.target).shape
    (400,)
    """

    leakage_: Leakage | None
    target_gain_: float
    target_gain_error_: float
    background_gain_: float
    n_held_out_: int
    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "background": True,
        "covariates": True,
        "background_covariates": True,
    }
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"covariates": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {
        "sample_weight": True,
        "covariates": True,
    }

    report = report

    def __init__(
        self,
        n_target: int = 2,
        n_shared: int = 8,
        *,
        hidden_layer_sizes: tuple[int, ...] = (128, 256),
        activation: str = "relu",
        encoder: Any = None,
        decoder: Any = None,
        likelihood: Any = "gaussian",
        separation: float = 2.0,
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
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_target = n_target
        self.n_shared = n_shared
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.encoder = encoder
        self.decoder = decoder
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

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        covariates: Covariates = None,
        background_covariates: Covariates = None,
        resume: Any = None,
    ) -> Self:
        """Train on a target set and a background set.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
            The target. Rows are read a few minibatches at a time and never copied as a whole,
            except that arrays of whole numbers become floating-point ones (those of Dask a chunk
            at a time).
        y : ignored
        background : array-like, memory map, sparse matrix or Dask array of shape (m, d)
            Cross-validation slices it by the folds of X if it is as long as X; pass one row less.
        covariates, background_covariates : frame or array-like of shape (n, c) and (m, c), optional
            Known columns such as batch, age or sex, coded as by `ContrastiveLVM`. They are inputs
            of both encoders and of the shared decoder, `f_s(z, c)`, but not of the target decoder,
            so the latents need not describe their effects. The other methods then need them too.
        resume : TrainingState, path or None
            `state_` of an earlier fit to the same data, or the file of its `checkpoint`.
        """
        sizes, separation = self._sizes(), self._separation()
        if background is None:
            refuse_background_as_y(X, y)
            raise ValueError(
                "background=None, but the shared latents are learned from it; pass background=..., "
                "or use VAE."
            )
        rows = {"X": X, "background": background}
        known = {"covariates": covariates, "background_covariates": background_covariates}
        self._fit(rows, known, sizes, separation, resume)
        return self

    def _sizes(self) -> tuple[int, int]:
        n_shared = check_integer("n_shared", self.n_shared, 1)
        return check_integer("n_target", self.n_target, 1), n_shared

    def _train(
        self,
        rows: PreparedRows,
        sizes: tuple[int, int],
        plan: TrainingPlan,
        seed: int,
        resume: Resume,
    ) -> NetworkFit:
        """Train, and train once more if target latents describe what both sets have."""
        if plan.kl_warm_up == 0.0:
            return super()._train(rows, sizes, plan, seed, resume)
        second = (sizes[0], MORE * sizes[1])
        larger = self._architecture_for(rows, second)
        other_plan = replace(plan, kl_warm_up=0.0, crossed=not larger.has_noise)
        if resume is None or not continues(resume, larger):
            first = super()._train(rows, sizes, plan, seed, resume)
            if not (first.finished and describes_both_sets(first)):
                return first
            logger.info(
                "target latents describe both sets; once more, with %d shared dimensions", second[1]
            )
            seed, resume = first.state.seed, None
        return super()._train(rows, second, other_plan, seed, resume)

    def _separation(self) -> float:
        return check_number("separation", self.separation, 0.0, 1e9, "a number of at least 0")

    def _fitted_state(self) -> SavedState:
        judged = {name: getattr(self, f"{name}_") for name in HeldOut._fields}
        return super()._fitted_state() | judged

    def _restore(self, state: SavedState) -> None:
        super()._restore(state)
        for name in HeldOut._fields:
            setattr(self, f"{name}_", state[name])

    def _check_state(self, state: SavedState) -> None:
        super()._check_state(state)
        check_held_out(state)
        n_target, n_shared = self._sizes()
        known = {n_shared, MORE * n_shared} if self.kl_warm_up else {n_shared}
        if state["n_target"] != n_target or state["n_shared"] not in known:
            raise ValueError("its networks have other dimensions than its parameters say")
        self._separation()

    def _publish(self, fit: NetworkFit, rows: tuple[NetworkRows, ...]) -> None:
        super()._publish(fit, rows)
        for name, value in judge_held_out(fit.networks, fit.held_out)._asdict().items():
            setattr(self, f"{name}_", value)
        for sentence in separation_warnings(self):
            warnings.warn(sentence, UserWarning, stacklevel=5)

    def _publish_networks(self, networks: TrainedNetworks, history: dict[str, Array]) -> None:
        super()._publish_networks(networks, history)
        self.background_mean_ = networks.units.restore(networks.constants.background_mean)
        self.n_target_ = networks.architecture.n_target
        self.n_shared_ = networks.architecture.n_shared

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        covariates: Covariates = None,
        background_covariates: Covariates = None,
        resume: Any = None,
    ) -> Array:
        """Fit, then `transform(X)`; the parameters are those of `fit`."""
        known = {"covariates": covariates, "background_covariates": background_covariates}
        fitted = self.fit(X, y, background=background, resume=resume, **known)
        return fitted.transform(X, covariates=covariates)
