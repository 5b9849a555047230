// The only list of operators: one row each. The table is also the support matrix (docs/ops.md).

#include "ops/conv/conv.h"
#include "ops/core/makers.h"
#include "ops/core/op.h"
#include "ops/movement/layout_convert.h"
#include "ops/movement/pad.h"
#include "ops/shape/relabel.h"

namespace lenslet {

namespace {

constexpr int any = -1;                      // any number of inputs or outputs
constexpr std::string_view own = "lenslet";  // steps that the passes insert

// clang-format off
// name, domain, first opset read, inputs min..max, outputs min..max, maker, notes
constexpr OpRow rows[] = {
    // ---- Convolution, padding, layout ----
    {"Conv", "", 1, 2, 3, 1, 1, make_conv, "1-D and 2-D, float32", true},
    {"Pad", "", 2, 1, 4, 1, 1, make_pad, "pads known before the run; any type", true},
    {"LayoutConvert", own, 1, 1, 1, 1, 1, make_layout_convert, "4-D, any type", true},
    {"Relabel", own, 1, 1, 1, 1, 1, make_relabel, "4-D, no bytes move", true},

    // ---- Elementwise arithmetic and activations ----
    {"Relu", "", 6, 1, 1, 1, 1, make_relu, "float32; signed integers and float64 too", true},
    {"LeakyRelu", "", 6, 1, 1, 1, 1, make_leaky_relu, "float32", true},
    {"Clip", "", 6, 1, 3, 1, 1, make_clip, "bounds constant or computed", true},
    {"Sigmoid", "", 6, 1, 1, 1, 1, make_sigmoid, "float32", true},
    {"SiLU", own, 1, 1, 1, 1, 1, make_silu, "x * Sigmoid(x) in one step", true},
    {"Tanh", "", 6, 1, 1, 1, 1, make_tanh, "float32", true},
    {"HardSigmoid", "", 6, 1, 1, 1, 1, make_hard_sigmoid, "float32", true},
    {"HardSwish", "", 14, 1, 1, 1, 1, make_hard_swish, "float32", true},
    {"Elu", "", 6, 1, 1, 1, 1, make_elu, "float32", true},
    {"Selu", "", 6, 1, 1, 1, 1, make_selu, "float32", true},
    {"Softplus", "", 1, 1, 1, 1, 1, make_softplus, "float32", true},
    {"Mish", "", 18, 1, 1, 1, 1, make_mish, "float32", true},
    {"Abs", "", 6, 1, 1, 1, 1, make_abs, "float32; signed integers and float64 too", true},
    {"Neg", "", 6, 1, 1, 1, 1, make_neg, "float32; signed integers and float64 too", true},
    {"Exp", "", 6, 1, 1, 1, 1, make_exp, "float32", true},
    {"Log", "", 6, 1, 1, 1, 1, make_log, "float32", true},
    {"Sqrt", "", 6, 1, 1, 1, 1, make_sqrt, "float32", true},
    {"Reciprocal", "", 6, 1, 1, 1, 1, make_reciprocal, "float32", true},
    {"Floor", "", 6, 1, 1, 1, 1, make_floor, "float32", true},
    {"Ceil", "", 6, 1, 1, 1, 1, make_ceil, "float32", true},
    {"Erf", "", 9, 1, 1, 1, 1, make_erf, "float32", true},
    {"PRelu", "", 7, 2, 2, 1, 1, make_prelu, "float32; the slope broadcasts to x", true},
    {"Add", "", 7, 2, 2, 1, 1, make_add, "float32; float64 and integers too", true},
    {"Sub", "", 7, 2, 2, 1, 1, make_sub, "float32; float64 and integers too", true},
    {"Mul", "", 7, 2, 2, 1, 1, make_mul, "float32; float64 and integers too", true},
    {"Div", "", 7, 2, 2, 1, 1, make_div, "float32; float64 and integers too (truncating)", true},
    {"Pow", "", 7, 2, 2, 1, 1, make_pow, "float32, float64, int32, int64 in any pair", true},
    {"Max", "", 6, 1, any, 1, 1, make_max, "float32; float64 and integers too", true},
    {"Min", "", 6, 1, any, 1, 1, make_min, "float32; float64 and integers too", true},
    {"Sum", "", 6, 1, any, 1, 1, make_sum, "float32, float64", true},
    {"Mean", "", 6, 1, any, 1, 1, make_mean, "float32, float64", true},
    {"Equal", "", 7, 2, 2, 1, 1, make_equal, "float32, float64, int8, uint8, int32, int64, bool", true},
    {"Less", "", 7, 2, 2, 1, 1, make_less, "float32, float64, int8, uint8, int32, int64", true},
    {"LessOrEqual", "", 12, 2, 2, 1, 1, make_less_or_equal, "float32, float64, int8, uint8, int32, int64", true},
    {"Greater", "", 7, 2, 2, 1, 1, make_greater, "float32, float64, int8, uint8, int32, int64", true},
    {"GreaterOrEqual", "", 12, 2, 2, 1, 1, make_greater_or_equal, "float32, float64, int8, uint8, int32, int64", true},
    {"And", "", 7, 2, 2, 1, 1, make_and, "", true},
    {"Or", "", 7, 2, 2, 1, 1, make_or, "", true},
    {"Xor", "", 7, 2, 2, 1, 1, make_xor, "", true},
    {"Not", "", 1, 1, 1, 1, 1, make_not, "", true},
    {"Where", "", 9, 3, 3, 1, 1, make_where, "any element type", true},

    // ---- Pooling, normalization, softmax ----
    {"BatchNormalization", "", 7, 5, 5, 1, 5, make_batch_norm, "float32, inference", true},
    {"InstanceNormalization", "", 6, 3, 3, 1, 1, make_instance_norm, "float32", true},
    {"Softmax", "", 1, 1, 1, 1, 1, make_softmax, "float32; before opset 13 the dimensions from the axis on are one", true},
    {"LogSoftmax", "", 1, 1, 1, 1, 1, make_log_softmax, "float32; as Softmax", true},
    {"MaxPool", "", 1, 1, 1, 1, 2, make_max_pool, "1-D to 3-D; float32, int8, uint8; indices row-major only", true},
    {"AveragePool", "", 7, 1, 1, 1, 1, make_average_pool, "1-D to 3-D; float32", true},
    {"GlobalAveragePool", "", 1, 1, 1, 1, 1, make_global_average_pool, "float32", true},
    {"GlobalMaxPool", "", 1, 1, 1, 1, 1, make_global_max_pool, "float32", true},
    {"LRN", "", 1, 1, 1, 1, 1, make_lrn, "float32", true},

    // ---- Gemm and MatMul ----
    {"Gemm", "", 7, 2, 3, 1, 1, make_gemm, "float32", true},
    {"MatMul", "", 1, 2, 2, 1, 1, make_matmul, "float32", true},

    // ---- Shapes and copies: views of the same bytes ----
    {"Reshape", "", 5, 2, 2, 1, 1, make_reshape, "shape known before the run", true},
    {"Flatten", "", 1, 1, 1, 1, 1, make_flatten, "", true},
    {"Squeeze", "", 1, 1, 2, 1, 1, make_squeeze, "axes known before the run", true},
    {"Unsqueeze", "", 1, 1, 2, 1, 1, make_unsqueeze, "axes known before the run", true},
    {"Identity", "", 1, 1, 1, 1, 1, make_identity, "", true},
    {"Dropout", "", 7, 1, 3, 1, 2, make_dropout, "inference only", true},

    // ---- Shapes and copies: bytes move ----
    {"Transpose", "", 1, 1, 1, 1, 1, make_transpose, "", true},
    {"Concat", "", 4, 1, any, 1, 1, make_concat, "", true},
    {"Split", "", 2, 1, 2, 1, any, make_split, "sizes known before the run", true},
    {"Slice", "", 1, 1, 5, 1, 1, make_slice, "starts, ends, axes, steps known before the run", true},
    {"Gather", "", 1, 2, 2, 1, 1, make_gather, "on CUDA indices known before the run", true},
    {"Expand", "", 8, 2, 2, 1, 1, make_expand, "shape known before the run", true},
    {"Tile", "", 6, 2, 2, 1, 1, make_tile, "repeats known before the run", true},
    {"DepthToSpace", "", 1, 1, 1, 1, 1, make_depth_to_space, "", true},
    {"SpaceToDepth", "", 1, 1, 1, 1, 1, make_space_to_depth, "", true},
    {"Cast", "", 6, 1, 1, 1, 1, make_cast, "no strings, no 8-bit or 4-bit floats; out-of-range floats saturate to integers", true},

    // ---- Shape arithmetic and constants ----
    {"Shape", "", 1, 1, 1, 1, 1, make_shape, "", true},
    {"Size", "", 1, 1, 1, 1, 1, make_size, "", true},
    {"Constant", "", 1, 0, 0, 1, 1, make_constant, "value, value_float(s), value_int(s)", true},
    {"ConstantOfShape", "", 9, 1, 1, 1, 1, make_constant_of_shape, "shape known before the run", true},
    {"Range", "", 11, 3, 3, 1, 1, make_range, "float32, float64, int32, int64, known before the run", true},

    // ---- Reductions ----
    {"ReduceMean", "", 1, 1, 2, 1, 1, make_reduce_mean, "float32, int32, int64", true},
    {"ReduceSum", "", 1, 1, 2, 1, 1, make_reduce_sum, "float32, int32, int64", true},
    {"ReduceMax", "", 1, 1, 2, 1, 1, make_reduce_max, "float32, int32, int64", true},
    {"ReduceMin", "", 1, 1, 2, 1, 1, make_reduce_min, "float32, int32, int64", true},
    {"ReduceProd", "", 1, 1, 2, 1, 1, make_reduce_prod, "float32, int32, int64", true},
    {"ReduceSumSquare", "", 1, 1, 2, 1, 1, make_reduce_sum_square, "float32, int32, int64", true},
    {"ReduceL1", "", 1, 1, 2, 1, 1, make_reduce_l1, "float32, int32, int64", true},
    {"ReduceL2", "", 1, 1, 2, 1, 1, make_reduce_l2, "float32", true},
    {"ReduceLogSum", "", 1, 1, 2, 1, 1, make_reduce_log_sum, "float32", true},
    {"ReduceLogSumExp", "", 1, 1, 2, 1, 1, make_reduce_log_sum_exp, "float32", true},
    {"ArgMax", "", 1, 1, 1, 1, 1, make_arg_max, "float32, int8, uint8, int32, int64", true},
    {"ArgMin", "", 1, 1, 1, 1, 1, make_arg_min, "float32, int8, uint8, int32, int64", true},
};
// clang-format on

}  // namespace

std::span<const OpRow> op_table() { return rows; }

const OpRow* find_op(std::string_view name, std::string_view domain) {
  for (const OpRow& row : rows)
    if (row.name == name && row.domain == domain) return &row;
  return nullptr;
}

}  // namespace lenslet
