// SparseRulebook: the pairs of input and output sites per tap, and the output sites.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/sparse/bound_checking.h"
#include "ops/sparse/build_rulebook.h"
#include "ops/sparse/cuda/rulebook_cuda.h"

namespace lenslet {

namespace {

using Kind = SparseGeometry::Kind;
constexpr std::string_view kind_names[] = {"submanifold", "regular", "transposed"};
constexpr std::int64_t most_taps_of_axis = 5, most_step = 1 << 16;

Kind parse_kind(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kind_names); ++i)
    if (kind_names[i] == text) return static_cast<Kind>(i);
  throw Error(ErrorKind::invalid_model,
              fmt::format("attribute kind is '{}'; there are {}", text, fmt::join(kind_names, ", ")));
}

/// Input: indices. Outputs: rulebook; except for submanifolds the output sites' indices; and with the attribute
/// neighbours, which only the pass share_neighbours sets, the neighbour table.
class SparseRulebook final : public Op {
 public:
  explicit SparseRulebook(const NodeSpec& spec) : outputs_(spec.outputs) {
    AttributeReader reader(spec);
    grid_ = read_grid(reader);
    const int dims = grid_.dims;
    geometry_.kind = parse_kind(reader.text("kind", "submanifold"));
    const bool submanifold = geometry_.kind == Kind::submanifold;
    if (!reader.has("kernel_shape")) throw Error(ErrorKind::invalid_model, "attribute kernel_shape is missing");
    geometry_.kernel = read_per_axis(reader, "kernel_shape", dims, 1, 1, 1, most_taps_of_axis);
    geometry_.dilation = read_per_axis(reader, "dilations", dims, 1, 1, 1, most_step);
    if (submanifold) {
      for (const std::int64_t taps : geometry_.kernel)
        if (taps % 2 == 0)
          throw Error(ErrorKind::invalid_model, "a submanifold convolution needs an odd number of taps on each axis");
    } else {
      geometry_.stride = read_per_axis(reader, "strides", dims, 1, 1, 1, most_step);
      read_pads(reader);
      if (geometry_.kind == Kind::transposed)
        geometry_.output_padding = read_per_axis(reader, "output_padding", dims, 0, 0, 0, most_step);
      max_sites_ = read_bound(reader, "max_sites");
    }
    max_pairs_ = read_bound(reader, "max_pairs");
    if (spec.normalised) neighbours_ = reader.integer("neighbours", 0) != 0;
    reader.finish();
    require_countable(grid_, {4 * most_step, 4 * most_step, 4 * most_step});
    require_countable(geometry_.output(grid_), {0, 0, 0});
    if (neighbours_ ? outputs_ != table_output() + 1 : submanifold && outputs_ != 1)
      throw Error(ErrorKind::invalid_model,
                  "a submanifold convolution has the sites of its input: there is one output");
  }

  std::string_view type() const override { return "SparseRulebook"; }
  AttributeList attributes() const override {
    AttributeList list;
    const int dims = grid_.dims;
    list.emplace_back("kind", std::string(kind_names[static_cast<std::size_t>(geometry_.kind)]));
    append_grid(list, grid_);
    list.emplace_back("kernel_shape", last_axes(geometry_.kernel, dims));
    list.emplace_back("dilations", last_axes(geometry_.dilation, dims));
    if (geometry_.kind != Kind::submanifold) {
      list.emplace_back("strides", last_axes(geometry_.stride, dims));
      std::vector<std::int64_t> pads = last_axes(geometry_.pad_begin, dims);
      for (const std::int64_t pad : last_axes(geometry_.pad_end, dims)) pads.push_back(pad);
      list.emplace_back("pads", pads);
      if (geometry_.kind == Kind::transposed)
        list.emplace_back("output_padding", last_axes(geometry_.output_padding, dims));
      if (max_sites_) list.emplace_back("max_sites", *max_sites_);
    }
    if (max_pairs_) list.emplace_back("max_pairs", *max_pairs_);
    if (neighbours_) list.emplace_back("neighbours", std::int64_t{1});
    return list;
  }

  /// The neighbour table's output, if any.
  std::size_t table_output() const { return geometry_.kind == Kind::submanifold ? 1 : 2; }

  RulebookPlan plan(const Shape& indices) const {
    RulebookPlan plan{.geometry = geometry_, .grid = grid_, .max_inputs = indices[0], .neighbours = neighbours_};
    // Upper bounds are products of a file's numbers: they saturate.
    const auto times = [](std::int64_t a, std::int64_t b) {
      std::int64_t product = 0;
      return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
    };
    if (geometry_.kind == Kind::submanifold) {
      plan.max_outputs = plan.max_inputs;
      plan.max_pairs = times(plan.max_inputs, geometry_.stored_taps());
    } else {
      const SparseGrid out = geometry_.output(grid_);
      std::int64_t meetings = plan.max_inputs;
      for (std::size_t a = 0; a < 3; ++a) meetings = times(meetings, std::min(geometry_.most_meetings(a), out.size[a]));
      plan.max_outputs = max_sites_ ? *max_sites_ : std::min(meetings, out.cells());
      plan.max_pairs = std::min(meetings, times(plan.max_outputs, geometry_.volume()));
    }
    if (max_pairs_) plan.max_pairs = *max_pairs_;
    if (plan.max_inputs > INT32_MAX || plan.max_outputs > INT32_MAX ||
        plan.max_pairs > INT32_MAX / 2 - rulebook_header(geometry_.stored_taps()))
      throw Error(
          ErrorKind::unsupported,
          fmt::format("{} sites may give {} and {} pairs, more than 31 bits can count: state max_sites or max_pairs",
                      plan.max_inputs, plan.max_outputs, plan.max_pairs));
    return plan;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& indices = required_input(inputs, 0, "indices");
    require_indices(indices, grid_.dims);
    const RulebookPlan plan = this->plan(indices.shape);
    std::vector<TensorType> types{{DType::i32, Shape{rulebook_length(geometry_.stored_taps(), plan.max_pairs)}},
                                  {DType::i32, Shape{plan.max_outputs, 1 + grid_.dims}}};
    types.resize(neighbours_ ? table_output() : outputs_);
    if (neighbours_) types.push_back({DType::i32, Shape{geometry_.volume(), neighbour_rows(plan.max_outputs)}});
    return types;
  }

  std::string describe(std::span<const InputInfo> inputs) const override {
    const PerAxis &k = geometry_.kernel, &s = geometry_.stride;
    return fmt::format("up to {} sites of {}, {}x{}x{} {} s{},{},{}", inputs[0].type.shape[0], grid_.str(), k[0], k[1],
                       k[2], kind_names[static_cast<std::size_t>(geometry_.kind)], s[0], s[1], s[2]);
  }

 private:
  void read_pads(AttributeReader& reader) {
    const std::vector<std::int64_t> pads = reader.integers("pads");
    const auto dims = static_cast<std::size_t>(grid_.dims);
    if (pads.empty()) return;
    if (pads.size() != 2 * dims)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("attribute pads has {} entries for {} spatial axes", pads.size(), dims));
    for (std::size_t i = 0; i < pads.size(); ++i) {
      if (pads[i] < 0 || pads[i] > most_step)
        throw Error(ErrorKind::invalid_model, fmt::format("attribute pads has an entry {}", pads[i]));
      (i < dims ? geometry_.pad_begin : geometry_.pad_end)[3 - dims + i % dims] = pads[i];
    }
  }

  SparseGrid grid_;
  SparseGeometry geometry_;
  std::optional<std::int64_t> max_sites_, max_pairs_;
  std::size_t outputs_;
  bool neighbours_ = false;
};

/// Writes the neighbour table of a finished rulebook.
void write_table(const SparseRulebook& op, const RulebookPlan& plan, const KernelRun& run) {
  if (!plan.neighbours) return;
  const std::int64_t volume = plan.geometry.volume();
  const RulebookView book(run.outputs[0], volume, plan.geometry.kind == Kind::submanifold, false, plan.max_inputs,
                          plan.max_outputs);
  write_neighbours(book, volume, neighbour_rows(plan.max_outputs), run.out<std::int32_t>(op.table_output()));
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const auto& op = binding.op<SparseRulebook>();
  const RulebookPlan plan = op.plan(binding.shape(0));
  const auto bind = [&](auto builder, auto build) {
    const std::size_t bytes = builder.workspace_bytes();
    return bound(
        [op = binding.problem.shared_op(), plan, builder = std::move(builder), build](const KernelRun& run) {
          build(builder, run);
          write_table(static_cast<const SparseRulebook&>(*op), plan, run);
        },
        bytes);
  };
  if (plan.geometry.kind == Kind::submanifold)
    return bind(SubmanifoldBuilder(plan), [](const SubmanifoldBuilder& builder, const KernelRun& run) {
      builder.build(run.in<std::int32_t>(0), run.out<std::int32_t>(0), run.workspace, *run.pool);
    });
  return bind(RegularBuilder(plan), [](const RegularBuilder& builder, const KernelRun& run) {
    builder.build(run.in<std::int32_t>(0), run.out<std::int32_t>(0), run.out<std::int32_t>(1), run.workspace,
                  *run.pool);
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const auto& op = binding.op<SparseRulebook>();
    const RulebookPlan plan = op.plan(binding.shape(0));
    const bool submanifold = plan.geometry.kind == Kind::submanifold;
    return bound_checking(
        [plan, submanifold, table = op.table_output()](const KernelRun& run) {
          const cuda::RulebookMemory to{.rulebook = run.out<std::int32_t>(0),
                                        .out_indices = submanifold ? nullptr : run.out<std::int32_t>(1),
                                        .table = plan.neighbours ? run.out<std::int32_t>(table) : nullptr,
                                        .workspace = run.workspace.data()};
          cuda::make_rulebook(*run.cuda, plan, run.in<std::int32_t>(0), to);
        },
        cuda::rulebook_workspace_bytes(plan),
        {.grid = plan.grid, .max_sites = plan.max_outputs, .max_pairs = plan.max_pairs});
  }
  return nullptr;
}

constexpr auto kernels = on_both({.types = dtypes<Types<std::int32_t>>}, bind_cpu, bind_cuda);

}  // namespace

OpParts sparse_rulebook() { return {make_from<SparseRulebook>, kernels}; }

}  // namespace lenslet
