"""Random members on a few arrays: as one kernel, in the interpreter with its checks, they do what
they do one after the other; what does not become one kernel has a reason."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from fusion_cases import add, chain, halve_positive, mirror, numpy_of, scale, shift, twos
from tilewright.lang.kernel import KernelFunction
from tilewright.recipes.fusing import fuse

SIZE = 128
MEMORY = "wxyz"
# Of what touches elements of other work-items, input and output are not the same.
OWN, OTHERS = (scale, add, halve_positive), (mirror, twos, shift)
Step = tuple[KernelFunction, tuple[str, ...]]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    function = draw(st.sampled_from((*OWN, *OWN, *OTHERS)))
    names = draw(
        st.lists(st.sampled_from(MEMORY), min_size=2, max_size=2, unique=function in OTHERS)
    )
    return function, (("a", *names) if function is scale else tuple(names))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(steps(), min_size=1, max_size=5),
    st.sampled_from([None, 64]),
    st.sets(st.sampled_from(MEMORY)),
    st.booleans(),
)
def test_members_as_one(
    members: list[Step], local: int | None, dead: set[str], sized: bool
) -> None:
    if local is None:
        members = [(halve_positive if f is mirror else f, names) for f, names in members]
    touched = {name for _, names in members for name in names if name in MEMORY}
    promote = dict.fromkeys(sorted(dead & touched), "any")
    fusion = chain(*members, size=SIZE if sized else None, local=local, promote=promote)
    result = fuse(fusion, require=False)
    if result.kernel is None:
        assert "workgroup" in result.report.reason
        assert {function for function, _ in members} & {*OTHERS}
        return
    values = {m: np.linspace(-k, k + 1, SIZE, dtype=np.float32) for k, m in enumerate(MEMORY, 1)}
    arguments = {name: array.copy() for name, array in values.items()}
    a = np.float32(1.5)
    for function, names in members:
        numpy_of(function, [a if name == "a" else values[name] for name in names])
    wanted = {param.name for param in result.kernel.params}
    numbers = {"a": a, "n": SIZE, "half": SIZE // 2}
    numbers |= {f"{name}_0": SIZE for name in MEMORY}
    passed = {name: v for name, v in {**arguments, **numbers}.items() if name in wanted}
    for name in [n for n in passed if n.endswith("_0") and n[0] in wanted]:
        del passed[name]
    tw.compile(result.kernel, target="interpreter")(**passed)
    kept = [name for name in MEMORY if name not in dead]
    np.testing.assert_array_equal([arguments[n] for n in kept], [values[n] for n in kept])
    assert all(name in wanted for name in touched - dead)
