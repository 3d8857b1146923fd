"""Where arrays go: rows of a batch over all devices, everything else on each."""

from typing import Any, NamedTuple

from contrastive_lvm._jax import module
from contrastive_lvm.exceptions import InvalidParameterError


class Placement(NamedTuple):
    """Devices in a row; one of them means nothing has to be placed."""

    mesh: Any
    n_devices: int

    def batch(self, arrays: Any) -> Any:
        """Place stacked minibatches, (C, B, D): each device gets a part of every batch's rows."""
        return self._put(arrays, None, "rows")

    def rows(self, array: Any) -> Any:
        """Place one batch, (B, D): each device gets a part of its rows."""
        return self._put(array, "rows")

    def everywhere(self, tree: Any) -> Any:
        """Place a copy on each device."""
        return self._put(tree)

    def _put(self, tree: Any, *axes: str | None) -> Any:
        jax = module("jax")
        if self.n_devices == 1:
            return jax.device_put(tree, self.mesh.devices.ravel()[0])
        sharding = module("jax.sharding")
        return jax.device_put(
            tree, sharding.NamedSharding(self.mesh, sharding.PartitionSpec(*axes))
        )


def placement(n_devices: int | None) -> Placement:
    """Return the first devices that JAX has; None takes all."""
    jax, sharding = module("jax"), module("jax.sharding")
    available = jax.devices()
    if n_devices is not None and n_devices > len(available):
        reason = f"is more than the {len(available)} that JAX has here; use None for all of them."
        raise InvalidParameterError("n_devices", n_devices, reason)
    chosen = available if n_devices is None else available[:n_devices]
    return Placement(sharding.Mesh(chosen, ("rows",)), len(chosen))
