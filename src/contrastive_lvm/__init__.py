"""Contrastive latent variable models: what a target set has and a background lacks.

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
    from contrastive_lvm import anndata, datasets, designs, plots
    from contrastive_lvm.black_box.density import Unobserved, density
    from contrastive_lvm.black_box.nuts.nuts import NUTS
    from contrastive_lvm.black_box.svi.svi import SVI
    from contrastive_lvm.black_box.svi.svi_loop import SVIState
    from contrastive_lvm.coordinate_ascent.em import EM
    from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
    from contrastive_lvm.designs import Block
    from contrastive_lvm.draws import Draws
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
    from contrastive_lvm.estimators.contrastive_pca import ContrastivePCA
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
    from contrastive_lvm.estimators.generalized_contrastive_pca import GeneralizedContrastivePCA
    from contrastive_lvm.estimators.lasso_path import LassoPath, group_lasso_path
    from contrastive_lvm.estimators.leakage import Leakage, leakage
    from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
    from contrastive_lvm.estimators.multi_set_predictions import BlockLatents
    from contrastive_lvm.estimators.parse_params import contrastive_model
    from contrastive_lvm.estimators.ppca import PPCA
    from contrastive_lvm.estimators.prediction_model import (
        BackgroundLatents,
        Latents,
        Outliers,
    )
    from contrastive_lvm.estimators.responders import Responders, responders
    from contrastive_lvm.estimators.subgroups import Subgroups
    from contrastive_lvm.estimators.vae import VAE
    from contrastive_lvm.io.container import ModelFileError
    from contrastive_lvm.io.gmt import read_gmt
    from contrastive_lvm.io.model_files import load_model
    from contrastive_lvm.likelihoods.base import Likelihood, ScaleMixture
    from contrastive_lvm.likelihoods.bernoulli import Bernoulli
    from contrastive_lvm.likelihoods.gaussian import Gaussian
    from contrastive_lvm.likelihoods.mixed import Mixed
    from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
    from contrastive_lvm.likelihoods.poisson import Poisson
    from contrastive_lvm.likelihoods.student_t import StudentT
    from contrastive_lvm.model import LoadingBlock, Model
    from contrastive_lvm.posterior import Posterior
    from contrastive_lvm.priors.ard import ARD
    from contrastive_lvm.priors.base import Prior
    from contrastive_lvm.priors.flat import Flat
    from contrastive_lvm.priors.group_lasso import GroupLasso
    from contrastive_lvm.priors.horseshoe import Horseshoe
    from contrastive_lvm.priors.mixture import Mixture
    from contrastive_lvm.priors.ridge import Ridge
    from contrastive_lvm.resampling.annotations import explain_annotations
    from contrastive_lvm.resampling.bootstrap import BlockBootstrap, Bootstrap, bootstrap
    from contrastive_lvm.resampling.comparison import Comparison, compare_methods
    from contrastive_lvm.resampling.contrast_test import ContrastTest, contrast_test
    from contrastive_lvm.resampling.dimensions import DimensionChoice, choose_dimensions
    from contrastive_lvm.resampling.feature_sets import feature_set_test
    from contrastive_lvm.resampling.mean_difference import mean_difference
    from contrastive_lvm.resampling.subgroup_differences import (
        SubgroupDifferences,
        subgroup_differences,
    )
    from contrastive_lvm.resampling.subgroup_number import SubgroupChoice, choose_subgroups
    from contrastive_lvm.resampling.subgroup_stability import SubgroupStability, subgroup_stability
    from contrastive_lvm.vae.networks import ConvolutionalDecoder, ConvolutionalEncoder

__version__ = "0.2.0"

__all__ = [
    "ARD",
    "EM",
    "NUTS",
    "PPCA",
    "SVI",
    "VAE",
    "BackgroundLatents",
    "Bernoulli",
    "Block",
    "BlockBootstrap",
    "BlockLatents",
    "Bootstrap",
    "Comparison",
    "ContrastTest",
    "ContrastiveLVM",
    "ContrastivePCA",
    "ContrastiveVAE",
    "ConvolutionalDecoder",
    "ConvolutionalEncoder",
    "DimensionChoice",
    "Draws",
    "Flat",
    "Gaussian",
    "GeneralizedContrastivePCA",
    "GroupLasso",
    "Horseshoe",
    "LassoPath",
    "Latents",
    "Leakage",
    "Likelihood",
    "LoadingBlock",
    "Mixed",
    "Mixture",
    "Model",
    "ModelFileError",
    "MultiSetLVM",
    "NegativeBinomial",
    "Outliers",
    "Poisson",
    "Posterior",
    "Prior",
    "Responders",
    "Ridge",
    "SVIState",
    "ScaleMixture",
    "StudentT",
    "SubgroupChoice",
    "SubgroupDifferences",
    "SubgroupStability",
    "Subgroups",
    "Unobserved",
    "VariationalBayes",
    "__version__",
    "anndata",
    "bootstrap",
    "choose_dimensions",
    "choose_subgroups",
    "compare_methods",
    "contrast_test",
    "contrastive_model",
    "datasets",
    "density",
    "designs",
    "explain_annotations",
    "feature_set_test",
    "group_lasso_path",
    "leakage",
    "load_model",
    "mean_difference",
    "plots",
    "read_gmt",
    "responders",
    "subgroup_differences",
    "subgroup_stability",
]

# Names are imported when first used: scikit-learn alone takes a second.
_HOMES = {
    "ContrastTest": "resampling.contrast_test",
    "contrast_test": "resampling.contrast_test",
    "mean_difference": "resampling.mean_difference",
    "ContrastiveVAE": "estimators.contrastive_vae",
    "ConvolutionalDecoder": "vae.networks",
    "ConvolutionalEncoder": "vae.networks",
    "Leakage": "estimators.leakage",
    "VAE": "estimators.vae",
    "leakage": "estimators.leakage",
    "SVIState": "black_box.svi.svi_loop",
    "Block": "designs",
    "BlockLatents": "estimators.multi_set_predictions",
    "MultiSetLVM": "estimators.multi_set_lvm",
    "Draws": "draws",
    "NUTS": "black_box.nuts.nuts",
    "SVI": "black_box.svi.svi",
    "Mixed": "likelihoods.mixed",
    "Bernoulli": "likelihoods.bernoulli",
    "NegativeBinomial": "likelihoods.negative_binomial",
    "Poisson": "likelihoods.poisson",
    "density": "black_box.density",
    "explain_annotations": "resampling.annotations",
    "SubgroupDifferences": "resampling.subgroup_differences",
    "subgroup_differences": "resampling.subgroup_differences",
    "SubgroupStability": "resampling.subgroup_stability",
    "subgroup_stability": "resampling.subgroup_stability",
    "Unobserved": "black_box.density",
    "group_lasso_path": "estimators.lasso_path",
    "Outliers": "estimators.prediction_model",
    "LassoPath": "estimators.lasso_path",
    "VariationalBayes": "coordinate_ascent.variational_bayes",
    "StudentT": "likelihoods.student_t",
    "Horseshoe": "priors.horseshoe",
    "Mixture": "priors.mixture",
    "Subgroups": "estimators.subgroups",
    "Ridge": "priors.ridge",
    "Responders": "estimators.responders",
    "responders": "estimators.responders",
    "GroupLasso": "priors.group_lasso",
    "ARD": "priors.ard",
    "EM": "coordinate_ascent.em",
    "PPCA": "estimators.ppca",
    "ContrastiveLVM": "estimators.contrastive_lvm",
    "ContrastivePCA": "estimators.contrastive_pca",
    "GeneralizedContrastivePCA": "estimators.generalized_contrastive_pca",
    "Flat": "priors.flat",
    "Gaussian": "likelihoods.gaussian",
    "BackgroundLatents": "estimators.prediction_model",
    "Latents": "estimators.prediction_model",
    "Model": "model",
    "LoadingBlock": "model",
    "BlockBootstrap": "resampling.bootstrap",
    "Bootstrap": "resampling.bootstrap",
    "bootstrap": "resampling.bootstrap",
    "DimensionChoice": "resampling.dimensions",
    "choose_dimensions": "resampling.dimensions",
    "SubgroupChoice": "resampling.subgroup_number",
    "choose_subgroups": "resampling.subgroup_number",
    "Comparison": "resampling.comparison",
    "compare_methods": "resampling.comparison",
    "Prior": "priors.base",
    "Likelihood": "likelihoods.base",
    "ScaleMixture": "likelihoods.base",
    "contrastive_model": "estimators.parse_params",
    "ModelFileError": "io.container",
    "Posterior": "posterior",
    "load_model": "io.model_files",
    "feature_set_test": "resampling.feature_sets",
    "read_gmt": "io.gmt",
}


def __getattr__(name: str) -> Any:
    if name in ("anndata", "datasets", "designs", "plots"):
        return import_module(f"contrastive_lvm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'contrastive_lvm' has no attribute {name!r}")
    value = getattr(import_module(f"contrastive_lvm.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
