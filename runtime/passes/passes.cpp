#include "runtime/passes/passes.h"

#include "ops/core/built_families.h"

namespace lenslet {
namespace {

constexpr bool optional = true, needed = false;

// Constants first; then identities go, so that neighbours meet; then arithmetic goes into convolutions, from the inside
// (padding, scale) to the outside (activation, residual); last the physical decisions. Families not built have no pass.
std::vector<Pass> list() {
  std::vector<Pass> all;
  const auto add = [&](std::string_view name, decltype(Pass::run) run, bool can_be_left_out, std::string_view summary) {
    all.push_back({name, run, can_be_left_out, summary});
  };
  add("widen", widen, needed, "16-bit and double floats become float32");
  if constexpr (built("gemm") && built("reduce"))
    add("expand_einsum", expand_einsum, optional, "Einsum as Transposes, Reshapes and products");
  add("fold_constants", fold_constants, optional, "compute nodes whose inputs are all known");
  add("drop_identity", drop_identity, optional, "remove nodes that do nothing at inference");
  if constexpr (built("normalization"))
    add("fuse_layer_norm", fuse_layer_norm, optional, "a LayerNormalization or RMSNormalization spelled out in nodes");
  if constexpr (built("normalization"))
    add("fuse_group_norm", fuse_group_norm, optional, "a GroupNormalization spelled out by InstanceNormalization");
  if constexpr (built("gemm")) {
    add("batch_first", batch_first, optional, "Transposes of [N,L,E] to [L,N,E] and back, around attention, meet");
    add("fuse_attention", fuse_attention, optional, "softmax(scale Q K^T + bias) V of attention heads into one step");
    add("fuse_windows", fuse_windows, optional, "attention in windows of an image into Attention with a table of rows");
  }
  if constexpr (built("conv")) {
    add("matmul_to_conv", matmul_to_conv, optional, "MatMul of images or tokens by constants as a 1x1 Conv");
    add("patch_embedding", patch_embedding, optional, "CUDA: a Conv of patches as a 1x1 Conv of patches as channels");
    add("conv1d_to_conv2d", conv1d_to_conv2d, optional, "convolutions of [N,C,L] as convolutions of images [N,C,1,L]");
  }
  add("unflatten_transposes", unflatten_transposes, optional, "tokens, and products of images, as the images lie");
  add("cancel_transposes", cancel_transposes, optional, "move the Transposes of NHWC exports until they cancel");
  if constexpr (built("quantized"))
    add("lower_quantized", lower_quantized, optional, "CPU: 8 bits between DequantizeLinear and QuantizeLinear");
  add("find_shuffles", find_shuffles, optional, "Reshape, Transpose, Reshape of groups of channels into one step");
  add("sum_branches", sum_branches, optional, "sums over stacked branches [N,R,C,H,W] as sums of images");
  add("common_factor", common_factor, optional, "x + x * g + c as x * (1 + g) + c, x * f + x * g as x * (f + g)");
  if constexpr (built("normalization"))
    add("fuse_response_norm", fuse_response_norm, optional, "CUDA: a GlobalResponseNorm that a file spells out");
  add("fold_pad", fold_pad, optional, "zero Pad into the pads of convolutions");
  add("crop_filters", crop_filters, optional, "taps that meet only padding go from a Conv's filters");
  add("fold_batch_norm", fold_batch_norm, optional, "BatchNormalization into weights and bias of a Conv or Gemm");
  add("fold_scale", fold_scale, optional, "constant per-channel Mul, Div, Add, Sub into a Conv or Gemm");
  if constexpr (built("conv"))
    add("merge_branches", merge_branches, optional, "a sum of convolutions of one value, and the value, into one");
  add("fuse_activation", fuse_activation, optional, "activations into a Conv, Gemm or BatchNormalization");
  add("fuse_residual", fuse_residual, optional, "residual Add, and its activation, into a Conv or LayerNormalization");
  add("fold_input_scale", fold_input_scale, optional, "constant scale and offset before Convs into their filters");
  if constexpr (built("pool"))
    add("fuse_pool_difference", fuse_pool_difference, optional, "residual + scale * (AveragePool(x) - x) in one step");
  add("fuse_elementwise", fuse_elementwise, optional, "elementwise nodes that follow each other into one step");
  add("join_slices", join_slices, optional, "CUDA: Slices that partition a value into one Split");
  add("drop_dead", drop_dead, optional, "remove unread nodes and constants");
  add("assign_types", assign_types, needed, "at fp16 and bf16: what is stored in 16 bit, Casts where it meets float32");
  add("choose_kernels", choose_kernels, needed, "a kernel and its configuration for each node");
  add("assign_formats", assign_formats, needed, "a memory format for each value, conversions where two do not meet");
  add("merge_moves", merge_moves, optional, "steps that together move rows of one value into one gather of rows");
  if constexpr (built("conv")) {
    add("fuse_pool", fuse_pool, optional, "a MaxPool into the convolution before it, where its kernel can");
    add("fuse_preactivation", fuse_preactivation, optional, "CUDA: Batch- or LayerNormalization into 1x1 Convs");
    add("fuse_separable", fuse_separable, optional, "CUDA: a depthwise convolution and the 1x1 after it, in one");
  }
  if constexpr (built("sparse"))
    add("share_neighbours", share_neighbours, optional, "CUDA: tables of neighbours of sparse layers, once a rulebook");
  add("place_parts", place_parts, optional, "what a Concat joins or a Split divides lies where it belongs");
  add("choose_bands", choose_bands, optional, "steps that the CPU runs together, some rows at a time");
  return all;
}

}  // namespace

std::span<const Pass> passes() {
  static const std::vector<Pass> all = list();
  return all;
}

}  // namespace lenslet
