"""The results of a fit as tables: loadings, latents, means, shares of variance, settings."""

from pathlib import Path

import numpy as np
import pandas as pd

from contrastive_lvm import __version__
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.row_columns import facts_of_rows
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.io.tables.write import described, harmless_frame
from contrastive_lvm.report.evidence import Evidence
from contrastive_lvm.report.findings import Fitted


def tables_of_model(model: Fitted, sets: Sets, evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Return tables by name; for a model that scales rows, loadings are those of scaled rows."""
    found = {
        "loadings": _loadings(model, sets, evidence),
        "latents": _latents(model, sets, sets.target, "target"),
    }
    if sets.background is not None:
        found["background"] = _latents(model, sets, sets.background, "background")
    if evidence.means is not None:
        found["means"] = evidence.means.table.rename_axis("feature")
    if evidence.subgroups is not None:
        apart = evidence.subgroups.differences.table
        found["subgroups"] = apart.assign(subgroup=apart.subgroup + 1).set_index("subgroup")
    if isinstance(model, ContrastiveLVM):
        shares = {
            f"{block}{i + 1}": share
            for block, own in (
                ("target", model.target_variance_ratio_),
                ("shared", model.shared_variance_ratio_),
            )
            for i, share in enumerate(own.tolist())
        }
        shares["noise"] = float(model.noise_variance_ratio_)
        found["variance"] = pd.DataFrame({"share": shares}).rename_axis("part")
    found["settings"] = _settings(model, sets, evidence)
    return found


def _loadings(model: Fitted, sets: Sets, evidence: Evidence) -> pd.DataFrame:
    columns: dict[str, np.ndarray] = {}
    errors = evidence.standard_errors(model)
    for block in ("target", "shared"):
        components = getattr(model, f"{block}_components_", None)
        for i, own in enumerate(() if components is None else components):
            columns[f"{block}{i + 1}"] = own
            if block == "target" and errors is not None:
                columns[f"target{i + 1}_std"] = errors[i]
    return pd.DataFrame(columns, index=pd.Index(sets.preparation.features, name="feature"))


def _latents(model: Fitted, sets: Sets, table: Table, of: str) -> pd.DataFrame:
    """Return posterior means, standard deviations and subgroups, together with the annotations."""
    rows = frame(table, named=sets.preparation.named)
    facts = facts_of_rows(table, sets.preparation)
    found = model.latents(rows, of=of, **facts)
    columns: dict[str, np.ndarray] = {}
    for block in ("target", "shared"):
        means, stds = getattr(found, block), getattr(found, f"{block}_std")
        for i in range(0 if means is None else means.shape[1]):
            columns[f"{block}{i + 1}"] = means[:, i]
            columns[f"{block}{i + 1}_std"] = stds[:, i]
    has_subgroups = isinstance(model, ContrastiveLVM) and model.latent_prior is not None
    if of == "target" and has_subgroups:
        known = {name: value for name, value in facts.items() if name == "covariates"}
        probabilities = np.asarray(getattr(model, "predict_proba")(rows, **known))  # noqa: B009
        columns["subgroup"] = probabilities.argmax(axis=1) + 1.0
        columns |= {f"probability{i + 1}": own for i, own in enumerate(probabilities.T)}
    return described(table, list(columns), np.column_stack(list(columns.values())))


def _settings(model: Fitted, sets: Sets, evidence: Evidence) -> pd.DataFrame:
    values: dict[str, object] = {"contrastive-lvm": __version__, "estimator": type(model).__name__}
    values |= {name: repr(value) for name, value in model.get_params().items()}
    values |= {"n_target_": int(model.n_target_), "n_shared_": int(model.n_shared_)}
    values |= {"rows of the target": sets.target.n_rows, "features": len(sets.preparation.features)}
    if sets.background is not None:
        values["rows of the background"] = sets.background.n_rows
    values |= {"scaling": sets.preparation.scaling.method, "verdict": evidence.verdict["sentence"]}
    values |= {"test": evidence.verdict["method"], "converged": bool(model.converged_)}
    return pd.DataFrame({"value": values}).astype(str).rename_axis("setting")


def write_workbook(path: Path, tables: dict[str, pd.DataFrame]) -> None:
    """Write tables as the sheets of a workbook, in which nothing is a formula."""
    try:
        with pd.ExcelWriter(path, engine="openpyxl") as book:
            for name, table in tables.items():
                harmless_frame(table).to_excel(book, sheet_name=name)
    except ImportError as error:
        raise ImportError(
            "a workbook needs openpyxl, which is not installed; "
            "pip install 'contrastive-lvm[excel]', or name a folder."
        ) from error
