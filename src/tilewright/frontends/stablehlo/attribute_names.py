"""The attributes that operations of StableHLO and CHLO have, by the specification."""

from __future__ import annotations

from difflib import get_close_matches

from tilewright.errors import ProblemError, one_of
from tilewright.frontends.stablehlo.syntax import Operation

# Of all operations together: what one of them does not read decides nothing in another.
NAMES = frozenset(
    [
        "algorithm",
        "api_version",
        "backend_config",
        "base_dilations",
        "batch_dims",
        "batch_group_count",
        "broadcast_dimensions",
        "broadcast_sizes",
        "call_target_name",
        "called_computations",
        "callee",
        "channel_handle",
        "channel_id",
        "channel_type",
        "compare_type",
        "comparison_direction",
        "composite_attributes",
        "composite_regions",
        "custom_call_schedule",
        "decomposition",
        "dimension",
        "dimension_numbers",
        "dimensions",
        "dot_dimension_numbers",
        "edge_padding_high",
        "edge_padding_low",
        "einsum_config",
        "epsilon",
        "exponent_bits",
        "feature_group_count",
        "feature_index",
        "fft_length",
        "fft_type",
        "function_type",
        "has_side_effect",
        "index",
        "indices_are_sorted",
        "infeed_config",
        "inputs",
        "interior_padding",
        "iota_dimension",
        "is_host_transfer",
        "is_reverse",
        "is_stable",
        "k",
        "known_expanding_dimensions",
        "known_nonexpanding_dimensions",
        "largest",
        "left_side",
        "lhs_dilation",
        "limit_indices",
        "lower",
        "mantissa_bits",
        "max_ulp_difference",
        "min_ulp_difference",
        "name",
        "operandSegmentSizes",
        "operand_layouts",
        "operand_segment_sizes",
        "outfeed_config",
        "output_operand_aliases",
        "padding",
        "permutation",
        "precision_config",
        "ragged_dot_dimension_numbers",
        "replica_groups",
        "result_accuracy",
        "resultSegmentSizes",
        "result_layouts",
        "result_segment_sizes",
        "rhs_dilation",
        "rng_algorithm",
        "rng_distribution",
        "scatter_dimension_numbers",
        "sharding",
        "slice_sizes",
        "source_target_pairs",
        "start_indices",
        "strides",
        "sym_name",
        "sym_visibility",
        "tolerance",
        "transpose_a",
        "unique_indices",
        "unit_diagonal",
        "use_global_device_ids",
        "value",
        "version",
        "window_dilations",
        "window_dimensions",
        "window_reversal",
        "window_strides",
    ]
)


# From how much of both names on they are taken for one.
_ALIKE = 0.85


def check_attributes(operation: Operation) -> None:
    """Raises `ProblemError` for an attribute that is called almost as one that decides something:
    it is misspelled. All others, which MLIR lets programs have, say nothing here."""
    for name in operation.attributes:
        if name not in NAMES and get_close_matches(name, NAMES, n=1, cutoff=_ALIKE):
            raise ProblemError(
                f"{operation.name} has no attribute {name!r}",
                where=operation.places.get(name, operation.span),
                why="no operation has one of this name",
                cure=one_of(name, sorted(NAMES)),
            )
