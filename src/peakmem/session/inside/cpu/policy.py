"""Which operators compute, and which only go through the motions.

An operator is skipped where it takes a large tensor of floating-point numbers: what such tensors hold decides on no
size. Everything else computes, so that token ids, labels, masks and lengths, and what is counted and chosen by them,
are true.
"""

import enum

LARGE = 16384
"""Elements of a tensor from which on skipping saves more than it costs."""


class Way(enum.Enum):
    """How an operator is run."""

    RUN = "computed"
    SKIP = "skipped where it takes large tensors of floats"
    RANDOM = "not called where it fills large tensors of floats in place"
    EMPTY = "replaced by an empty tensor where the result is a large tensor of floats"
    FILL = "skipped where it makes a large tensor of floats"


# Their results' sizes, or what they read on the way, hang on values that they compute themselves.
_COMPUTED = frozenset(
    (
        "nonzero",
        "nonzero_numpy",
        "nonzero_static",
        "argwhere",
        "masked_select",
        "masked_scatter",
        "masked_scatter_",
        "unique_dim",
        "unique_consecutive",
        "_unique",
        "_unique2",
        "bincount",
        "histc",
        "histogram",
        "_histogramdd_bin_edges",
        "multinomial",
        "repeat_interleave",
        "searchsorted",
        "bucketize",
        "equal",
        "is_nonzero",
        "_local_scalar_dense",
        "item",
        "isin",
        "_ctc_loss",
        "_ctc_loss_backward",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "_embedding_bag_backward",
        "_embedding_bag_dense_backward",
        "_pack_padded_sequence",
        "_pad_packed_sequence",
        "coalesce",
        "_coalesce",
        "_to_sparse",
        "_sparse_coo_tensor_with_dims_and_tensors",
        "to_dense",
        "_to_dense",
        "sparse_mask",
        "segment_reduce",
        "_assert_async",
        "_validate_sparse_coo_tensor_args",
        "set_",
        "resize_",
        "_linalg_svd",
        "linalg_eig",
        "_linalg_eigh",
        "linalg_qr",
        "linalg_lstsq",
        "linalg_cholesky_ex",
        "linalg_inv_ex",
        "linalg_lu_factor_ex",
        "_linalg_det",
        "_linalg_slogdet",
        "_linalg_solve_ex",
        "linalg_ldl_factor_ex",
        "cholesky",
        "cholesky_solve",
        "cholesky_inverse",
        "geqrf",
        "ormqr",
        "orgqr",
        "triangular_solve",
        "linalg_solve_triangular",
        "linalg_householder_product",
        "linalg_matrix_exp",
        "_make_per_tensor_quantized_tensor",
        "quantize_per_tensor",
    )
)
_RANDOM = frozenset(
    (
        "normal_",
        "uniform_",
        "bernoulli_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
        "random_",
    )
)
_EMPTY = frozenset(("rand", "randn", "rand_like", "randn_like", "normal", "bernoulli"))
_FILL = frozenset(("zeros", "ones", "full", "new_zeros", "new_ones", "new_full"))


def way_of(func):
    """How an overload is run."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    if not schema.name.startswith("aten::") and "mkldnn" not in schema.name:
        # Of other packages (torchvision, xformers): nobody knows what they decide by.
        return Way.RUN
    if name in _COMPUTED:
        return Way.RUN
    if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return Way.RUN  # a view: there is nothing to compute
    if name in _RANDOM:
        return Way.RANDOM
    if name in _EMPTY:
        return Way.EMPTY
    if name in _FILL:
        return Way.FILL
    return Way.SKIP
