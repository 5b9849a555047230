// patch_embedding: on CUDA, where products are not in float32, a Conv whose windows are an image's patches (16x16 with
// stride 16 in ViT) becomes a 1x1 Conv of [N,C*R*S,P,Q], the patches as channels. Kernels for large products take
// channels in eights: of 3 they read one at a time, and took 313 of DeiT-S's 2945 us at batch 64 (H200, fp16).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// With fewer taps a convolution of few channels has a kernel of its own (stem).
constexpr std::int64_t least_taps = 64, most_channels = 4;

bool has_patches(const Graph& graph, const Node& conv) {
  if (conv.type() != "Conv") return false;
  const Shape &x = graph.value(conv.inputs[0]).shape, &filter = graph.value(conv.inputs[1]).shape;
  const auto zeros = conv.op->imagined_zeros(graph.input_infos(conv));
  const auto all = [](const Integers& list, std::int64_t number) {
    return std::ranges::all_of(list, [&](std::int64_t each) { return each == number; });
  };
  const auto strides = integers_attribute(*conv.op, "strides");
  return x.rank() == 4 && x.elems() > 0 && graph.value(conv.inputs[0]).dtype == DType::f32 && zeros && all(*zeros, 0) &&
         all(integers_attribute(*conv.op, "dilations").value_or(Integers()), 1) && strides && strides->size() == 2 &&
         (*strides)[0] == filter[2] && (*strides)[1] == filter[3] && filter[1] == x[1] && x[1] <= most_channels &&
         filter[2] * filter[3] >= least_taps && x[1] * filter[2] * filter[3] % 8 == 0 && x[2] % filter[2] == 0 &&
         x[3] % filter[3] == 0 && graph.value(conv.inputs[1]).is_constant();
}

}  // namespace

void patch_embedding(Graph& graph, const PassContext& context) {
  if (context.target.device.kind != DeviceKind::cuda || context.target.numerics.multiply == Numerics::Multiply::fp32)
    return;
  GraphEdit edit(graph);
  for (const NodeId id : edit.nodes()) {
    if (edit.erased(id) || !has_patches(graph, graph.node(id))) continue;
    if (context.types_of_file && graph.value(graph.node(id).outputs[0]).file_type == DType::f32) continue;
    const std::string name = graph.node(id).name;
    std::vector<ValueId> inputs = graph.node(id).inputs;
    const Shape x = graph.value(inputs[0]).shape, filter = graph.value(inputs[1]).shape;
    const std::int64_t r = filter[2], s = filter[3], p = x[2] / r, q = x[3] / s, taps = x[1] * r * s;
    const DType type = graph.value(inputs[0]).file_type;
    const auto add = [&](std::shared_ptr<const Op> op, std::vector<ValueId> of) {
      inputs[0] = edit.add_node(name + ":patches", std::move(op), std::move(of), type);
    };
    const auto reshape = [&](const Integers& to) {
      add(make_reshape_op(), {inputs[0], edit.add_sizes(name + ":shape", to)});
    };
    reshape({x[0], x[1], p, r, q, s});
    add(make_transpose_op({0, 2, 4, 1, 3, 5}), {inputs[0]});
    reshape({x[0], p, q, taps});
    add(make_transpose_op(to_channels_first), {inputs[0]});
    const Tensor rows = graph.value(inputs[1]).constant.reshaped(Shape{filter[0], taps, 1, 1});
    inputs[1] = edit.add_constant(graph.value(inputs[1]).name, rows);
    auto conv = make_normalised_op("Conv", {{"kernel_shape", Integers{1, 1}}}, inputs.size());
    edit.replace(id, std::move(conv), std::move(inputs));
  }
  edit.finish();
}

}  // namespace lenslet
