"""The recipes that ship, and the list of each machine."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ScheduleError
from tilewright.machines.machine import Machine
from tilewright.recipes.config import Config
from tilewright.recipes.contraction import Contraction
from tilewright.recipes.elementwise import Elementwise
from tilewright.recipes.factored import Factored
from tilewright.recipes.plain import Plain
from tilewright.recipes.recipe import Recipe
from tilewright.recipes.reductions import Reductions
from tilewright.recipes.reductions_in_workgroups import ReductionsInWorkgroups
from tilewright.recipes.stencil import Stencil
from tilewright.recipes.users import registered
from tilewright.recipes.workgroup_recipe import Workgroups

RECIPES: dict[str, Recipe[Any]] = {
    recipe.name: recipe
    for recipe in (
        Stencil(),
        Factored(),
        Workgroups(),
        Contraction(),
        Elementwise(),
        Reductions(),
        ReductionsInWorkgroups(),
        Plain(),
    )
}


def recipes_for(machine: Machine) -> tuple[Recipe[Any], ...]:
    """The recipes for ``machine`` that ship, in the order in which they are asked."""
    return tuple(RECIPES[name] for name in machine.recipes)


def recipe_of(config: Config, machine: Machine) -> Recipe[Any]:
    """The recipe that ``config`` is of, of those for ``machine`` if it is one. Raises
    `ScheduleError` where a user's is not there."""
    for recipe in (*recipes_for(machine), *RECIPES.values(), *registered()):
        if isinstance(config, recipe.config):
            return recipe
    raise ScheduleError(
        f"no recipe is registered for {config!r}", cure="register it first (`tw.register_recipe`)"
    )
