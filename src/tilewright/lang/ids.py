"""Functions of kernels for ids and sizes: of work-items, workgroups, subgroups and the range."""

from __future__ import annotations

from typing import Any

from tilewright.lang.builtin import Site, builtin


def _number(site: Site, kind: str, dim: Any) -> Any:
    dims = site.translation.shape.dims
    return site.translation.identities.number(kind, site.static_integer(dim, "dim", 0, dims - 1))


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
    """The number of work-items that the range has along ``dim``."""
    return _number(site, "global_size", dim)


@builtin
def local_size(site: Site, dim: Any) -> Any:
    """The number of work-items that a workgroup has along ``dim``, which is known when the kernel
    is compiled."""
    dims = site.translation.shape.dims
    number = site.static_integer(dim, "dim", 0, dims - 1)
    site.translation.identities.number("local_size", number)
    site.translation.require_local(site)
    return site.translation.shape.local[number]


@builtin
def num_groups(site: Site, dim: Any) -> Any:
    """The number of workgroups that the range has along ``dim``."""
    return _number(site, "num_groups", dim)


@builtin
def subgroup_id(site: Site) -> Any:
    """The number of the subgroup in its workgroup, from 0."""
    site.translation.require_subgroup(site)
    return site.translation.identities.number("subgroup_id")


@builtin
def lane_id(site: Site) -> Any:
    """The work-item's number in its subgroup, from 0."""
    site.translation.require_subgroup(site)
    return site.translation.identities.number("lane_id")


@builtin
def subgroup_size(site: Site) -> Any:
    """The number of lanes of a subgroup, which is known when the kernel is compiled."""
    return site.translation.require_subgroup(site)
