"""The standard variational autoencoder, the baseline that the contrastive one extends."""

from typing import Any, Self

from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.checks import RandomState, check_integer
from contrastive_lvm.estimators.autoencoder import Autoencoder
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.frames import follows_output
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.vae.trained_networks import DecoderInputs


class VAE(Autoencoder):
    """A variational autoencoder: `x = f(t) + mean + noise` with a network `f`.

    The posterior `q(t | x)` is a diagonal Gaussian by another network (Kingma & Welling 2014).
    NaN is a missing entry: it does not count in the likelihood, and the encoder sees where it is.

    Parameters
    ----------
    n_components : int
        Latent dimensions.
    hidden_layer_sizes, activation, encoder, decoder, likelihood, learning_rate, batch_size
        As for `ContrastiveVAE`.
    max_epochs, kl_warm_up
        As for `ContrastiveVAE`.
    clip, validation_fraction, patience, checkpoint, refine_steps, n_devices, random_state, verbose
        As for `ContrastiveVAE`.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        The mean to which the decoder adds; the decoder averages to zero over the rows.
    noise_variance_, dispersion_, history_, lower_bound_, lower_bounds_, lower_bound_error_,
    n_iter_, converged_, state_, n_samples_
        As for `ContrastiveVAE`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> rows = clvm.datasets.make_subgroups(random_state=0).target
    >>> model = clvm.VAE(2, hidden_layer_sizes=(8,), max_epochs=5, random_state=0).fit(rows)
    >>> model.transform(rows).shape, model.inverse_transform([[0.0, 0.0]]).shape
    ((400, 2), (1, 30))
    >>> model.reconstruct(rows).shape, model.sample(3, random_state=0).shape
    ((400, 30), (3, 30))
    >>> rows[0, 0] = float("nan")
    >>> bool(model.impute(rows)[0, 0] == rows[0, 0]), model.score_samples(rows).shape
    (False, (400,))
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        hidden_layer_sizes: tuple[int, ...] = (128, 256),
        activation: str = "relu",
        encoder: Any = None,
        decoder: Any = None,
        likelihood: Any = "gaussian",
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
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = likelihood
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
        self, X: Any, y: Any = None, *, covariates: Covariates = None, resume: Any = None
    ) -> Self:
        """Train on rows (an array, memory map, sparse matrix or Dask array).

        The covariates of rows, such as their batch, are inputs of the encoder and the decoder,
        `f(t, c)`. The other methods then need them too.
        """
        k = check_integer("n_components", self.n_components, 1)
        self._fit({"X": X}, {"covariates": covariates}, (k, 0), 0.0, resume)
        return self

    def _check_state(self, state: SavedState) -> None:
        super()._check_state(state)
        sizes = (check_integer("n_components", self.n_components, 1), 0)
        if (state["n_target"], state["n_shared"]) != sizes:
            raise ValueError("its networks have other dimensions than its parameters say")

    @follows_output
    def reconstruct(self, X: Any, *, covariates: Covariates = None) -> Array:
        """Return the expected rows at the posterior means of their latents."""
        networks, rows = self._rows(X, covariates=covariates)
        t, _ = networks.latents(rows, "target")
        at = DecoderInputs(len(t), t, None, rows.covariates)
        return networks.expected_rows(at, "target", networks.size_factors(rows))

    @follows_output
    def impute(
        self, X: Any, *, return_std: bool = False, n_draws: int = 100, covariates: Covariates = None
    ) -> Array | tuple[Array, Array]:
        """Return X with its NaN replaced by their expectations (and standard deviations)."""
        n_draws = check_integer("n_draws", n_draws, 1)
        networks, rows = self._rows(X, covariates=covariates)
        filled, std = networks.impute(rows, "target", n_draws)
        return (filled, std) if return_std else filled

    @follows_output
    def sample(
        self, n_samples: int, *, covariates: Covariates = None, random_state: RandomState = None
    ) -> Array:
        """Draw new rows."""
        check_is_fitted(self)
        n, rng = check_integer("n_samples", n_samples, 1), check_random_state(random_state)
        t: Array = rng.standard_normal((n, self._n_features_out))
        at = DecoderInputs(n, t, None, self._encoded(covariates, n))
        return self.network_.draw_rows(at, "target", rng)

    def score_samples(self, X: Any, *, n_draws: int = 100, covariates: Covariates = None) -> Array:
        """Return an importance-weighted lower bound on the log-likelihood of each row."""
        n_draws = check_integer("n_draws", n_draws, 1)
        networks, rows = self._rows(X, covariates=covariates)
        return networks.weighted_bounds(rows, "target", n_draws)
