// crop_filters: removes taps of constant filters that only read padding, such as the outer ones of a large dilation on
// a small image, or the upper and lower rows of 3x3 on images of height 1. DeepLab's branch of dilation 24 becomes 1x1
// on 14x14.
#include <algorithm>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {

namespace {

// A row of taps at a time; w is [K,C,spatial axes].
Tensor crop(const Tensor& w, const CroppedFilter& to) {
  Shape shape = w.shape();
  const int axes = static_cast<int>(to.begins.size());
  for (int a = 0; a < axes; ++a) {
    const auto i = static_cast<std::size_t>(a);
    shape = shape.with(a + 2, to.ends[i] - to.begins[i]);
  }
  Tensor result(w.dtype(), shape);
  const std::int64_t row = shape[axes + 1];
  float* y = result.values<float>().data();
  for (std::int64_t i = 0; i < result.elems(); i += row, y += row) {
    std::int64_t rest = i / row, from = to.begins.back(), step = w.shape()[axes + 1];
    for (int axis = axes; axis >= 0; --axis) {
      const std::int64_t begin = axis < 2 ? 0 : to.begins[static_cast<std::size_t>(axis) - 2];
      from += (rest % shape[axis] + begin) * step;
      rest /= shape[axis];
      step *= w.shape()[axis];
    }
    std::copy_n(w.values<float>().data() + from, row, y);
  }
  return result;
}

}  // namespace

void crop_filters(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId n : edit.nodes()) {
    const Node& node = graph.node(n);
    const auto cropped = node.op->without_idle_taps(graph.input_infos(node));
    if (!cropped) continue;
    std::vector<ValueId> inputs = node.inputs;
    const Value& filter = graph.value(inputs[1]);
    if (!filter.is_constant() || filter.dtype != DType::f32) continue;
    inputs[1] = edit.add_constant(filter.name + ":cropped", crop(filter.constant, *cropped));
    edit.replace(n, cropped->op, std::move(inputs));
  }
  edit.finish();
}

}  // namespace lenslet
