"""Torch's ops that keep their names: a part of the table of ``capture/aten.py``."""

from __future__ import annotations

# Ours and torch's name are one.
SAME = """
abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
adaptive_avg_pool3d_backward adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward
adaptive_max_pool3d adaptive_max_pool3d_backward add addbmm addcdiv addcmul addmm addmv addr all
amax amin aminmax angle any argmax argmin as_strided_scatter asin asinh atan atan2 atanh avg_pool1d
avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm binary_cross_entropy
binary_cross_entropy_backward binary_cross_entropy_with_logits bincount bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag bmm ceil celu
channel_shuffle cholesky_inverse clamp clamp_max clamp_min complex conj_physical contiguous conv1d
conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution convolution_backward
copysign cos cosh count_nonzero cummax cummin cumprod cumsum deg2rad diagonal_scatter digamma dist
div dot dropout elu elu_backward embedding embedding_bag eq erf erfc erfinv exp exp2 expm1 flip
float_power floor floor_divide fmax fmin fmod frac fractional_max_pool2d
fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward frexp gather
gather_backward gcd ge gelu gelu_backward glu glu_backward group_norm gru gt hardshrink
hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
hardtanh_backward heaviside histc huber_loss huber_loss_backward hypot i0 igamma igammac im2col
index index_add index_copy index_fill index_put index_reduce index_select index_select_backward
isfinite isin isinf isnan isneginf isposinf item kthvalue layer_norm lcm ldexp le leaky_relu
leaky_relu_backward lerp lgamma linear linear_backward log log10 log1p log2 log_softmax logaddexp
logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logit_backward
logsumexp lstm lt lu_unpack masked_fill masked_scatter masked_scatter_backward masked_select matmul
max max_pool1d max_pool2d max_pool2d_backward max_pool3d maximum mean median min minimum mish
mish_backward mm mode mse_loss mse_loss_backward mul multi_margin_loss multi_margin_loss_backward
multinomial mv mvlgamma nan_to_num nansum ne neg nextafter nll_loss nonzero norm outer polar
polygamma pow prelu prod put rad2deg reciprocal relu relu6 remainder renorm repeat repeat_interleave
reshape rms_norm rnn_relu rnn_tanh roll round rsqrt rsub scatter scatter_add selu sgn sigmoid
sigmoid_backward sign signbit silu silu_backward sin sinc sinh slice_backward smooth_l1_loss
smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softmax softplus
softplus_backward softshrink softshrink_backward sort special_airy_ai special_bessel_j0
special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr special_erfcx special_i0e
special_i1 special_i1e special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
special_xlog1py special_zeta sqrt square std std_mean sub sum take tan tanh tanh_backward threshold
threshold_backward to topk trace triangular_solve tril triu trunc unfold_backward upsample_bicubic2d
upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d
upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d
upsample_trilinear3d_backward var var_mean where xlogy
"""

# Ops over lists of tensors, torch's names without `_foreach_`.
FOREACH = """
abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1
floor frac lerp lgamma log log10 log1p log2 max maximum minimum mul neg norm pow reciprocal round
rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero
"""
