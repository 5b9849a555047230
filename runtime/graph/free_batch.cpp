#include "runtime/graph/free_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/images_apart.h"
#include "runtime/graph/infer_node.h"
#include "runtime/graph/infer_shapes.h"

namespace lenslet {
namespace {

constexpr std::size_t listed_faults = 100;

/// Runs shape inference twice side by side, for one image as declared and for the batch, and compares.
class BatchTracer {
 public:
  BatchTracer(Graph& graph, std::span<const FreedInput> freed, std::int64_t batch)
      : graph_(graph), batch_(batch), one_(graph), many_(graph), images_(graph.values.size()) {
    for (const FreedInput& input : freed) {
      one_.value(input.id).shape = input.declared;
      images_[at(input.id)].axis = 0;
    }
  }

  void run() {
    // As in infer_shapes: both must evaluate shapes alike.
    NodeInference infer_one(one_, inference_node_bytes);
    NodeInference infer_many(many_, inference_node_bytes);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!typed(one_, one_.nodes[n]) || !typed(many_, many_.nodes[n])) continue;  // follows a node already at fault
      try {
        infer_one.infer(one_.nodes[n]);
      } catch (const Error&) {
        broken_ = true;  // invalid at any batch
        continue;
      }
      const bool known = infer_one.evaluate(one_.nodes[n]);
      std::string why = trace(n, known, infer_many);
      if (why.empty()) continue;
      faults_.push_back(fmt::format("{}: bakes in batch 1: {}", graph_.nodes[n].label(), why));
      for (const ValueId id : graph_.nodes[n].outputs)
        if (id != no_id) many_.value(id).typed = false;
    }
    if (broken_) return;  // infer_shapes reports it better
    report();
  }

 private:
  using Places = std::vector<ImagesAt>;
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  static bool typed(const Graph& graph, const Node& node) {
    for (const ValueId id : node.inputs)
      if (id != no_id && !graph.value(id).typed) return false;
    return true;
  }

  /// Follows the batch through node `n`; returns why it cannot.
  std::string trace(std::size_t n, bool known_for_one, NodeInference& infer_many) {
    const Node& node = graph_.nodes[n];
    const bool batched = any_batched(node), scales = batched && !node.op->reads_only_types();
    std::vector<Places> places(node.outputs.size());  // axes that may hold the images
    // Values computed from shapes alone follow the batch and are not baked in.
    for (std::size_t o = 0; scales && !known_for_one && o < places.size(); ++o) {
      if (node.outputs[o] == no_id && o > 0) continue;
      ImagesApart apart = keep_images_apart(*node.op, batch_inputs(node), one_.output_types(node)[o]);
      if (!apart.why.empty()) return std::move(apart.why);
      places[o] = std::move(apart.places);
    }
    std::string failure;
    for (int attempt = 0; attempt < 2; ++attempt) {
      failure.clear();
      try {
        infer_many.infer(many_.nodes[n]);
      } catch (const Error& error) {
        failure = error.what();
      }
      if (failure.empty() && shapes_agree(node, scales, places)) {
        infer_many.evaluate(many_.nodes[n]);
        return {};
      }
      if (!batched || !rewrite(n, places[0])) break;
    }
    if (!failure.empty()) return failure;
    const Value& got = many_.value(first_output(node));
    return fmt::format("the result would be {} for {} images, {} for one", got.shape.str(), batch_,
                       one_.value(first_output(node)).shape.str());
  }

  ValueId first_output(const Node& node) const {
    for (const ValueId id : node.outputs)
      if (id != no_id) return id;
    return node.outputs.at(0);
  }

  bool any_batched(const Node& node) const {
    for (const ValueId id : node.inputs)
      if (id != no_id && images_[at(id)]) return true;
    return false;
  }

  std::vector<BatchInput> batch_inputs(const Node& node) const {
    std::vector<BatchInput> inputs;
    const std::vector<InputInfo> infos = one_.input_infos(node);
    for (std::size_t i = 0; i < infos.size(); ++i)
      inputs.push_back({infos[i], node.inputs[i] == no_id ? ImagesAt{} : images_[at(node.inputs[i])]});
    return inputs;
  }

  /// Outputs have the images along one of these axes (any axis if none is listed) or, if the node reads no images, do
  /// not depend on the batch. Constants made from the batch's shape (zeros to concatenate, LSTM states) hold images
  /// too.
  bool shapes_agree(const Node& node, bool must_scale, std::span<const Places> places) {
    for (std::size_t o = 0; o < places.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == no_id) continue;
      const Shape &one = one_.value(id).shape, &many = many_.value(id).shape;
      const auto scaled = [&](int axis) { return axis < one.rank() && many == one.with(axis, one[axis] * batch_); };
      ImagesAt& images = images_[at(id)] = {};
      if (!must_scale && one == many) continue;
      for (int axis = 0; places[o].empty() && axis < one.rank() && !images; ++axis)
        if (scaled(axis)) images.axis = axis;
      for (const ImagesAt& place : places[o])
        if (!images && scaled(place.axis)) images = place;
      if (!images) return false;
    }
    return true;
  }

  /// Constant `tensor` with axis `axis`, of size 1, repeated for each image.
  Tensor repeated(const Tensor& tensor, int axis) const {
    Tensor all(tensor.dtype(), tensor.shape().with(axis, batch_));
    std::size_t parts = 1;
    for (int i = 0; i < axis; ++i) parts *= static_cast<std::size_t>(tensor.shape()[i]);
    const std::size_t bytes = parts == 0 ? 0 : tensor.bytes() / parts;
    const auto* from = static_cast<const std::byte*>(tensor.data());
    auto* to = static_cast<std::byte*>(all.data());
    for (std::size_t part = 0; bytes > 0 && part < parts; ++part, from += bytes)
      for (std::int64_t image = 0; image < batch_; ++image, to += bytes) std::memcpy(to, from, bytes);
    return all;
  }

  /// Input `i` of node `n` becomes `constant`, in the graph and in its copy for the batch.
  void replace_input(std::size_t n, std::size_t i, const Tensor& constant) {
    for (Graph* graph : {&graph_, &one_, &many_}) {
      const ValueId id = graph->add_constant(fmt::format("{}:batch{}", graph_.nodes[n].name, batch_), constant);
      if (graph != &one_) graph->nodes[n].inputs[i] = id;
    }
    assert(graph_.values.size() == many_.values.size() && graph_.values.size() == one_.values.size());
    images_.emplace_back();
  }

  /// Inputs that need one entry per image (parts of a Concat, states and lengths of an LSTM).
  bool repeat_constants(std::size_t n, int axis) {
    const auto map =
        graph_.nodes[n].op->axis_map(one_.input_infos(graph_.nodes[n]), one_.output_types(graph_.nodes[n])[0].shape);
    bool any = false;
    for (std::size_t i = 0; map && i < graph_.nodes[n].inputs.size(); ++i) {
      const ValueId id = graph_.nodes[n].inputs[i];
      const int own = map->inputs[i].axis[static_cast<std::size_t>(axis)];
      if (id == no_id || images_[at(id)] || map->inputs[i].parameter || own == AxisMap::none ||
          map->inputs[i].stretched[static_cast<std::size_t>(axis)])
        continue;
      const Value& input = one_.value(id);
      if (!input.is_constant() || input.shape[own] != 1) continue;
      replace_input(n, i, repeated(Tensor(input.constant), own));
      any = true;
    }
    return any;
  }

  /// Replaces node `n`'s literal for 1 image by one for `batch_`; false if it has no such literal.
  bool rewrite(std::size_t n, const Places& places) {
    const Node& node = graph_.nodes[n];
    const Value& result = one_.value(first_output(node));
    constexpr std::size_t literal = 1;  // the input with the shape
    const int axis = places.empty() ? 0 : places[0].axis;
    if (node.type() != "Reshape") return repeat_constants(n, axis);
    if (result.shape.rank() == 0) return false;
    const Shape wanted = result.shape.with(axis, result.shape[axis] * batch_);
    replace_input(n, literal, Tensor::of<std::int64_t>(Shape{wanted.rank()}, wanted.dims()));
    return true;
  }

  void report() const {
    if (faults_.empty()) return;
    const std::string way_out = "ask for a batch of 1, or export the model with a free first dimension";
    if (faults_.size() == 1)
      throw Error(ErrorKind::unsupported,
                  fmt::format("cannot run with a batch of {}: {} ({})", batch_, faults_[0], way_out));
    std::string message = fmt::format("{} nodes cannot run with a batch of {} ({}):", faults_.size(), batch_, way_out);
    for (std::size_t i = 0; i < std::min(faults_.size(), listed_faults); ++i) message += "\n  " + faults_[i];
    if (faults_.size() > listed_faults) message += fmt::format("\n  and {} more", faults_.size() - listed_faults);
    throw Error(ErrorKind::unsupported, message);
  }

  Graph& graph_;
  std::int64_t batch_;
  Graph one_, many_;              ///< the graph for one image and for the batch; node ids and value ids as in graph_
  std::vector<ImagesAt> images_;  ///< by value
  std::vector<std::string> faults_;
  bool broken_ = false;
};

}  // namespace

void free_batch(Graph& graph, std::span<const FreedInput> freed, std::int64_t batch) {
  BatchTracer(graph, freed, batch).run();
}

}  // namespace lenslet
