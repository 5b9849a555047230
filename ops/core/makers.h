#pragma once
// One maker for each row of the op table, declared where op_table.cpp finds them. Each parses the attributes of one
// node; the row has already checked the opset and the numbers of inputs and outputs.
// Sections as in op_table.cpp, one a family.

#include <memory>

#include "ops/core/op.h"

namespace lenslet {

// Convolution, padding, layout (Conv: ops/conv/conv.h)

// Elementwise arithmetic and activations
std::shared_ptr<const Op> make_relu(const NodeSpec& spec);
std::shared_ptr<const Op> make_leaky_relu(const NodeSpec& spec);
std::shared_ptr<const Op> make_sigmoid(const NodeSpec& spec);
std::shared_ptr<const Op> make_tanh(const NodeSpec& spec);
std::shared_ptr<const Op> make_hard_sigmoid(const NodeSpec& spec);
std::shared_ptr<const Op> make_hard_swish(const NodeSpec& spec);
std::shared_ptr<const Op> make_elu(const NodeSpec& spec);
std::shared_ptr<const Op> make_selu(const NodeSpec& spec);
std::shared_ptr<const Op> make_softplus(const NodeSpec& spec);
std::shared_ptr<const Op> make_mish(const NodeSpec& spec);
std::shared_ptr<const Op> make_abs(const NodeSpec& spec);
std::shared_ptr<const Op> make_neg(const NodeSpec& spec);
std::shared_ptr<const Op> make_exp(const NodeSpec& spec);
std::shared_ptr<const Op> make_log(const NodeSpec& spec);
std::shared_ptr<const Op> make_sqrt(const NodeSpec& spec);
std::shared_ptr<const Op> make_reciprocal(const NodeSpec& spec);
std::shared_ptr<const Op> make_floor(const NodeSpec& spec);
std::shared_ptr<const Op> make_ceil(const NodeSpec& spec);
std::shared_ptr<const Op> make_erf(const NodeSpec& spec);
std::shared_ptr<const Op> make_silu(const NodeSpec& spec);
std::shared_ptr<const Op> make_clip(const NodeSpec& spec);
std::shared_ptr<const Op> make_prelu(const NodeSpec& spec);
std::shared_ptr<const Op> make_add(const NodeSpec& spec);
std::shared_ptr<const Op> make_sub(const NodeSpec& spec);
std::shared_ptr<const Op> make_mul(const NodeSpec& spec);
std::shared_ptr<const Op> make_div(const NodeSpec& spec);
std::shared_ptr<const Op> make_pow(const NodeSpec& spec);
std::shared_ptr<const Op> make_max(const NodeSpec& spec);
std::shared_ptr<const Op> make_min(const NodeSpec& spec);
std::shared_ptr<const Op> make_sum(const NodeSpec& spec);
std::shared_ptr<const Op> make_mean(const NodeSpec& spec);
std::shared_ptr<const Op> make_equal(const NodeSpec& spec);
std::shared_ptr<const Op> make_less(const NodeSpec& spec);
std::shared_ptr<const Op> make_less_or_equal(const NodeSpec& spec);
std::shared_ptr<const Op> make_greater(const NodeSpec& spec);
std::shared_ptr<const Op> make_greater_or_equal(const NodeSpec& spec);
std::shared_ptr<const Op> make_and(const NodeSpec& spec);
std::shared_ptr<const Op> make_or(const NodeSpec& spec);
std::shared_ptr<const Op> make_xor(const NodeSpec& spec);
std::shared_ptr<const Op> make_not(const NodeSpec& spec);
std::shared_ptr<const Op> make_where(const NodeSpec& spec);

// Pooling, normalization, softmax
std::shared_ptr<const Op> make_batch_norm(const NodeSpec& spec);
std::shared_ptr<const Op> make_instance_norm(const NodeSpec& spec);
std::shared_ptr<const Op> make_softmax(const NodeSpec& spec);
std::shared_ptr<const Op> make_log_softmax(const NodeSpec& spec);
std::shared_ptr<const Op> make_max_pool(const NodeSpec& spec);
std::shared_ptr<const Op> make_average_pool(const NodeSpec& spec);
std::shared_ptr<const Op> make_global_average_pool(const NodeSpec& spec);
std::shared_ptr<const Op> make_global_max_pool(const NodeSpec& spec);
std::shared_ptr<const Op> make_lrn(const NodeSpec& spec);

// Gemm and MatMul
std::shared_ptr<const Op> make_gemm(const NodeSpec& spec);
std::shared_ptr<const Op> make_matmul(const NodeSpec& spec);

// Shapes and copies: views of the same bytes
std::shared_ptr<const Op> make_reshape(const NodeSpec& spec);
std::shared_ptr<const Op> make_flatten(const NodeSpec& spec);
std::shared_ptr<const Op> make_squeeze(const NodeSpec& spec);
std::shared_ptr<const Op> make_unsqueeze(const NodeSpec& spec);
std::shared_ptr<const Op> make_identity(const NodeSpec& spec);
std::shared_ptr<const Op> make_dropout(const NodeSpec& spec);

// Shapes and copies: bytes move
std::shared_ptr<const Op> make_transpose(const NodeSpec& spec);
std::shared_ptr<const Op> make_concat(const NodeSpec& spec);
std::shared_ptr<const Op> make_split(const NodeSpec& spec);
std::shared_ptr<const Op> make_slice(const NodeSpec& spec);
std::shared_ptr<const Op> make_gather(const NodeSpec& spec);
std::shared_ptr<const Op> make_expand(const NodeSpec& spec);
std::shared_ptr<const Op> make_tile(const NodeSpec& spec);
std::shared_ptr<const Op> make_depth_to_space(const NodeSpec& spec);
std::shared_ptr<const Op> make_space_to_depth(const NodeSpec& spec);
std::shared_ptr<const Op> make_cast(const NodeSpec& spec);

// Shape arithmetic and constants
std::shared_ptr<const Op> make_shape(const NodeSpec& spec);
std::shared_ptr<const Op> make_size(const NodeSpec& spec);
std::shared_ptr<const Op> make_constant(const NodeSpec& spec);
std::shared_ptr<const Op> make_constant_of_shape(const NodeSpec& spec);
std::shared_ptr<const Op> make_range(const NodeSpec& spec);

// Reductions
std::shared_ptr<const Op> make_reduce_mean(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_sum(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_max(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_min(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_prod(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_sum_square(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_l1(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_l2(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_log_sum(const NodeSpec& spec);
std::shared_ptr<const Op> make_reduce_log_sum_exp(const NodeSpec& spec);
std::shared_ptr<const Op> make_arg_max(const NodeSpec& spec);
std::shared_ptr<const Op> make_arg_min(const NodeSpec& spec);

}  // namespace lenslet
