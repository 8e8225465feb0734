"""What modifies an op beside its problem: bias, scales, zero points, post-ops."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.problems import Binary, PostOp, Prelu, Scale, Sum, ZeroPoint


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes in the order of their effect: zero points, scales, bias, post-ops.

    ``bias`` is the bias's type, None without one. ``names`` gives for each post-op the name of the
    argument that carries its tensor; empty: ``post_op_0``, by its place in the list.

    ``fpmath`` is what operands of f32 may be rounded to before they are multiplied, to nearest even
    (tf32 or bf16; None: they are not); sums are of f32 all the same. The naive kernel rounds, and
    so do schedules for instructions on matrices; all others do not. For convolution and matmul.
    """

    bias: DType | None = None
    scales: tuple[Scale, ...] = ()
    zero_points: tuple[ZeroPoint, ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    names: tuple[str, ...] = ()
    fpmath: DType | None = None

    def scale(self, tensor: str) -> Scale | None:
        """The scale of ``tensor``, if it has one."""
        return next((scale for scale in self.scales if scale.tensor == tensor), None)

    def zero_point(self, tensor: str) -> ZeroPoint | None:
        """The zero point of ``tensor``, if it has one; a constant 0 counts as none."""
        result = next((point for point in self.zero_points if point.tensor == tensor), None)
        return None if result is None or result.value == 0 else result

    def name_of(self, position: int) -> str:
        """The argument that carries the tensor of the post-op at ``position``."""
        name = self.names[position] if position < len(self.names) else ""
        return name or f"post_op_{position}"

    @property
    def reads_dst(self) -> bool:
        """Whether the old values of the result are read."""
        return any(isinstance(post_op, Sum) for post_op in self.post_ops)

    @property
    def result_access(self) -> str:
        """How the kernel accesses its result: ``"out"``, or ``"inout"`` where it is read too."""
        return "inout" if self.reads_dst else "out"

    @property
    def tensors(self) -> tuple[tuple[int, Binary | Prelu], ...]:
        """The post-ops that take a tensor, with their places."""
        numbered = enumerate(self.post_ops)
        return tuple((i, post_op) for i, post_op in numbered if isinstance(post_op, Binary | Prelu))


def check_sources(kind: str, attributes: Attributes, scaled: str) -> None:
    """Raises `UnsupportedError` for scales and zero points of the sources of an op that has no sum
    of products: there is nothing to subtract a zero point from, and a scale is applied to the
    result, which ``scaled`` says when that may be: ``"always"``, ``"positive"`` or ``"never"``.
    """
    for point in attributes.zero_points:
        if point.tensor != "dst":
            raise UnsupportedError(
                f"{kind} takes no zero point for {point.tensor}",
                cure="subtract it in a reorder of its own, or give one for dst",
            )
    for scale in attributes.scales:
        positive = scale.value is not None and scale.value > 0
        if scale.tensor != "dst" and scaled != "always" and not (positive and scaled == "positive"):
            raise UnsupportedError(
                f"{kind} takes no scale for {scale.tensor}",
                why="the scale is applied to the result, which it is no factor of"
                if scaled == "never"
                else "the scale is applied to the result, and a negative one turns the order",
                cure="give one for dst"
                if scaled == "never"
                else "give a positive value, or a scale for dst",
            )


def scale_name(tensor: str) -> str:
    """The argument that carries the scales of ``tensor``."""
    return f"{tensor}_scale"


def zero_point_name(tensor: str) -> str:
    """The argument that carries the zero points of ``tensor``."""
    return f"{tensor}_zero_point"
