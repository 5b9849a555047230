// assign_formats: each 4-D value gets a format, and conversions stand where two do not meet. Formats follow the data: a
// node with several kernels runs where the chosen one wants; any other takes, of the formats that its kernel names, the
// one in which most elements arrive. A halo of zeros (explicit padding) is a conversion, too. Conversions are made once
// a value; graph outputs are always nchw.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_format.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

class FormatAssigner {
 public:
  FormatAssigner(Graph& graph, const Target& target) : graph_(graph), target_(target) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (!relabel_transpose(node)) assign(node);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& output : graph_.outputs) output = as_output(output);
  }

 private:
  bool has_format(ValueId id) const { return id != no_id && graph_.value(id).shape.rank() == 4; }
  /// Constants decide no format, but where a kernel asks for one, they are converted as all else.
  bool moves(ValueId id) const { return has_format(id) && !graph_.value(id).is_constant(); }

  /// A Transpose between [N,H,W,C] and [N,C,H,W] costs nothing when one side is nhwc.
  bool relabel_transpose(Node& node) {
    if (node.type() != "Transpose" || !moves(node.inputs[0])) return false;
    const auto perm = integers_attribute(*node.op, "perm");
    const bool to_first = perm == to_channels_first;
    const bool last = may_have_pitch(graph_.value(node.inputs[0]).format);
    if (!to_first && !(perm == to_channels_last && (last || find(node.inputs[0], formats::nhwc) != no_id)))
      return false;
    node.inputs[0] = in_format(node.inputs[0], to_first ? formats::nchw : formats::nhwc);
    const std::string kind = to_first ? "channels_first" : "channels_last";
    node.op = make_normalised_op("Relabel", {{"kind", kind}}, 1);
    node.choice = nullptr;
    if (to_first) graph_.value(node.outputs[0]).format = formats::nhwc;
    return true;
  }

  /// The same value stored in that format, if there is one already; else no_id.
  ValueId find(ValueId id, const Format& format) const {
    if (graph_.value(id).format == format) return id;
    for (const std::vector<ValueId>& forms : forms_)
      if (std::find(forms.begin(), forms.end(), id) != forms.end())
        for (const ValueId other : forms)
          if (graph_.value(other).format == format) return other;
    return no_id;
  }

  /// Of a node with one kernel: the candidate in whose formats most elements arrive; nothing arrives: the first; at a
  /// tie the last.
  Candidate follow_inputs(const Node& node, const Offer& offer) const {
    const Candidate* best = nullptr;
    std::int64_t most = 0;
    for (const Candidate& candidate : offer.candidates) {
      std::int64_t arrives = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (const ValueId id = node.inputs[i]; moves(id) && find(id, candidate.inputs[i]) != no_id)
          arrives += graph_.value(id).shape.elems();
      if (best != nullptr && (arrives == 0 || arrives < most)) continue;
      best = &candidate;
      most = arrives;
    }
    return *best;
  }

  void assign(Node& node) {
    const auto kernels = kernels_of(node.type(), target_.device.kind);
    Candidate candidate;
    if (kernels.size() > 1) {
      candidate = node.choice->candidate;
    } else {
      const Problem problem(node.op, graph_.input_infos(node), graph_.output_types(node));
      Choice choice{.kernel = kernels.front()};
      candidate = choice.candidate = follow_inputs(node, choice.kernel->offer(problem, target_));
      node.choice = std::make_shared<const Choice>(std::move(choice));
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (has_format(node.inputs[i])) node.inputs[i] = in_format(node.inputs[i], candidate.inputs[i]);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != no_id) graph_.value(node.outputs[i]).format = candidate.outputs[i];
  }

  /// `id`, or the same value in `format`, converted before the node that comes next.
  ValueId in_format(ValueId id, const Format& format) {
    if (const ValueId found = find(id, format); found != no_id) return found;
    Format plain = format;
    plain.halo = {};
    const ValueId from = plain == format ? id : in_format(id, plain);  // a halo is a step of its own
    const Value original = graph_.value(from);
    Value converted = original;
    converted.constant = {};
    converted.format = format;
    converted.name = fmt::format("{}:{}", original.name, to_string(format));
    Node node;
    node.name = converted.name;
    if (same_bytes(original.format, format, original.shape)) {
      node.op = make_normalised_op("Relabel", {{"kind", std::string("layout")}}, 1);
    } else {
      node.op =
          make_normalised_op("LayoutConvert", {{"from", to_string(original.format)}, {"to", to_string(format)}}, 1);
      const InputInfo input{.present = true, .type = {original.dtype, original.shape}};
      const Problem problem(node.op, {&input, 1});
      node.choice = std::make_shared<const Choice>(choose_kernel(problem, target_, "conversion"));
    }
    const ValueId made = graph_.add_value(converted.name);
    graph_.value(made) = std::move(converted);
    node.inputs = {from};
    node.outputs = {made};
    graph_.nodes.push_back(std::move(node));
    const auto known = std::find_if(forms_.begin(), forms_.end(), [&](const std::vector<ValueId>& forms) {
      return std::find(forms.begin(), forms.end(), from) != forms.end();
    });
    if (known == forms_.end())
      forms_.push_back({from, made});
    else
      known->push_back(made);
    return made;
  }

  /// The value in nchw, under the name the graph gave its output.
  ValueId as_output(ValueId id) {
    const std::size_t before = graph_.nodes.size();
    const ValueId out = in_format(id, formats::nchw);
    if (graph_.nodes.size() != before) std::swap(graph_.value(id).name, graph_.value(out).name);
    return out;
  }

  Graph& graph_;
  const Target& target_;
  std::vector<std::vector<ValueId>> forms_;  // values that are stored in several formats, each with all of them
};

}  // namespace

void assign_formats(Graph& graph, const PassContext& context) { FormatAssigner(graph, context.target).run(); }

}  // namespace lenslet
