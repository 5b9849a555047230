// assign_formats: gives each 4-D value a format and inserts conversions where formats differ. A node with several
// kernels uses the chosen one's format. Any other node takes, of the formats its kernel accepts, the one in which most
// elements arrive. Explicit zero padding is a conversion as well. Each value is converted once; graph outputs are
// always nchw. nhwc images flattened for products by constant weights are not converted: the products read them pixel
// by pixel.
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
    readers_ = graph_.readers();
    nodes_ = std::exchange(graph_.nodes, {});
    for (Node& node : nodes_) {
      if (!relabel_transpose(node) && !keep_pixels(node)) assign(node);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& output : graph_.outputs) output = as_output(output);
  }

 private:
  bool has_format(ValueId id) const { return id != no_id && graph_.value(id).shape.rank() == 4; }
  /// Constants do not influence the format, but are converted to the one that a kernel requires.
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

  /// The node as a product that can read rows of images pixel by pixel.
  struct PixelProduct {
    Node* node = nullptr;
    std::shared_ptr<const Op> op = {};
    Candidate candidate = {};
  };
  /// A flattened image and the elementwise results made from it, up to the products.
  struct Flattened {
    std::int64_t channels = 0;
    std::vector<ValueId> values = {};  ///< the image and results of elementwise steps
    std::vector<PixelProduct> products = {};
  };

  /// [N,C,H,W] in nhwc flattened to [N,C*H*W] costs nothing if only products by constant weights read it: they pack the
  /// weights in that order, and sum in another order. Not where this would store weights twice, which costs more than
  /// the conversion: unpacked weights (few_rows on the CPU), or weights with other readers. Not for padded pixels,
  /// whose rows have gaps.
  bool keep_pixels(Node& node) {
    const int alias = node.op->alias_input();
    if (alias < 0) return false;
    const ValueId x = node.inputs[static_cast<std::size_t>(alias)], y = node.outputs[0];
    if (!moves(x)) return false;
    const Value &image = graph_.value(x), &rows = graph_.value(y);
    if (rows.shape.rank() != 2 || rows.shape[0] != image.shape[0] || rows.dtype != image.dtype ||
        image.shape.elems() == 0 || same_bytes(formats::nchw, formats::nhwc, image.shape))
      return false;
    const ValueId pixels = find(x, formats::nhwc);
    if (pixels == no_id || find(x, formats::nchw) != no_id) return false;
    Flattened flattened{.channels = image.shape[1]};
    if (!read_by_products(y, flattened)) return false;
    for (const ValueId id : flattened.values) graph_.value(id).name += ":nhwc";
    for (PixelProduct& product : flattened.products) {
      product.node->op = std::move(product.op);
      set_candidate(*product.node, std::move(product.candidate));
    }
    node.inputs = {pixels};
    node.op = make_normalised_op("Relabel", {{"kind", std::string("pixels")}}, 1);
    return true;
  }

  /// Whether `id` is read only by products, as their rows, and by elementwise steps before them.
  bool read_by_products(ValueId id, Flattened& flattened) {
    const std::vector<NodeId>& readers = readers_[static_cast<std::size_t>(id)];
    if (readers.empty() || graph_.is_output(id)) return false;
    flattened.values.push_back(id);
    for (const NodeId n : readers) {
      Node& reader = nodes_[static_cast<std::size_t>(n)];
      if (reader.inputs[0] != id || std::count(reader.inputs.begin(), reader.inputs.end(), id) != 1) return false;
      if (integer_attribute(*reader.op, "a_channels") == 0) {
        if (readers_[static_cast<std::size_t>(reader.inputs[1])].size() != 1) return false;
        PixelProduct product{.node = &reader};
        product.op = with_attributes(*reader.op, {{"a_channels", flattened.channels}}, reader.inputs.size());
        const Problem problem(product.op, graph_.input_infos(reader), graph_.output_types(reader));
        const Offer offer = reader.choice->kernel->offer(problem, target_);
        if (!offer.refusal.empty()) return false;
        product.candidate = offer.candidates.front();
        flattened.products.push_back(std::move(product));
      } else if (!is_elementwise(reader) || !read_by_products(reader.outputs[0], flattened)) {
        return false;
      }
    }
    return true;
  }

  /// One matrix to another, element by element.
  bool is_elementwise(const Node& node) const {
    return node.inputs.size() == 1 && node.outputs.size() == 1 && node.op->elementwise_inputs() > 0 &&
           graph_.value(node.outputs[0]).shape == graph_.value(node.inputs[0]).shape;
  }

  /// The existing copy of the value in that format; else no_id.
  ValueId find(ValueId id, const Format& format) const {
    if (graph_.value(id).format == format) return id;
    for (const std::vector<ValueId>& forms : forms_)
      if (std::find(forms.begin(), forms.end(), id) != forms.end())
        for (const ValueId other : forms)
          if (graph_.value(other).format == format) return other;
    return no_id;
  }

  /// For a node with one kernel: the candidate in whose formats most elements arrive. Without any: the first; at a tie:
  /// the last.
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

  /// `id` in `format`, converted before the next node if necessary.
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
    const auto known = std::ranges::find_if(forms_, [&](auto& forms) { return std::ranges::count(forms, from) != 0; });
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
  std::vector<Node> nodes_;                   // those before this pass
  std::vector<std::vector<NodeId>> readers_;  // of their values, by value
  std::vector<std::vector<ValueId>> forms_;   // for values stored in several formats: all of their copies
};

}  // namespace

void assign_formats(Graph& graph, const PassContext& context) { FormatAssigner(graph, context.target).run(); }

}  // namespace lenslet
