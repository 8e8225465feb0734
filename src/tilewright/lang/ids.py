"""Who a work-item is: the functions of kernels that say it."""

from __future__ import annotations

from typing import Any

from tilewright.lang.builtin import Site, builtin


def _number(site: Site, kind: str, dim: Any) -> Any:
    dims = site.whole.shape.dims
    return site.whole.identities.number(kind, site.known(dim, "dim", 0, dims - 1))


@builtin
def global_id(site: Site, dim: Any) -> Any:
    """The work-item's number along ``dim`` of the range, from the launch's offset on.

    It is s32; s64 where the range needs it. The last dim is the fastest.
    """
    return _number(site, "global_id", dim)


@builtin
def local_id(site: Site, dim: Any) -> Any:
    """The work-item's number along ``dim`` of its workgroup, from 0."""
    return _number(site, "local_id", dim)


@builtin
def group_id(site: Site, dim: Any) -> Any:
    """The number of the workgroup along ``dim``, from 0."""
    return _number(site, "group_id", dim)


@builtin
def global_size(site: Site, dim: Any) -> Any:
    """How many work-items the range has along ``dim``."""
    return _number(site, "global_size", dim)


@builtin
def local_size(site: Site, dim: Any) -> Any:
    """How many work-items a workgroup has along ``dim``: a number that is known when the kernel is
    compiled."""
    dims = site.whole.shape.dims
    at = site.known(dim, "dim", 0, dims - 1)
    site.whole.identities.number("local_size", at)
    site.whole.require_local(site)
    return site.whole.shape.local[at]


@builtin
def num_groups(site: Site, dim: Any) -> Any:
    """How many workgroups the range has along ``dim``."""
    return _number(site, "num_groups", dim)


@builtin
def subgroup_id(site: Site) -> Any:
    """The number of the subgroup in its workgroup, from 0."""
    site.whole.require_subgroup(site)
    return site.whole.identities.number("subgroup_id")


@builtin
def lane_id(site: Site) -> Any:
    """The work-item's number in its subgroup, from 0."""
    site.whole.require_subgroup(site)
    return site.whole.identities.number("lane_id")


@builtin
def subgroup_size(site: Site) -> Any:
    """How many lanes a subgroup has: a number that is known when the kernel is compiled."""
    return site.whole.require_subgroup(site)
