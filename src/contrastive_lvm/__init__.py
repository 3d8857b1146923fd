"""Contrastive latent variable models: what a target set has and a background has not.

>>> import contrastive_lvm as clvm
>>> data = clvm.datasets.make_subgroups(random_state=0)
>>> model = clvm.ContrastiveLVM(n_target=2, n_shared=10)
>>> latents = model.fit_transform(data.target, background=data.background)
>>> latents.shape
(400, 2)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrastive_lvm import anndata, datasets, plots
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
    from contrastive_lvm.estimators.contrastive_pca import ContrastivePCA
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
    from contrastive_lvm.estimators.files import load_model
    from contrastive_lvm.estimators.leakage import Leakage, leakage
    from contrastive_lvm.estimators.path import LassoPath, group_lasso_path
    from contrastive_lvm.estimators.ppca import PPCA
    from contrastive_lvm.estimators.vae import VAE
    from contrastive_lvm.estimators.views import Latents, Outliers
    from contrastive_lvm.inference.climb import SVIState
    from contrastive_lvm.inference.density import Hidden, density
    from contrastive_lvm.inference.draws import Draws
    from contrastive_lvm.inference.em import EM
    from contrastive_lvm.inference.nuts import NUTS
    from contrastive_lvm.inference.posterior import Posterior
    from contrastive_lvm.inference.svi import SVI
    from contrastive_lvm.inference.vb import VariationalBayes
    from contrastive_lvm.likelihoods.bernoulli import Bernoulli
    from contrastive_lvm.likelihoods.gaussian import Gaussian
    from contrastive_lvm.likelihoods.mixed import Mixed
    from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
    from contrastive_lvm.likelihoods.poisson import Poisson
    from contrastive_lvm.likelihoods.student_t import StudentT
    from contrastive_lvm.model import Model
    from contrastive_lvm.priors.ard import ARD
    from contrastive_lvm.priors.flat import Flat
    from contrastive_lvm.priors.group_lasso import GroupLasso
    from contrastive_lvm.priors.horseshoe import Horseshoe
    from contrastive_lvm.sealed import ModelFileError

__version__ = "0.1.0"

__all__ = [
    "ARD",
    "EM",
    "NUTS",
    "PPCA",
    "SVI",
    "VAE",
    "Bernoulli",
    "ContrastiveLVM",
    "ContrastivePCA",
    "ContrastiveVAE",
    "Draws",
    "Flat",
    "Gaussian",
    "GroupLasso",
    "Hidden",
    "Horseshoe",
    "LassoPath",
    "Latents",
    "Leakage",
    "Mixed",
    "Model",
    "ModelFileError",
    "NegativeBinomial",
    "Outliers",
    "Poisson",
    "Posterior",
    "SVIState",
    "StudentT",
    "VariationalBayes",
    "__version__",
    "anndata",
    "datasets",
    "density",
    "group_lasso_path",
    "leakage",
    "load_model",
    "plots",
]

# Names are imported when first used: scikit-learn alone takes a second.
_HOMES = {
    "ContrastiveVAE": "estimators.contrastive_vae",
    "Leakage": "estimators.leakage",
    "VAE": "estimators.vae",
    "leakage": "estimators.leakage",
    "SVIState": "inference.climb",
    "Draws": "inference.draws",
    "NUTS": "inference.nuts",
    "SVI": "inference.svi",
    "Mixed": "likelihoods.mixed",
    "Bernoulli": "likelihoods.bernoulli",
    "NegativeBinomial": "likelihoods.negative_binomial",
    "Poisson": "likelihoods.poisson",
    "density": "inference.density",
    "Hidden": "inference.density",
    "group_lasso_path": "estimators.path",
    "Outliers": "estimators.views",
    "LassoPath": "estimators.path",
    "VariationalBayes": "inference.vb",
    "StudentT": "likelihoods.student_t",
    "Horseshoe": "priors.horseshoe",
    "GroupLasso": "priors.group_lasso",
    "ARD": "priors.ard",
    "EM": "inference.em",
    "PPCA": "estimators.ppca",
    "ContrastiveLVM": "estimators.contrastive_lvm",
    "ContrastivePCA": "estimators.contrastive_pca",
    "Flat": "priors.flat",
    "Gaussian": "likelihoods.gaussian",
    "Latents": "estimators.views",
    "Model": "model",
    "ModelFileError": "sealed",
    "Posterior": "inference.posterior",
    "load_model": "estimators.files",
}


def __getattr__(name: str) -> Any:
    if name in ("anndata", "datasets", "plots"):
        return import_module(f"contrastive_lvm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'contrastive_lvm' has no attribute {name!r}")
    value = getattr(import_module(f"contrastive_lvm.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
