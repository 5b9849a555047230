#include "runtime/exec/place.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace lenslet {

namespace {

std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

class Placer {
 public:
  Placer(const Graph& graph, const PlacementOptions& options) : graph_(graph), options_(options) {
    const std::size_t count = graph.values.size();
    result_.root.resize(count);
    std::iota(result_.root.begin(), result_.root.end(), ValueId{0});
    result_.first.assign(count, -1);
    result_.last.assign(count, -1);
    result_.runs.assign(graph.nodes.size(), true);
  }

  Placement run(std::span<const std::size_t> workspace_bytes) {
    share_renamed();
    share_parts();
    find_lifetimes();
    if (!options_.keep_all) overwrite_in_place();
    if (options_.keep_all) live_to_the_end();
    lay_out(workspace_bytes);
    return std::move(result_);
  }

 private:
  ValueId root(ValueId value) const {
    while (result_.root[index(value)] != value) value = result_.root[index(value)];
    return value;
  }
  bool is_part(ValueId value) const { return graph_.value(value).part.whole != no_id; }
  bool in_arena(ValueId root_value) const { return !graph_.value(root_value).is_constant(); }

  void share_renamed() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const int from = node.op->alias_input();
      if (from < 0) continue;
      const ValueId input = node.inputs[static_cast<std::size_t>(from)];
      result_.root[index(node.outputs[0])] = root(input);
      result_.runs[n] = false;
    }
  }

  void share_parts() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (const ValueId whole = graph_.values[v].part.whole; whole != no_id) result_.root[v] = root(whole);
  }

  void find_lifetimes() {
    const int steps = static_cast<int>(graph_.nodes.size());
    for (const ValueId input : graph_.inputs) {
      touch(input, 0);
      if (options_.keep_inputs) touch(input, steps);
    }
    for (int step = 0; step < steps; ++step) {
      const Node& node = graph_.node(step);
      for (const ValueId output : node.outputs) touch(output, step);
      for (const ValueId input : node.inputs) touch(input, step);
    }
    for (const ValueId output : graph_.outputs) touch(output, steps);
    for (const Band& band : graph_.bands) live_through(band);
  }

  /// Inputs of a band live until its end, and its outputs from its beginning.
  void live_through(const Band& band) {
    for (NodeId n = band.first; n <= band.last; ++n) {
      for (const ValueId input : graph_.node(n).inputs) touch(input, band.last);
      for (const ValueId output : graph_.node(n).outputs)
        if (output != no_id && in_arena(root(output))) {
          int& first = result_.first[index(root(output))];
          first = std::min(first, static_cast<int>(band.first));
        }
    }
  }

  void touch(ValueId value, int step) {
    if (value == no_id) return;
    const ValueId at = root(value);
    if (!in_arena(at)) return;
    int& first = result_.first[index(at)];
    if (first < 0) first = step;
    int& last = result_.last[index(at)];
    last = std::max(last, step);
  }

  // An output reuses its input's block if the input has no later reader.
  void overwrite_in_place() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!result_.runs[n] || node.outputs.empty()) continue;
      const ValueId output = node.outputs[0];
      if (output == no_id || !in_arena(root(output)) || is_part(output)) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if ((node.choice->candidate.in_place & input_bit(i)) != 0 &&
            can_overwrite(node, i, output, static_cast<int>(n))) {
          take_over(root(node.inputs[i]), root(output));
          break;
        }
    }
  }

  bool can_overwrite(const Node& node, std::size_t i, ValueId output, int step) const {
    const ValueId input = node.inputs[i];
    if (input == no_id) return false;
    const ValueId at = root(input);
    if (is_part(input) || result_.last[index(at)] != step) return false;
    const Value& from = graph_.value(input);
    const Value& to = graph_.value(output);
    if (from.dtype != to.dtype || !(from.shape == to.shape) || from.format != to.format) return false;
    if (graph_.value(at).bytes() < graph_.value(root(output)).bytes()) return false;
    // Another input in the same block would be overwritten before it is read.
    for (std::size_t j = 0; j < node.inputs.size(); ++j)
      if (j != i && node.inputs[j] != no_id && root(node.inputs[j]) == at) return false;
    return !read_by_neighbours(at, step);
  }

  /// Whether other steps of `step`'s band read it, perhaps other rows, at the same time.
  bool read_by_neighbours(ValueId at, int step) const {
    for (const Band& band : graph_.bands) {
      if (step < band.first || step > band.last) continue;
      for (NodeId n = band.first; n <= band.last; ++n)
        for (const ValueId input : graph_.node(n).inputs)
          if (n != step && input != no_id && root(input) == at) return true;
    }
    return false;
  }

  void take_over(ValueId from, ValueId to) {
    result_.root[index(to)] = from;
    result_.last[index(from)] = std::max(result_.last[index(from)], result_.last[index(to)]);
  }

  void live_to_the_end() {
    const int end = static_cast<int>(graph_.nodes.size());
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (result_.first[v] >= 0) {
        result_.first[v] = 0;
        result_.last[v] = end;
      }
  }

  void lay_out(std::span<const std::size_t> workspace_bytes) {
    std::vector<MemoryRequest> requests;
    std::vector<ValueId> owners;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId value = static_cast<ValueId>(v);
      if (root(value) != value || result_.first[v] < 0) continue;
      requests.push_back({graph_.values[v].bytes(), result_.first[v], result_.last[v]});
      owners.push_back(value);
    }
    const MemoryPlan values_only = plan_memory(requests, options_.alignment);
    result_.activation_bytes = values_only.arena_bytes;
    result_.activation_sum_bytes = values_only.sum_bytes;

    for (std::size_t n = 0; n < workspace_bytes.size(); ++n)
      requests.push_back({workspace_bytes[n], static_cast<int>(n), static_cast<int>(n)});
    const MemoryPlan all = plan_memory(requests, options_.alignment);
    result_.arena_bytes = all.arena_bytes;
    result_.lower_bound_bytes = all.lower_bound_bytes;

    std::vector<std::size_t> by_root(graph_.values.size(), Placement::npos);
    for (std::size_t i = 0; i < owners.size(); ++i) by_root[index(owners[i])] = all.offsets[i];
    result_.offsets.resize(graph_.values.size());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      result_.root[v] = root(static_cast<ValueId>(v));
      result_.offsets[v] = by_root[index(result_.root[v])];
      if (is_part(static_cast<ValueId>(v)))
        result_.offsets[v] +=
            static_cast<std::size_t>(graph_.values[v].part.channel) * dtype_bytes(graph_.values[v].dtype);
    }
    result_.workspace_offsets.assign(all.offsets.begin() + static_cast<std::ptrdiff_t>(owners.size()),
                                     all.offsets.end());
  }

  const Graph& graph_;
  const PlacementOptions options_;
  Placement result_;
};

}  // namespace

Placement place_values(const Graph& graph, std::span<const std::size_t> workspace_bytes,
                       const PlacementOptions& options) {
  return Placer(graph, options).run(workspace_bytes);
}

}  // namespace lenslet
