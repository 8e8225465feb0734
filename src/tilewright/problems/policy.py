"""Which dims of a tensor a scale, a zero point or a post-op's operand varies along."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.errors import ProblemError, short
from tilewright.problems.pieces import Piece, unknown

NAMES = ("common", "per_oc", "per_ocic", "per_dim_0", "per_dim_1", "per_dim_01", "per_tensor")
_PER_DIM = re.compile(r"per_dim_([0-9]{1,12})")
_MASK = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by benchdnn's name, or a mask as a number: bit i set, it varies along dim i."""

    name: str = "common"

    def __post_init__(self) -> None:
        is_valid = isinstance(self.name, str) and (
            self.name in NAMES or _PER_DIM.fullmatch(self.name) or _MASK.fullmatch(self.name)
        )
        if not is_valid:
            raise ProblemError(
                f"unknown policy {short(self.name)}",
                where="policy",
                cure=f"choose one of {', '.join(NAMES)}, or a mask in digits",
            )

    def dims(
        self, ndims: int, *, tensor: str = "dst", driver: str = "conv", grouped: bool = False
    ) -> tuple[int, ...]:
        """The dims along which the operand of a tensor with ``ndims`` dims varies.

        ``tensor`` is ``src``, ``weights`` or ``dst``; ``grouped`` says whether convolution weights
        have a group dim in front. Elsewhere the operand has size 1.

        Raises `ProblemError` for a dim that the tensor lacks.
        """
        per_dim = _PER_DIM.fullmatch(self.name)
        if self.name == "common":
            return ()
        if self.name == "per_tensor":
            return tuple(range(ndims))
        if self.name == "per_oc":
            dims = self._channels(ndims, tensor, driver, grouped)
        elif self.name == "per_ocic":
            first = ndims - 2 if driver == "matmul" else int(tensor == "weights" and grouped)
            dims = (first, first + 1)
        elif per_dim:
            dims = tuple(sorted({int(digit) for digit in per_dim[1]}))
        else:
            mask = int(self.name)
            dims = tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
        if dims and dims[-1] >= ndims:
            raise ProblemError(
                f"{self.name} names dim {dims[-1]}, and {tensor} has {ndims} dims",
                where=self.name,
                cure=f"choose dims from 0 to {ndims - 1}",
            )
        return dims

    def _channels(self, ndims: int, tensor: str, driver: str, grouped: bool) -> tuple[int, ...]:
        if driver == "matmul":
            return (ndims - 1,)
        if tensor == "weights":
            return (0, 1) if grouped else (0,)
        return (1,)


COMMON = Policy()


def parse_policy(piece: Piece, *, masks: bool = False) -> Policy:
    """The policy that ``piece`` names; with ``masks`` it may be a number too.

    Raises `ProblemError` for an unknown one.
    """
    word = "common" if piece.word == "host_scalar" else piece.word
    if masks and _MASK.fullmatch(word):
        return Policy(str(int(word)))
    if word in NAMES or _PER_DIM.fullmatch(word):
        return Policy(word)
    raise unknown("policy", piece, (*NAMES, "a mask in digits") if masks else NAMES)
