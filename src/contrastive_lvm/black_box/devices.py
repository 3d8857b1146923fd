"""Where arrays go: rows of a batch over all devices, everything else on each."""

from typing import NamedTuple

from contrastive_lvm._jax import Tree, jax
from contrastive_lvm.exceptions import InvalidParameterError


class Placement(NamedTuple):
    """A sequence of devices; with a single one, nothing has to be placed."""

    mesh: "jax.sharding.Mesh"
    n_devices: int

    def put(self, tree: Tree, *axes: str | None) -> Tree:
        """Place a copy on each device.

        With the axes `None, "rows"` of stacked minibatches, (C, B, D), each device gets a part of
        every batch's rows.
        """
        spec = jax.sharding.PartitionSpec(*axes)  # type: ignore[no-untyped-call]
        sharding = jax.sharding.NamedSharding(self.mesh, spec)
        one = self.mesh.devices.ravel()[0]
        placed: Tree = jax.device_put(tree, one if self.n_devices == 1 else sharding)
        return placed


def placement(n_devices: int | None) -> Placement:
    """Return the first devices that JAX has; None takes all."""
    available = jax.devices()
    if n_devices is not None and n_devices > len(available):
        reason = f"is more than the {len(available)} that JAX has here; use None for all of them."
        raise InvalidParameterError("n_devices", n_devices, reason)
    chosen = available[:n_devices]
    return Placement(jax.sharding.Mesh(chosen, ("rows",)), len(chosen))
