"""Plots of fitted models; the functions take and return Matplotlib objects."""

from contrastive_lvm.plots.activity_plot import plot_activity
from contrastive_lvm.plots.diagnostics import plot_imputation, plot_missing, plot_trace
from contrastive_lvm.plots.evidence_plots import (
    plot_dimensions,
    plot_null_distribution,
    plot_stability,
)
from contrastive_lvm.plots.history_plots import plot_history
from contrastive_lvm.plots.latent_plots import plot_comparison, plot_latents, plot_shared
from contrastive_lvm.plots.loading_plots import plot_loadings, plot_relevance
from contrastive_lvm.plots.monitoring_plots import plot_monitoring
from contrastive_lvm.plots.outlier_plots import plot_outliers, plot_weights
from contrastive_lvm.plots.sparsity import plot_lasso_path, plot_scales
from contrastive_lvm.plots.spectra import plot_spectrum, plot_variance_shares
from contrastive_lvm.plots.subgroup_plot import plot_subgroups
from contrastive_lvm.plots.uncertainty import plot_uncertainty

__all__ = [
    "plot_activity",
    "plot_comparison",
    "plot_dimensions",
    "plot_history",
    "plot_imputation",
    "plot_lasso_path",
    "plot_latents",
    "plot_loadings",
    "plot_missing",
    "plot_monitoring",
    "plot_null_distribution",
    "plot_outliers",
    "plot_relevance",
    "plot_scales",
    "plot_shared",
    "plot_spectrum",
    "plot_stability",
    "plot_subgroups",
    "plot_trace",
    "plot_uncertainty",
    "plot_variance_shares",
    "plot_weights",
]
