"""Which operators compute, and which only go through the motions (`host/native/operators.cpp`).

An operator is skipped where it takes a large tensor of floating-point numbers: what such tensors hold decides on no
size. Everything else computes, so that token ids, labels, masks and lengths, and what is counted and chosen by them,
are true.
"""

# Their results' sizes, or what they read on the way, hang on values that they compute themselves.
COMPUTED = (
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


class UnknownOperatorsError(Exception):
    """How this PyTorch calls its operators is not known."""


def skip(torch, native):
    """From now on large operators are skipped, in all threads of this process.

    Raises:
        UnknownOperatorsError: this PyTorch calls them in another way.
    """
    first, second = torch.zeros(2), torch.zeros(2)
    if native.watch_operators(COMPUTED, first, second):
        torch.add(first, second)
        torch.cat([first, second])
        if native.skip_operators(True):
            return
    raise UnknownOperatorsError
