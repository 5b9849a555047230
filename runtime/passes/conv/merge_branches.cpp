// merge_branches: a sum of convolutions that read one value x, of x times a factor a channel (a BatchNormalization) and
// of x itself becomes one convolution: the deployed form of networks trained with parallel branches (RepVGG,
// MobileOne). Filters are scaled and summed in double and rounded once.
//
// The sum has the taps, groups and padding of one of its branches, the host; the others' taps are among the host's: a
// 1x1 is the middle of a padded 3x3, x a filter of a single 1, groups are blocks of a dense filter. So it costs what
// the host costs. It reads no element that the host did not: the same outputs are finite, others may be a NaN for an
// infinity or the reverse.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

/// A summand: `value` or its negative.
struct Term {
  ValueId value = no_id;
  double sign = 1;
};

/// A spatial axis of a filter: tap t of output o reads o * stride + t * dilation - pad.
struct Axis {
  std::int64_t taps = 1, dilation = 1, pad = 0;
};

/// A summand as a convolution of `x`: factor[k] * (w * x) + offset[k].
struct Branch {
  Term term;
  std::string name;
  ValueId x = no_id;
  ValueId w = no_id;  ///< [K,C/groups,spatial axes]; no_id: x itself, K = C = groups
  std::int64_t groups = 1;
  Ints strides = {};  ///< as axes
  std::vector<Axis> axes = {};
  std::vector<double> factor = {}, offset = {};

  /// x itself without factor, which a convolution's epilogue can add.
  bool is_residual() const { return term.value == x && term.sign > 0; }
};

/// Add, Sub or Sum of values of the output's shape, none of them constant.
bool is_sum(const Graph& graph, const Node& node) {
  const bool adds = node.type() == "Add" || node.type() == "Sub" || node.type() == "Sum";
  if (!adds || node.outputs[0] == no_id) return false;
  const Value& y = graph.value(node.outputs[0]);
  return y.dtype == DType::f32 && y.shape.rank() >= 3 && std::ranges::all_of(node.inputs, [&](ValueId id) {
           return !graph.value(id).is_constant() && graph.value(id).shape == y.shape;
         });
}

/// Whether `id` is a sum that only the sum above it reads.
bool is_inner_sum(const GraphEdit& edit, ValueId id) {
  return edit.merges(id) && is_sum(edit.graph(), *edit.producer_node(id));
}

std::vector<Term> terms_of(const GraphEdit& edit, NodeId sum) {
  std::vector<Term> terms, open{{edit.graph().node(sum).outputs[0], 1}};
  while (!open.empty()) {
    const Term term = open.back();
    open.pop_back();
    if (edit.producer(term.value) != sum && !is_inner_sum(edit, term.value)) {
      terms.push_back(term);
      continue;
    }
    const Node& node = *edit.producer_node(term.value);
    for (std::size_t i = node.inputs.size(); i-- > 0;)  // the first input is on top
      open.push_back({node.inputs[i], node.type() == "Sub" && i == 1 ? -term.sign : term.sign});
  }
  return terms;
}

/// The last entries of a list attribute, one a spatial axis (of 1-D convolutions it has two).
Ints by_axis(const Op& op, std::string_view name, std::size_t axes) {
  const Ints list = integers_attribute(op, name).value();
  return {list.end() - static_cast<std::ptrdiff_t>(axes), list.end()};
}

/// A Conv that only the sum reads, with constant weights and without activation; nothing for others.
std::optional<Branch> conv_branch(const GraphEdit& edit, const Term& term) {
  const Graph& graph = edit.graph();
  const auto channels = affine_channels(edit, term.value);
  if (!channels) return std::nullopt;
  const Node& node = *edit.producer_node(term.value);
  if (node.type() != "Conv" || graph.value(node.inputs[1]).dtype != DType::f32) return std::nullopt;
  const Shape& w = graph.value(node.inputs[1]).shape;
  const auto axes = static_cast<std::size_t>(w.rank() - 2);
  const Ints dilations = by_axis(*node.op, "dilations", axes);
  const Ints pads = node.op->imagined_zeros(graph.input_infos(node)).value();
  Branch branch{.term = term,
                .name = node.name,
                .x = node.inputs[0],
                .w = node.inputs[1],
                .groups = integer_attribute(*node.op, "group").value(),
                .strides = by_axis(*node.op, "strides", axes)};
  for (std::size_t a = 0; a < axes; ++a) branch.axes.push_back({w[static_cast<int>(a) + 2], dilations[a], pads[a]});
  const Epilogue& epilogue = *node.op->epilogue();
  const std::vector<float> bias = *product_bias(graph, input_of(node, 2), *channels);
  for (std::size_t k = 0; k < bias.size(); ++k) {
    branch.factor.push_back(term.sign * (epilogue.scale.empty() ? 1 : double{epilogue.scale[k]}));
    branch.offset.push_back(term.sign * epilogue.bias_factor * double{bias[k]});
  }
  return branch;
}

/// Any other summand, as factors and offsets of the value above its BatchNormalizations and Muls.
Branch value_branch(const GraphEdit& edit, const Term& term) {
  const Graph& graph = edit.graph();
  const Shape& y = graph.value(term.value).shape;
  const auto axes = static_cast<std::size_t>(y.rank() - 2), channels = static_cast<std::size_t>(y[1]);
  Branch branch{.term = term,
                .name = graph.value(term.value).name,
                .x = term.value,
                .groups = y[1],
                .strides = Ints(axes, 1),
                .axes = std::vector<Axis>(axes),
                .factor = std::vector<double>(channels, term.sign),
                .offset = std::vector<double>(channels, 0)};
  while (edit.merges(branch.x)) {
    const auto above = affine_of(graph, *edit.producer_node(branch.x));
    if (!above || above->affine.factor.size() != channels) break;
    if (branch.x == term.value) branch.name = edit.producer_node(branch.x)->name;
    for (std::size_t k = 0; k < channels; ++k) {
      branch.offset[k] += branch.factor[k] * above->affine.offset[k];
      branch.factor[k] *= above->affine.factor[k];
    }
    branch.x = above->x;
  }
  return branch;
}

/// For each tap of `branch` the host's that reads the same element, both counted in the order in which filters store
/// them; empty if the host has not all of them, or not the groups.
Ints taps_in(const Branch& host, const Branch& branch) {
  if (branch.x != host.x || branch.strides != host.strides || branch.groups % host.groups != 0) return {};
  Ints found(1, 0);
  for (std::size_t a = 0; a < host.axes.size(); ++a) {
    const Axis &to = host.axes[a], &from = branch.axes[a];
    Ints next;
    for (const std::int64_t before : found)
      for (std::int64_t tap = 0; tap < from.taps; ++tap) {
        const std::int64_t distance = to.pad + tap * from.dilation - from.pad;
        if (distance < 0 || distance % to.dilation != 0 || distance / to.dilation >= to.taps) return {};
        next.push_back(before * to.taps + distance / to.dilation);
      }
    found = std::move(next);
  }
  return found;
}

/// Adds filter k of `branch` to `filter`, [C/groups,taps] of the host.
void add_filter(const Graph& graph, const Branch& branch, std::int64_t k, std::int64_t first_channel, const Ints& taps,
                std::int64_t host_taps, std::vector<double>& filter) {
  const auto factor = branch.factor[static_cast<std::size_t>(k)];
  const auto filters = static_cast<std::int64_t>(branch.factor.size());
  if (branch.w == no_id) {
    filter[static_cast<std::size_t>((k - first_channel) * host_taps + taps[0])] += factor;
    return;
  }
  const Tensor& w = graph.value(branch.w).constant;
  const std::int64_t channels = w.shape()[1], count = static_cast<std::int64_t>(taps.size());
  const std::int64_t offset = k / (filters / branch.groups) * channels - first_channel;
  const float* from = w.values<float>().data() + k * channels * count;
  for (std::int64_t c = 0; c < channels; ++c)
    for (const std::int64_t tap : taps)
      filter[static_cast<std::size_t>((c + offset) * host_taps + tap)] += factor * double{*from++};
}

/// Weights and bias of the sum; nothing if one is not finite.
std::optional<std::pair<Tensor, Tensor>> summed(const Graph& graph, const Branch& host,
                                                const std::vector<const Branch*>& branches) {
  const Shape& shape = graph.value(host.w).shape;
  const std::int64_t filters = shape[0], channels = shape[1], host_taps = std::ssize(taps_in(host, host));
  Tensor weights(DType::f32, shape), biases(DType::f32, Shape{filters});
  std::vector<Ints> taps;
  for (const Branch* branch : branches) taps.push_back(taps_in(host, *branch));
  std::vector<double> filter(static_cast<std::size_t>(channels * host_taps));
  float* w = weights.values<float>().data();
  bool finite = true;
  const auto rounded = [&](double exact) {
    const auto value = static_cast<float>(exact);
    finite = finite && std::isfinite(value);
    return value;
  };
  for (std::int64_t k = 0; k < filters; ++k) {
    std::ranges::fill(filter, 0.0);
    double bias = 0;
    for (std::size_t b = 0; b < branches.size(); ++b) {
      add_filter(graph, *branches[b], k, k / (filters / host.groups) * channels, taps[b], host_taps, filter);
      bias += branches[b]->offset[static_cast<std::size_t>(k)];
    }
    w = std::ranges::transform(filter, w, rounded).out;
    biases.values<float>()[static_cast<std::size_t>(k)] = rounded(bias);
  }
  if (!finite) return std::nullopt;
  return std::pair(std::move(weights), std::move(biases));
}

/// One convolution instead of the branches that fit the host, which leave `branches`; no_id if it would save nothing:
/// of x itself and one dense convolution, the epilogue adds x exactly.
ValueId merge_with(GraphEdit& edit, const Branch& host, std::vector<Branch>& branches) {
  const Graph& graph = edit.graph();
  std::vector<const Branch*> members;
  for (const Branch& branch : branches)
    if (!taps_in(host, branch).empty()) members.push_back(&branch);
  const bool depthwise = graph.value(host.w).shape[1] == 1;
  const auto free = depthwise ? 0 : std::ranges::count_if(members, &Branch::is_residual);
  if (std::ssize(members) - free < 2) return no_id;
  auto sum = summed(graph, host, members);
  if (!sum) return no_id;

  std::string note = fmt::format("the sum of {} branches", members.size());
  for (const Branch* member : members) note += fmt::format("{}{}", member == members[0] ? ": " : ", ", member->name);
  const std::shared_ptr<const Op> op = edit.producer_node(host.term.value)->op;
  Epilogue epilogue = *op->epilogue();
  epilogue.scale.clear();
  epilogue.bias_factor = 1;
  const ValueId w = edit.add_constant(host.name + ":sum", std::move(sum->first)),
                bias = edit.add_constant(host.name + ":bias", std::move(sum->second)),
                y = edit.add_node(host.name + ":sum", op->with_epilogue(std::move(epilogue)), {host.x, w, bias});
  edit.graph().value(y).file_type = graph.value(host.term.value).file_type;
  Node& node = edit.graph().node(edit.producer(y));
  node.name = host.name;
  node.note = std::move(note);
  std::erase_if(branches, [&](const Branch& branch) { return !taps_in(host, branch).empty(); });
  return y;
}

/// Makes the output of `sum` the sum of these terms, of which the first is positive.
void replace_sum(GraphEdit& edit, NodeId sum, const std::vector<Term>& terms) {
  const std::vector<ValueId> before = edit.graph().node(sum).inputs, outputs = edit.graph().node(sum).outputs;
  ValueId y = terms[0].value;
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const auto op = make_op(terms[i].sign > 0 ? "Add" : "Sub", "", {}, 2);
    y = edit.add_node(fmt::format("{}:{}", edit.graph().node(sum).name, i), op, {y, terms[i].value});
    edit.graph().value(y).file_type = edit.graph().value(outputs[0]).file_type;
  }
  edit.set_outputs(edit.producer(y), outputs);
  edit.erase(sum);
  for (const ValueId id : before) edit.erase_unread(id);
}

/// True if all of the sum became one convolution.
bool merge_sum(GraphEdit& edit, NodeId sum) {
  std::vector<Branch> branches, hosts;
  for (const Term& term : terms_of(edit, sum)) {
    std::optional<Branch> conv = conv_branch(edit, term);
    if (conv) hosts.push_back(*conv);
    branches.push_back(conv ? std::move(*conv) : value_branch(edit, term));
  }
  const auto size = [&](const Branch& host) { return edit.graph().value(host.w).shape.elems(); };
  std::ranges::stable_sort(hosts, std::greater(), size);
  std::vector<Term> terms;
  for (const Branch& host : hosts) {
    const auto is_host = [&](const Branch& branch) { return branch.term.value == host.term.value; };
    if (std::ranges::none_of(branches, is_host)) continue;
    if (const ValueId y = merge_with(edit, host, branches); y != no_id) terms.push_back({y, 1});
  }
  if (terms.empty()) return false;
  for (const Branch& branch : branches) terms.push_back(branch.term);
  replace_sum(edit, sum, terms);
  return terms.size() == 1;
}

}  // namespace

void merge_branches(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  std::set<NodeId> inner;
  for (const Node& node : graph.nodes)
    if (is_sum(graph, node))
      for (const ValueId id : node.inputs)
        if (is_inner_sum(edit, id)) inner.insert(edit.producer(id));
  std::set<ValueId> merged;  // what came of sums; a factor behind one goes into it, since it may be a branch itself
  for (const NodeId n : edit.nodes()) {
    if (graph.node(n).outputs.empty()) continue;
    const ValueId y = graph.node(n).outputs[0];
    const auto is_merged = [&](ValueId id) { return merged.contains(id); };
    if (is_sum(graph, graph.node(n)) ? !inner.contains(n) && merge_sum(edit, n)
                                     : std::ranges::any_of(graph.node(n).inputs, is_merged) && fold_affine(edit, n))
      merged.insert(y);
  }
  edit.finish();
}

}  // namespace lenslet
