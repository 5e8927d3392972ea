"""Torch's ops by our names: one table, the join between a capture and the formulas.

A key is a packet's name without namespace and overload (``"addmm"``, ``"_softmax"``). An in-place
op (``"add_"``) has the name of the op it changes its argument with. An op of torch's outside its
library ``aten`` stands with its namespace. What stands in no line keeps
torch's name, and is unpriced unless a formula has that name. Our own captured ops
(``"attention"``, ``"rnn"``, ...) have the same name on both sides.
"""

from __future__ import annotations

from rooftile.capture.same_names import FOREACH, SAME

# Ops that capture makes itself: no op of torch's has these names.
_CAPTURED = """
attention attention_backward causal_conv1d causal_conv1d_backward flex_attention
flex_attention_backward rms_norm_backward rnn rnn_backward
selective_scan selective_scan_backward wkv wkv_backward
"""

# Our name -> torch's names.
_OTHERS = {
    # matrix products
    "addmm_activation": "_addmm_activation",
    "dot": "vdot",
    "grouped_mm": "_grouped_mm",
    "int_mm": "_int_mm",
    "linear": "mkldnn_linear",
    "outer": "ger",
    "scaled_grouped_mm": "_scaled_grouped_mm _scaled_grouped_mm_v2",
    "trilinear": "_trilinear",
    "scaled_mm": "_scaled_mm _scaled_mm_v2",
    "weight_int4pack_mm": "_weight_int4pack_mm _weight_int4pack_mm_for_cpu",
    "weight_int8pack_mm": "_weight_int8pack_mm",
    # convolutions
    "conv_transpose2d": """
        cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d
    """,
    "convolution": """
        _conv_depthwise2d _convolution _slow_conv2d_forward conv_depthwise3d
        convolution_overrideable cudnn_convolution miopen_convolution mkldnn_convolution
        thnn_conv2d
    """,
    "convolution_relu": "cudnn_convolution_relu miopen_convolution_relu",
    # attention: what each kernel's layout and causal corner is stands with the formulas
    "attention": """
        scaled_dot_product_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_fused_attention_overrideable _cudnn_attention_forward
    """,
    "attention_backward": """
        _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_flash_attention_for_cpu_backward
        _scaled_dot_product_fused_attention_overrideable_backward _cudnn_attention_backward
    """,
    "efficient_attention": "_efficient_attention_forward",
    "efficient_attention_backward": "_efficient_attention_backward",
    "flash_attention": "_flash_attention_forward",
    "flash_attention_backward": "_flash_attention_backward",
    "flash_sdpa": "_scaled_dot_product_flash_attention",
    "flash_sdpa_backward": "_scaled_dot_product_flash_attention_backward",
    "packed_attention": "torch_attn::_varlen_attn torch_attn::_varlen_attn_out",
    "packed_attention_backward": "torch_attn::_varlen_attn_backward",
    "multi_head_attention": "_native_multi_head_attention",
    "transformer_encoder_layer": "_transformer_encoder_layer_fwd",
    # recurrent layers
    "gru_gates": "_thnn_fused_gru_cell",
    "gru_gates_backward": "_thnn_fused_gru_cell_backward",
    "lstm_gates": "_thnn_fused_lstm_cell",
    "lstm_gates_backward": "_thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl",
    "rnn": "mkldnn_rnn_layer _cudnn_rnn miopen_rnn",
    "rnn_backward": "mkldnn_rnn_layer_backward _cudnn_rnn_backward miopen_rnn_backward",
    # by index
    "embedding_backward": "embedding_dense_backward",
    "embedding_bag": "_embedding_bag _embedding_bag_forward_only",
    "embedding_bag_backward": "_embedding_bag_backward _embedding_bag_dense_backward",
    "embedding_bag_weights_backward": "_embedding_bag_per_sample_weights_backward",
    "index": "_unsafe_index",
    "index_put": "_index_put_impl _unsafe_index_put",
    "ctc_loss": "_ctc_loss _cudnn_ctc_loss",
    "embedding_renorm": "embedding_renorm embedding_renorm_",
    "scatter_reduce": "scatter_reduce",
    "take": "take_along_dim",
    # factorisations
    "apply_reflections": "ormqr",
    "cholesky": "linalg_cholesky_ex cholesky",
    "determinant": "_linalg_det _linalg_slogdet",
    "householder_product": "linalg_householder_product",
    "inverse": "linalg_inv_ex",
    "ldl": "linalg_ldl_factor_ex",
    "lu": "linalg_lu linalg_lu_factor_ex",
    "qr": "linalg_qr",
    "qr_reflections": "geqrf",
    "solve": "_linalg_solve_ex",
    "solve_cholesky": "cholesky_solve _cholesky_solve_helper",
    "solve_ldl": "linalg_ldl_solve",
    "solve_lu": "linalg_lu_solve",
    "solve_triangular": "linalg_solve_triangular",
    # normalisations, softmax, losses
    "batch_norm": """
        batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit
        _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
        _batch_norm_no_update _batch_norm_impl_index
    """,
    "batch_norm_backward": """
        batch_norm_backward native_batch_norm_backward cudnn_batch_norm_backward
        miopen_batch_norm_backward
    """,
    "batch_norm_with_update": "_batch_norm_with_update _batch_norm_with_update_functional",
    "cross_entropy": "cross_entropy_loss",
    "ctc_loss_backward": "_ctc_loss_backward",
    "group_norm": "native_group_norm",
    "group_norm_backward": "native_group_norm_backward",
    "layer_norm": "native_layer_norm",
    "layer_norm_backward": "native_layer_norm_backward",
    "log_sigmoid": "log_sigmoid log_sigmoid_forward",
    "log_sigmoid_backward": "log_sigmoid_backward",
    "log_softmax": "_log_softmax",
    "log_softmax_backward": "_log_softmax_backward_data",
    "masked_softmax": "_masked_softmax",
    "masked_softmax_backward": "_masked_softmax_backward",
    "nll_loss": "nll_loss2d_forward nll_loss_forward",
    "nll_loss_backward": "nll_loss_backward nll_loss2d_backward",
    "rms_norm": "_fused_rms_norm",
    "rms_norm_backward": "_fused_rms_norm_backward",
    "safe_softmax": "_safe_softmax",
    "softmax": "_softmax",
    "softmax_backward": "_softmax_backward_data",
    "weight_norm": "_weight_norm_interface",
    "weight_norm_backward": "_weight_norm_interface_backward",
    # pointwise
    "abs": "absolute",
    "acos": "arccos",
    "add_relu": "_add_relu",
    "asin": "arcsin",
    "atan": "arctan",
    "atan2": "arctan2",
    "clamp": "clip",
    "cross": "linalg_cross",
    "div": "divide true_divide",
    "dropout": "native_dropout",
    "dropout_backward": "native_dropout_backward",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "logit": "special_logit",
    "lt": "less",
    "masked_scale": "_masked_scale",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "prelu": "_prelu_kernel",
    "prelu_backward": "_prelu_kernel_backward",
    "rrelu": "rrelu_with_noise rrelu_with_noise_functional",
    "rrelu_backward": "rrelu_with_noise_backward",
    "sigmoid": "special_expit",
    "sub": "subtract",
    "trunc": "fix",
    "xlogy": "special_xlogy",
    # reductions, searches
    "aminmax": "_aminmax",
    "cdist": "_cdist_forward",
    "cdist_backward": "_cdist_backward",
    "cummax": "_cummax_helper",
    "cummin": "_cummin_helper",
    "logcumsumexp": "_logcumsumexp",
    "euclidean_distances": "_euclidean_dist",
    "norm": "linalg_vector_norm",
    "pdist": "_pdist_forward",
    "pdist_backward": "_pdist_backward",
    "all": "_is_all_true",
    "any": "_is_any_true",
    "histc": "histogram",
    "median": "nanmedian",
    "search": "searchsorted bucketize",
    "select_reduction_backward": "value_selecting_reduction_backward",
    "sort": "argsort msort",
    "unique": "_unique _unique2 unique_dim unique_consecutive unique_dim_consecutive",
    # pooling and resampling
    "affine_grid": "affine_grid_generator",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward": "_adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d": "_adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward": "_adaptive_avg_pool3d_backward",
    "grid_sample2d": "grid_sampler_2d cudnn_grid_sampler",
    "grid_sample2d_backward": "grid_sampler_2d_backward cudnn_grid_sampler_backward",
    "grid_sample3d": "grid_sampler_3d",
    "grid_sample3d_backward": "grid_sampler_3d_backward",
    "max_pool1d": "max_pool1d_with_indices",
    "max_unpool": "max_unpool2d max_unpool3d",
    "max_pool2d": "max_pool2d_with_indices",
    "max_pool2d_backward": "max_pool2d_with_indices_backward",
    "max_pool3d": "max_pool3d_with_indices",
    "max_pool3d_backward": "max_pool3d_with_indices_backward",
    "upsample_bicubic2d_aa": "_upsample_bicubic2d_aa",
    "upsample_bicubic2d_aa_backward": "_upsample_bicubic2d_aa_backward",
    "upsample_bilinear2d_aa": "_upsample_bilinear2d_aa",
    "upsample_bilinear2d_aa_backward": "_upsample_bilinear2d_aa_backward",
    "upsample_lanczos2d_aa": "_upsample_lanczos2d_aa",
    "upsample_lanczos2d_aa_backward": "_upsample_lanczos2d_aa_backward",
    "upsample_nearest_exact1d": "_upsample_nearest_exact1d",
    "upsample_nearest_exact1d_backward": "_upsample_nearest_exact1d_backward",
    "upsample_nearest_exact2d": "_upsample_nearest_exact2d",
    "upsample_nearest_exact2d_backward": "_upsample_nearest_exact2d_backward",
    "upsample_nearest_exact3d": "_upsample_nearest_exact3d",
    "upsample_nearest_exact3d_backward": "_upsample_nearest_exact3d_backward",
    # views and allocation
    "empty": """
        _efficientzerotensor empty empty_like empty_permuted empty_strided new_empty
        new_empty_strided resize resize_as set
    """,
    "view": """
        _conj _neg_view _reshape_alias _unsafe_view alias as_strided broadcast_to chunk detach
        diagonal expand expand_as flatten imag lift lift_fresh movedim narrow permute real
        resolve_conj resolve_neg select slice split split_with_sizes squeeze swapaxes swapdims t
        transpose unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes
        unsqueeze view view_as view_as_complex view_as_real _assert_tensor_metadata _assert_scalar
    """,
    # copies
    "cat": "_stack cat concat concatenate stack hstack vstack dstack column_stack _chunk_cat",
    "channel_shuffle": "native_channel_shuffle",
    "copy": """
        _conj_copy _copy_from _fw_primal_copy _neg_view_copy _reshape_copy _to_copy alias_copy
        as_strided_copy clone copy detach_copy diagonal_copy expand_copy lift_fresh_copy
        narrow_copy permute_copy pixel_shuffle pixel_unshuffle rot90 select_copy slice_copy
        split_copy split_with_sizes_copy squeeze_copy t_copy tile transpose_copy unbind_copy
        unfold_copy unsqueeze_copy view_copy view_as_complex_copy view_as_real_copy
    """,
    "diag": "diag diag_embed diagflat",
    "item": "_local_scalar_dense",
    "look": "_assert_async _functional_assert_async _linalg_check_errors",
    "pad": """
        constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
        replication_pad2d replication_pad3d
    """,
    "pad_backward": """
        reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
        replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    """,
    "scatter_slice": "select_scatter slice_scatter",
    "slice_backward": "diagonal_backward select_backward",
    "unfold_backward": "col2im",
    # filled from nothing
    "fill": """
        arange bartlett_window blackman_window eye fft_fftfreq fft_rfftfreq fill full full_like
        hamming_window hann_window kaiser_window linspace logspace new_full new_ones new_zeros ones
        ones_like range scalar_tensor tril_indices triu_indices zero zeros zeros_like
    """,
    "random": """
        _sample_dirichlet _standard_gamma bernoulli binomial cauchy exponential geometric log_normal
        normal normal_functional poisson rand rand_like randint randint_like randn randn_like random
        randperm uniform
    """,
    # Fourier transforms
    "fft_c2c": "_fft_c2c",
    "fft_c2r": "_fft_c2r",
    "fft_r2c": "_fft_r2c",
    # optimisers
    "adagrad_step": "_fused_adagrad_ _fused_adagrad",
    "adam_step": "_fused_adam_ _fused_adam",
    "adamw_step": "_fused_adamw_ _fused_adamw",
    "foreach_copy": "_foreach_copy _foreach_clone",
    "sgd_step": "_fused_sgd_ _fused_sgd",
    "unscale_gradients": "_amp_foreach_non_finite_check_and_unscale_",
}


def _with_in_place(table: dict[str, str]) -> dict[str, str]:
    """Every op's in-place form beside it; Python's operators (``__iand__``) among them."""
    in_place = {f"{name}_": ours for name, ours in table.items() if not name.endswith("_")}
    operators = {
        f"__{prefix}{sign}__": ours
        for sign, ours in (
            ("and", "bitwise_and"),
            ("or", "bitwise_or"),
            ("xor", "bitwise_xor"),
            ("lshift", "bitwise_left_shift"),
            ("rshift", "bitwise_right_shift"),
        )
        for prefix in ("", "i")
    }
    return {**in_place, **operators, **table}


# Torch's packet name -> our op's name.
ATEN: dict[str, str] = _with_in_place(
    {
        **{name: name for name in (*SAME.split(), *_CAPTURED.split())},
        **{theirs: ours for ours, names in _OTHERS.items() for theirs in names.split()},
        **{f"_foreach_{name}": f"foreach_{name}" for name in FOREACH.split()},
    }
)
