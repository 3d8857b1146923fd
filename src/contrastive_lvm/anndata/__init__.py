"""Models of AnnData: two groups of observations in, latents and loadings written back.

Needs `pip install "contrastive-lvm[anndata]"`. Results are written where scanpy looks for them.
"""

from contrastive_lvm.anndata.fit_observations import fit

__all__ = ["fit"]
