// The only list of operators: one row each. The table is also the support matrix (docs/ops.md).

#include "ops/conv/conv.h"
#include "ops/layout_convert.h"
#include "ops/makers.h"
#include "ops/op.h"
#include "ops/pad.h"
#include "ops/relabel.h"

namespace lenslet {

namespace {

constexpr int any = -1;                      // any number of inputs or outputs
constexpr std::string_view own = "lenslet";  // steps that the passes insert

// clang-format off
// name, domain, first opset read, inputs min..max, outputs min..max, maker, notes
constexpr OpRow rows[] = {
    // ---- Convolution, padding, layout ----
    {"Conv", "", 1, 2, 3, 1, 1, make_conv, "1-D and 2-D, float32", true},
    {"Pad", "", 2, 1, 4, 1, 1, make_pad, "pads known before the run; any type"},
    {"LayoutConvert", own, 1, 1, 1, 1, 1, make_layout_convert, "4-D, any type"},
    {"Relabel", own, 1, 1, 1, 1, 1, make_relabel, "4-D, no bytes move"},

    // ---- Elementwise arithmetic and activations ----
    {"Relu", "", 6, 1, 1, 1, 1, make_relu, "float32; signed integers and float64 too"},
    {"LeakyRelu", "", 6, 1, 1, 1, 1, make_leaky_relu, "float32"},
    {"Clip", "", 6, 1, 3, 1, 1, make_clip, "bounds constant or computed"},
    {"Sigmoid", "", 6, 1, 1, 1, 1, make_sigmoid, "float32"},
    {"SiLU", own, 1, 1, 1, 1, 1, make_silu, "x * Sigmoid(x) in one step"},
    {"Tanh", "", 6, 1, 1, 1, 1, make_tanh, "float32"},
    {"HardSigmoid", "", 6, 1, 1, 1, 1, make_hard_sigmoid, "float32"},
    {"HardSwish", "", 14, 1, 1, 1, 1, make_hard_swish, "float32"},
    {"Elu", "", 6, 1, 1, 1, 1, make_elu, "float32"},
    {"Selu", "", 6, 1, 1, 1, 1, make_selu, "float32"},
    {"Softplus", "", 1, 1, 1, 1, 1, make_softplus, "float32"},
    {"Mish", "", 18, 1, 1, 1, 1, make_mish, "float32"},
    {"Abs", "", 6, 1, 1, 1, 1, make_abs, "float32; signed integers and float64 too"},
    {"Neg", "", 6, 1, 1, 1, 1, make_neg, "float32; signed integers and float64 too"},
    {"Exp", "", 6, 1, 1, 1, 1, make_exp, "float32"},
    {"Log", "", 6, 1, 1, 1, 1, make_log, "float32"},
    {"Sqrt", "", 6, 1, 1, 1, 1, make_sqrt, "float32"},
    {"Reciprocal", "", 6, 1, 1, 1, 1, make_reciprocal, "float32"},
    {"Floor", "", 6, 1, 1, 1, 1, make_floor, "float32"},
    {"Ceil", "", 6, 1, 1, 1, 1, make_ceil, "float32"},
    {"Erf", "", 9, 1, 1, 1, 1, make_erf, "float32"},
    {"PRelu", "", 7, 2, 2, 1, 1, make_prelu, "float32; the slope broadcasts to x"},
    {"Add", "", 7, 2, 2, 1, 1, make_add, "float32; float64 and integers too"},
    {"Sub", "", 7, 2, 2, 1, 1, make_sub, "float32; float64 and integers too"},
    {"Mul", "", 7, 2, 2, 1, 1, make_mul, "float32; float64 and integers too"},
    {"Div", "", 7, 2, 2, 1, 1, make_div, "float32; float64 and integers too (truncating)"},
    {"Pow", "", 7, 2, 2, 1, 1, make_pow, "float32, float64, int32, int64 in any pair"},
    {"Max", "", 6, 1, any, 1, 1, make_max, "float32; float64 and integers too"},
    {"Min", "", 6, 1, any, 1, 1, make_min, "float32; float64 and integers too"},
    {"Sum", "", 6, 1, any, 1, 1, make_sum, "float32, float64"},
    {"Mean", "", 6, 1, any, 1, 1, make_mean, "float32, float64"},
    {"Equal", "", 7, 2, 2, 1, 1, make_equal, "float32, float64, int8, uint8, int32, int64, bool"},
    {"Less", "", 7, 2, 2, 1, 1, make_less, "float32, float64, int8, uint8, int32, int64"},
    {"LessOrEqual", "", 12, 2, 2, 1, 1, make_less_or_equal, "float32, float64, int8, uint8, int32, int64"},
    {"Greater", "", 7, 2, 2, 1, 1, make_greater, "float32, float64, int8, uint8, int32, int64"},
    {"GreaterOrEqual", "", 12, 2, 2, 1, 1, make_greater_or_equal, "float32, float64, int8, uint8, int32, int64"},
    {"And", "", 7, 2, 2, 1, 1, make_and, ""},
    {"Or", "", 7, 2, 2, 1, 1, make_or, ""},
    {"Xor", "", 7, 2, 2, 1, 1, make_xor, ""},
    {"Not", "", 1, 1, 1, 1, 1, make_not, ""},
    {"Where", "", 9, 3, 3, 1, 1, make_where, "any element type"},

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
    {"Reshape", "", 5, 2, 2, 1, 1, make_reshape, "shape known before the run"},
    {"Flatten", "", 1, 1, 1, 1, 1, make_flatten, ""},
    {"Squeeze", "", 1, 1, 2, 1, 1, make_squeeze, "axes known before the run"},
    {"Unsqueeze", "", 1, 1, 2, 1, 1, make_unsqueeze, "axes known before the run"},
    {"Identity", "", 1, 1, 1, 1, 1, make_identity, ""},
    {"Dropout", "", 7, 1, 3, 1, 2, make_dropout, "inference only"},

    // ---- Shapes and copies: bytes move ----
    {"Transpose", "", 1, 1, 1, 1, 1, make_transpose, ""},
    {"Concat", "", 4, 1, any, 1, 1, make_concat, ""},
    {"Split", "", 2, 1, 2, 1, any, make_split, "sizes known before the run"},
    {"Slice", "", 1, 1, 5, 1, 1, make_slice, "starts, ends, axes, steps known before the run"},
    {"Gather", "", 1, 2, 2, 1, 1, make_gather, ""},
    {"Expand", "", 8, 2, 2, 1, 1, make_expand, "shape known before the run"},
    {"Tile", "", 6, 2, 2, 1, 1, make_tile, "repeats known before the run"},
    {"DepthToSpace", "", 1, 1, 1, 1, 1, make_depth_to_space, ""},
    {"SpaceToDepth", "", 1, 1, 1, 1, 1, make_space_to_depth, ""},
    {"Cast", "", 6, 1, 1, 1, 1, make_cast, "no strings, no 8-bit or 4-bit floats; out-of-range floats saturate to integers"},

    // ---- Shape arithmetic and constants ----
    {"Shape", "", 1, 1, 1, 1, 1, make_shape, ""},
    {"Size", "", 1, 1, 1, 1, 1, make_size, ""},
    {"Constant", "", 1, 0, 0, 1, 1, make_constant, "value, value_float(s), value_int(s)"},
    {"ConstantOfShape", "", 9, 1, 1, 1, 1, make_constant_of_shape, "shape known before the run"},
    {"Range", "", 11, 3, 3, 1, 1, make_range, "float32, float64, int32, int64, known before the run"},

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
