// place_parts: lets the producers of a channel Concat's inputs write directly into its output, between the other
// channels of each pixel. Runs after formats are assigned. A value becomes a part (Value::part) if its producer
// supports an output pixel pitch (Candidate::pitched_output) and all its readers an input pitch (pitched_inputs). Other
// inputs are copied as before.
//
// Concats are processed from the last to the first. Of nested ones (DenseNet: each layer joins all earlier ones) the
// largest then owns the memory, and the smaller ones are parts of it.
//
// Parts of a channel Split lie within its input, if all their readers support an input pitch: Split copies the others.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/aligned_format.h"
#include "base/dtypes.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// Alignment of parts in bytes. CPU: a cache line, so that no vector crosses one and no two threads share one; less of
/// narrower types, where 24 or 48 channels are common and a copy costs more. CUDA: the width of a thread's loads and
/// stores.
constexpr std::int64_t alignment_of(DeviceKind device, DType dtype) {
  return device == DeviceKind::cpu && dtype == DType::f32 ? 64 : 16;
}
/// Kernels index within an image in 32 bits.
constexpr std::int64_t most_elements = std::int64_t{1} << 30;

class PartPlacer {
 public:
  PartPlacer(Graph& graph, DeviceKind device)
      : graph_(graph), device_(device), edit_(graph), readers_(graph.readers()) {}

  void run() {
    for (std::size_t n = graph_.nodes.size(); n-- > 0;)
      if (joins_channels(graph_.nodes[n])) place_inputs(graph_.nodes[n]);
    for (Node& node : graph_.nodes)
      if (splits_channels(node)) place_outputs(node);
  }

 private:
  Value& value(ValueId id) { return graph_.value(id); }
  /// Elements from one pixel to the next.
  static std::int64_t pixel_of(const Value& whole) { return std::max(whole.shape[1], whole.format.pixel_pitch); }
  bool is_part(ValueId id) const { return graph_.value(id).part.whole != no_id; }

  bool joins_channels(const Node& node) const {
    return node.type() == "Concat" && along_channels(node, node.outputs[0]);
  }
  /// Its input is neither an input nor an output of the network, whose memory may be the app's.
  bool splits_channels(const Node& node) const {
    if (node.type() != "Split" || !along_channels(node, node.inputs[0])) return false;
    const Node* const maker = edit_.producer_node(node.inputs[0]);
    return maker != nullptr && maker->choice != nullptr && !edit_.is_output(node.inputs[0]);
  }
  /// Whether it joins or splits `whole` along the channels of pixels.
  bool along_channels(const Node& node, ValueId whole) const {
    const Value& y = graph_.value(whole);
    const auto axis = integer_attribute(*node.op, "axis");
    return dtypes<WithHalves<Types<float>>>.contains(y.dtype) && y.shape.rank() == 4 &&
           y.format.order == Format::Order::channels_last && (axis == 1 || axis == -3) &&
           pixel_of(y) < most_elements / std::max<std::int64_t>(1, y.shape[2] * y.shape[3]);
  }

  void place_inputs(Node& node) {
    const ValueId y = node.outputs[0];
    if (!is_part(y)) become_part_of_inputs(node);
    const Value::Part at = is_part(y) ? value(y).part : Value::Part{.whole = y};
    std::vector<std::int64_t> placed;
    std::int64_t channel = at.channel;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId x = node.inputs[i];
      const Value::Part wanted{.whole = at.whole, .channel = channel};
      if (can_be_part(x, wanted)) make_part(x, wanted);  // unless it is one already
      if (lies_at(x, wanted)) placed.push_back(static_cast<std::int64_t>(i));
      channel += value(x).shape[1];
    }
    if (placed.empty()) return;
    node.op = with_attributes(*node.op, {{"placed", std::move(placed)}}, node.inputs.size());
  }

  void place_outputs(Node& node) {
    const ValueId x = node.inputs[0];
    const std::vector<TensorType> types = graph_.output_types(node);
    Value::Part part = is_part(x) ? value(x).part : Value::Part{.whole = x};
    std::vector<std::int64_t> placed;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId y = node.outputs[i];
      if (y != no_id && types[i].shape.elems() > 0 && can_lie_at(y, part)) {
        make_part(y, part);
        placed.push_back(static_cast<std::int64_t>(i));
      }
      part.channel += types[i].shape[1];
    }
    if (placed.empty()) return;
    node.op = with_attributes(*node.op, {{"placed", std::move(placed)}}, node.inputs.size(), node.outputs.size());
  }

  bool lies_at(ValueId x, const Value::Part& part) const {
    return graph_.value(x).part.whole == part.whole && graph_.value(x).part.channel == part.channel;
  }

  /// All inputs are adjacent parts already, so their Concat is one too.
  void become_part_of_inputs(const Node& node) {
    const Value::Part first = value(node.inputs[0]).part;
    if (first.whole == no_id) return;
    Value::Part next = first;
    for (const ValueId x : node.inputs) {
      if (!lies_at(x, next)) return;
      next.channel += value(x).shape[1];
    }
    if (can_be_part(node.outputs[0], first)) make_part(node.outputs[0], first);
  }

  /// Of a producer that writes it there.
  bool can_be_part(ValueId id, const Value::Part& part) const {
    const Node* const maker = edit_.producer_node(id);
    return maker != nullptr && maker->choice != nullptr && maker->choice->candidate.pitched_output &&
           maker->outputs[0] == id && can_lie_at(id, part);
  }
  bool can_lie_at(ValueId id, const Value::Part& part) const {
    const Value& value = graph_.value(id);
    const bool placeable = value.format == formats::nhwc || value.format == aligned_nhwc(value.shape[1], value.dtype);
    const auto aligned = [&](std::int64_t channels) {
      return channels * static_cast<std::int64_t>(dtype_bytes(value.dtype)) % alignment_of(device_, value.dtype) == 0;
    };
    return !edit_.is_output(id) && placeable && !is_part(id) && aligned(part.channel) &&
           aligned(pixel_of(graph_.value(part.whole))) &&
           std::ranges::all_of(readers_[static_cast<std::size_t>(id)],
                               [&](NodeId reader) { return steps_over(graph_.node(reader), id); });
  }

  static bool steps_over(const Node& reader, ValueId id) {
    if (reader.choice == nullptr) return false;
    for (std::size_t i = 0; i < reader.inputs.size(); ++i)
      if (reader.inputs[i] == id && (reader.choice->candidate.pitched_inputs & input_bit(i)) == 0) return false;
    return true;
  }

  void make_part(ValueId id, const Value::Part& part) {
    value(id).part = part;
    value(id).format.pixel_pitch = pixel_of(value(part.whole));
    const Format format = value(id).format;
    Node& maker = graph_.node(edit_.producer(id));
    Candidate made = maker.choice->candidate;
    made.outputs[static_cast<std::size_t>(std::ranges::find(maker.outputs, id) - maker.outputs.begin())] = format;
    set_candidate(maker, std::move(made));
    for (const NodeId n : readers_[static_cast<std::size_t>(id)]) {
      Node& reader = graph_.node(n);
      Candidate reads = reader.choice->candidate;
      for (std::size_t i = 0; i < reader.inputs.size(); ++i)
        if (reader.inputs[i] == id) reads.inputs[i] = format;
      set_candidate(reader, std::move(reads));
    }
  }

  Graph& graph_;
  const DeviceKind device_;
  GraphEdit edit_;
  const std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

void place_parts(Graph& graph, const PassContext& context) { PartPlacer(graph, context.target.device.kind).run(); }

}  // namespace lenslet
