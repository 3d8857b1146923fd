"""Fit estimators to groups of observations, and write the results into AnnData."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from contrastive_lvm.anndata.observations import (
    Groups,
    as_text,
    check_key,
    covariates_of,
    encoded_covariates,
    facts_of_sets,
    feature_names_of,
    matrix_of,
    obs_column,
    replicates_of,
    sizes_of,
    takes,
    two_groups,
)
from contrastive_lvm.anndata.write_results import (
    latents_of,
    put,
    rows_of,
    summary_of,
    write_latents,
    write_subgroups,
)
from contrastive_lvm.arrays import NamedRows

if TYPE_CHECKING:
    from anndata import AnnData


def fit(
    adata: "AnnData",
    estimator: Any,
    *,
    groupby: str,
    target: object = None,
    background: object = None,
    layer: str | None = None,
    key_added: str = "clvm",
    size_factors: str | None = None,
    replicates: str | None = None,
    covariates: Sequence[str] = (),
) -> Any:
    """Fit an estimator to groups of observations, and write the results into `adata`.

    Parameters
    ----------
    adata : AnnData
        Changed in place; a view becomes a copy, as always when it is written to. Sparse values stay
        sparse. Backed files and Dask arrays are read a block at a time if the estimator supports
        data larger than memory; a backed matrix that is stored by columns (CSC) is read as a whole.
    estimator : ContrastiveLVM, MultiSetLVM, ContrastiveVAE, ContrastivePCA, PPCA or VAE
        Fitted in place. `PPCA` and `VAE` see the target alone; the sets of a `MultiSetLVM` are all
        groups of the column.
    groupby : str
        Column of `adata.obs` that says which group an observation belongs to.
    target, background : value or list of values
        Values of that column. Observations with other values, or without one, are not used in the
        fit. `background` may be left out if the estimator needs none, and both with `MultiSetLVM`.
    layer : str or None
        Layer to take in place of `adata.X`.
    key_added : str
        Prefix of all names that are written.
    size_factors : str or None
        Column of `adata.obs` with the size factors of rows of counts, which replace their totals.
    replicates : str or None
        Column of `adata.obs` that names the replicate (donor, animal, run) of each observation,
        for `n_target="auto"`: whole replicates are then resampled.
    covariates : sequence of str
        Columns of `adata.obs` whose effects on the mean are estimated, such as age, sex or batch.
        For observations outside both sets, missing values and values that the fit has not seen
        count as average.

    Returns
    -------
    estimator
        The given estimator, fitted; its `feature_names_in_` are `adata.var_names`.

    Notes
    -----
    Written for `key_added="clvm"`:

    - `obsm["X_clvm_target"]`: posterior means of the target latents (for estimators without target
      latents, of their components or latents). Every observation has them, because scanpy's
      neighbours do not accept NaN. Observations outside of the target are treated as rows of the
      target, about the target's mean, so that all observations can be shown together.
    - `obsm["X_clvm_shared"]`: posterior means of the shared latents; observations of the background
      are treated as rows of the background, all others as rows of the target.
    - `varm["clvm_target_loadings"]`, `varm["clvm_shared_loadings"]`: the loadings, a column for
      each dimension; networks have none.
    - `obs["clvm_subgroup"]`, `obsm["clvm_subgroup_probabilities"]`: with
      `latent_prior=Mixture(...)`, the most probable subgroup of the target's observations (others
      have none) and the probabilities of all observations, treated as rows of the target.
    - `uns["clvm"]`: the estimator and its parameters, the groups, the layer, the bound and the
      shares of variance, as strings, numbers and arrays that h5ad can hold.

    `MultiSetLVM` has `obsm["X_clvm_NAME"]` and `varm["clvm_NAME_loadings"]` for the block of each
    name (a "/" in it becomes "_"), and the share of each block in the variance of each group in
    `uns["clvm"]["variance_ratio"]`. Observations of groups that lack a block, or of no group, have
    zeros in the latents of that block.

    `ContrastivePCA`, `PPCA` and `VAE` have no shared part, and nothing is written for it. Results
    of an earlier call under the same key are removed first.

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> rows = np.concatenate([data.target, data.background])
    >>> groups = ["stimulated"] * 400 + ["control"] * 400
    >>> cells = anndata.AnnData(rows, obs=pd.DataFrame({"condition": groups}, map(str, range(800))))
    >>> model = clvm.ContrastiveLVM(n_target=2, n_shared=10)
    >>> words = {"groupby": "condition", "target": "stimulated", "background": "control"}
    >>> model = clvm.anndata.fit(cells, model, **words)
    >>> cells.obsm["X_clvm_target"].shape, cells.varm["clvm_target_loadings"].shape
    ((800, 2), (30, 2))
    """
    values, names = matrix_of(adata, layer), feature_names_of(adata)
    if takes(estimator, "sets"):
        _refuse_two_groups(target, background)
        columns = {"layer": layer, "size_factors": size_factors, "replicates": replicates}
        known = covariates_of(adata, estimator, covariates)
        rows = NamedRows(values, names)
        return _fit_sets(adata, estimator, rows, groupby, key_added, columns, known)
    first, second = two_groups(adata, groupby, target, background)
    groups = Groups(first, second, sizes_of(adata, estimator, size_factors))
    check_key(key_added)
    known = covariates_of(adata, estimator, covariates)
    both = groups.background.any() and takes(estimator, "background")
    facts = {"size_factors": groups.sizes, "covariates": known}
    options = facts_of_sets(groups, facts, both=bool(both))
    if both:
        options["background"] = NamedRows(rows_of(values, groups.background), names)
    options |= replicates_of(adata, estimator, replicates, groups)
    estimator.fit(NamedRows(rows_of(values, groups.target), names), **options)
    groups = groups._replace(covariates=encoded_covariates(estimator, known, groups))
    settings: dict[str, object] = {
        "groupby": groupby,
        "target": as_text(target),
        "background": as_text([] if background is None else background),
        "layer": "X" if layer is None else layer,
    }
    about = {"size_factors": size_factors, "replicates": replicates, "covariates": covariates}
    settings |= {
        name: value if isinstance(value, str) else as_text(value)
        for name, value in about.items()
        if value
    }
    write_latents(adata, key_added, estimator, latents_of(estimator, values, groups), settings)
    write_subgroups(adata, key_added, estimator, values, groups)
    return estimator


def _refuse_two_groups(target: object, background: object) -> None:
    for name, value in (("target", target), ("background", background)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} does not apply to an estimator of several sets, which uses all "
                "groups of the column; leave it out."
            )


def _fit_sets(
    adata: "AnnData",
    estimator: Any,
    given: NamedRows,
    groupby: str,
    key: str,
    columns: dict[str, str | None],
    covariates: pd.DataFrame | None,
) -> Any:
    """Fit an estimator of several sets to all groups of a column, and write the results."""
    column = obs_column(adata, "groupby", groupby)
    known = column.notna().to_numpy(dtype=bool)
    if not known.any():
        raise ValueError(f"groupby={groupby!r} is empty for all observations; name another column.")
    labels = column.astype(str).to_numpy(dtype=object)
    check_key(key)
    sizes = sizes_of(adata, estimator, columns["size_factors"])
    options: dict[str, Any] = {} if sizes is None else {"size_factors": sizes[known]}
    if covariates is not None:
        options["covariates"] = covariates[known]
    own = dict(options)
    groups = Groups(known, np.zeros_like(known))
    options |= replicates_of(adata, estimator, columns["replicates"], groups)
    rows = NamedRows(rows_of(given.values, known), given.names)
    estimator.fit(rows, sets=labels[known], **options)
    found = estimator.latents(rows, sets=labels[known], **own).mean
    for name, latents in found.items():
        whole = np.zeros((len(known), latents.shape[1]))
        whole[known] = np.nan_to_num(np.asarray(latents))
        put(adata.obsm, f"X_{key}_{name.replace('/', '_')}", whole)
        components = estimator.components_[name].T
        put(adata.varm, f"{key}_{name.replace('/', '_')}_loadings", components)
    settings: dict[str, object] = {"groupby": groupby}
    settings |= {n: v for n, v in columns.items() if v is not None}
    if covariates is not None:
        settings["covariates"] = as_text(list(covariates.columns))
    table = estimator.variance_ratio_
    shares = {name.replace("/", "_"): table[name].to_numpy() for name in table}
    about = {"sets": np.array(list(estimator.set_sizes_), dtype=object), "variance_ratio": shares}
    summary = {k: v for k, v in summary_of(estimator).items() if k != "noise_variance"}
    adata.uns[key] = {"layer": "X", **settings, **about, **summary}
    return estimator
