"""A case: a problem with all knobs, as an op and as command-line arguments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tilewright.dtypes import DType, f32, f64
from tilewright.errors import LayoutError, ProblemError
from tilewright.layout.tags import ANY
from tilewright.ops.attributes import Attributes
from tilewright.ops.convolution import convolution_op
from tilewright.ops.foundation import foundation_op
from tilewright.ops.library import library_op
from tilewright.ops.matmul import matmul_op
from tilewright.ops.op import LayoutSpec, Op
from tilewright.problems import (
    ConvProblem,
    Direction,
    MatmulProblem,
    PostOp,
    Problem,
    Record,
    Scale,
    ZeroPoint,
    describe_post_ops,
)
from tilewright.problems.pieces import Piece

# The knob for the tag of each tensor.
TAG_KNOBS = {"src": "stag", "src0": "stag", "weights": "wtag", "src1": "wtag", "dst": "dtag"}


@dataclass(frozen=True)
class Case:
    """``types`` and ``tags`` are in the order of the problem's roles. A tag may be strides instead,
    ``8x1``, or one for each of several tensors, ``axb:abx``; by default it is ``any``.

    ``bias`` is its type, None for the usual one if the direction includes a bias.
    """

    problem: Problem
    types: tuple[DType, ...] = ()
    tags: tuple[str, ...] = ()
    direction: Direction = Direction.FWD_D
    bias: DType | None = None
    scales: tuple[Scale, ...] = ()
    zero_points: tuple[ZeroPoint, ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    fpmath: DType | None = None

    def __post_init__(self) -> None:
        if len(set(self.types)) <= 1:
            object.__setattr__(self, "types", self.problem.expanded(self.types[:1] or (f32,)))
        if not self.tags:
            object.__setattr__(self, "tags", ("any",) * len(self.problem.roles))

    @property
    def driver(self) -> str:
        """``"conv"`` and so on."""
        return self.problem.driver

    def op(self) -> Op:
        """The op of this case.

        Raises `UnsupportedError`, `LayoutError` or `ProblemError` for knobs that do not fit.
        """
        types = dict(zip(self.problem.roles, self.types, strict=True))
        layouts: dict[str, LayoutSpec] = {}
        for role, text in zip(self.problem.roles, self.tags, strict=True):
            layouts |= self._layouts(role, text)
        wide = f64 in self.types
        bias = (self.bias or (f64 if wide else f32)) if self._adds_bias else None
        attributes = Attributes(
            bias, self.scales, self.zero_points, self.post_ops, fpmath=self.fpmath
        )
        problem = self.problem
        if isinstance(problem, Record):
            return library_op(problem, self.direction, types, layouts, attributes)
        self._check_direction()
        match problem:
            case ConvProblem():
                if self.direction is Direction.BWD_WB and self.bias is not None:
                    types["bias"] = self.bias
                return convolution_op(problem, self.direction, types, layouts, attributes)
            case MatmulProblem():
                return matmul_op(problem, types, layouts, attributes)
        return foundation_op(problem, self.direction, types, layouts, attributes)

    def _layouts(self, role: str, text: str) -> dict[str, LayoutSpec]:
        """The layouts that a knob gives the tensors of a role."""
        if text == ANY:
            return {}
        names, parts = [role], Piece.whole(text).split(":")
        if len(parts) > 1 and isinstance(self.problem, Record):
            names = [s.name for s in self.problem.slots(self.direction) if s.role == role]
        if len(names) != len(parts):
            raise LayoutError(
                f"there are {len(parts)} tags, and {len(names)} of {role}",
                where=text,
                cure="give one for each of them, or one for all",
            )
        return {name: _layout(part) for name, part in zip(names, parts, strict=True)}

    @property
    def _adds_bias(self) -> bool:
        if not self.direction.is_forward:
            # Backward by data, a bias makes a transposed convolution; by weights it is a result.
            return self.bias is not None and self.direction is Direction.BWD_D
        return self.direction.has_bias or self.bias is not None

    def _check_direction(self) -> None:
        if self.direction not in self.problem.directions:
            raise ProblemError(
                f"{self.driver} has no direction {self.direction.value}",
                where="--dir",
                cure="choose one of "
                + ", ".join(direction.value for direction in self.problem.directions),
            )

    def arguments(self) -> str:
        """The arguments of ``tilewright verify`` and so on for this case, shell-quoted."""
        words = [self.driver]
        if self.direction is not Direction.FWD_D:
            words.append(f"--dir={self.direction.value}")
        words.append("--dt=" + _types_text(self.types))
        words += [f"--{knob}={text}" for knob, text in self._tags_text().items()]
        if self.bias is not None:
            words.append(f"--bia-dt={self.bias}")
        words += [f"--{knob}={text}" for knob, text in self.problem.settings().items()]
        for knob, entries in (("scales", self.scales), ("zero-points", self.zero_points)):
            if entries:
                words.append(f"--attr-{knob}=" + "+".join(entry.describe() for entry in entries))
        if self.post_ops:
            words.append("--attr-post-ops=" + describe_post_ops(self.post_ops))
        if self.fpmath is not None:
            words.append(f"--attr-fpmath={self.fpmath}")
        words.append(self.problem.descriptor())
        return shlex.join(words)

    def _tags_text(self) -> dict[str, str]:
        names = zip(self.problem.roles, self.tags, strict=True)
        return {TAG_KNOBS[name]: tag for name, tag in names if tag != "any"}


def _types_text(types: tuple[DType, ...]) -> str:
    return types[0].name if len(set(types)) == 1 else ":".join(dtype.name for dtype in types)


def _layout(piece: Piece) -> LayoutSpec:
    """The tag, or the strides in elements, ``8x1``, that stand there."""
    if not piece.word[:1].isdecimal():
        return piece.word
    return tuple(stride.integer("a stride") for stride in piece.split("x"))
