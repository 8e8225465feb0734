"""The sets that ship: all there, well-formed, and with the networks' known amounts of work."""

from __future__ import annotations

import pytest

from tilewright.bench import catalog
from tilewright.errors import ProblemError
from tilewright.problems import LIBRARY, ConvProblem, parse

# Unique shapes, layers, and multiply-adds (padding counted, without the classifier's matrix).
# The sums are those that the papers give, rounded, for whole networks: 3.8e9 (ResNet-50), 300e6
# (MobileNetV2), 0.39e9 (EfficientNet-B0), 15.3e9 (VGG-16), 1.5e9 (GoogLeNet).
EXPECTED = {
    "bert_base": ("matmul", 10, 2 * 12 * 8, 59_492_007_936),
    "c3d": ("conv", 7, 8, 38_496_632_832),
    "efficientnet_b0": ("conv", 46, 81, 384_534_752),
    "googlenet_v1": ("conv", 49, 57, 1_581_647_872),
    "llama_7b": ("matmul", 10, 2 * 32 * 9 + 1, 840_367_603_712),
    "mobilenet_v2": ("conv", 30, 52, 299_494_272),
    "resnet_50": ("conv", 20, 53, 3_855_925_248),
    "unet": ("conv", 23, 23, 150_428_424_448),
    "vgg_16": ("conv", 9, 13, 15_346_630_656),
}


def test_all_sets_are_there() -> None:
    assert catalog.names() == sorted([*EXPECTED, "tails", "reduce", *LIBRARY])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_network(name: str) -> None:
    result = catalog.load(name)
    layers = sum(problem.count for problem in result.problems)
    multiply_adds = sum(problem.count * problem.nominal_flops for problem in result.problems) // 2
    assert (result.driver, len(result.problems), layers, multiply_adds) == EXPECTED[name]
    for problem in result.problems:
        assert problem.name.startswith(f"{name}:")
        if isinstance(problem, ConvProblem):
            assert problem.mb == 1


@pytest.mark.parametrize("name", [*EXPECTED, "tails"])
def test_problems_of_a_set_are_distinct_and_print_back(name: str) -> None:
    result = catalog.load(name)
    assert len({problem.name for problem in result.problems}) == len(result.problems)
    assert len({p.descriptor().partition("n")[0] for p in result.problems}) == len(result.problems)
    for problem in result.problems:
        assert parse(result.driver, problem.descriptor()) == problem


def test_tails_reach_the_edges() -> None:
    tails = [p for p in catalog.load("tails").problems if isinstance(p, ConvProblem)]
    windows = [window for problem in tails for window in problem.windows]
    assert {problem.ndims for problem in tails} == {1, 2, 3}
    assert any(problem.src_size == (1, 1) for problem in tails)
    assert any(problem.ic % 2 and problem.oc % 2 and problem.g == 1 for problem in tails)
    assert any(problem.dst_size[-1] == 1 and problem.stride[-1] == 2 for problem in tails)
    assert any(problem.is_depthwise and problem.g % 8 for problem in tails)
    assert any(problem.is_depthwise and problem.oc > problem.ic for problem in tails)
    assert any(window.kernel > window.size for window in windows)
    assert any(window.stride > window.kernel for window in windows)
    assert any(window.empty_outputs for window in windows)
    assert any(window.dilation for window in windows)
    assert any(window.pad_l != window.pad_r for window in windows)
    assert any(window.pad_r < 0 for window in windows)
    assert sum(problem.nominal_flops for problem in tails) < 10_000_000


def test_refusals() -> None:
    with pytest.raises(ProblemError) as caught:
        catalog.load("resnet_51")
    assert str(caught.value) == (
        "unknown set 'resnet_51'\n  where: --set\n"
        f"  cure: did you mean resnet_50? choose one of {', '.join(catalog.names())}"
    )
    with pytest.raises(ProblemError, match="set mine does not name its driver"):
        catalog.read("mine", "ic3ih3oc3kh3\n")
    with pytest.raises(ProblemError, match="oc is missing"):
        catalog.read("mine", "# driver: conv\n\nic3ih3kh3  # a comment\n")
