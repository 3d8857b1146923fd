"""Pictures of latents: functions that take and return Matplotlib's objects, nothing else."""

from contrastive_lvm.plots.scatter import plot_comparison, plot_latents

__all__ = ["plot_comparison", "plot_latents"]
