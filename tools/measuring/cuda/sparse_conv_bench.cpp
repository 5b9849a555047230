// Times SparseConv's kernels on the sites of generated scans, layer by layer as in SECOND's and CenterPoint's encoders,
// in the planned configuration (*) and others. plan_neighbours() and the constants of neighbour_us() are fitted to it.
//
// usage: lenslet-bench-sparse-conv [planned] [precision...]   (fp32 tf32 fp16 bf16)
//
// planned: only the planned configuration. "with a table": the rulebook's step made the neighbour table
// (share_neighbours). useful: share of the actual pairs.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/upload.h"
#include "base/thread_pool.h"
#include "lenslet/numerics.h"
#include "ops/core/op.h"
#include "ops/sparse/cuda/neighbour_plan.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"
#include "tools/scans/lidar_scan.h"

namespace lenslet::bench {
namespace {

using namespace lenslet::cuda;
using Ints = std::vector<std::int64_t>;

/// The outputs of an operator on the CPU.
std::vector<Tensor> on_cpu(const char* name, const AttributeList& attributes, const std::vector<Tensor>& inputs,
                           std::size_t outputs) {
  const std::shared_ptr<const Op> op = make_op(name, "lenslet", attributes, inputs.size(), outputs, 1);
  std::vector<InputInfo> infos;
  for (const Tensor& input : inputs) infos.push_back({true, {input.dtype(), input.shape()}, nullptr});
  const Problem problem(op, infos);
  const DeviceProfile device = cpu_profile(1);
  const Kernel& kernel = *kernels_of(name, DeviceKind::cpu).front();
  const Candidate candidate = kernel.offer(problem, {.device = device}).candidates.at(0);
  const auto bound = kernel.bind({problem, candidate, device});
  std::vector<Tensor> made;
  for (const TensorType& type : problem.outputs()) made.emplace_back(type.dtype, type.shape);
  Tensor workspace(DType::u8, {static_cast<std::int64_t>(bound->workspace_bytes())});
  ThreadPool pool(1);
  bound->run({.inputs = inputs,
              .outputs = made,
              .workspace = {static_cast<std::byte*>(workspace.data()), workspace.bytes()},
              .pool = &pool});
  return made;
}

/// The sites of a level, without unused capacity.
struct Level {
  Tensor indices;
  Ints size;
  std::int64_t sites() const { return indices.shape()[0]; }
};

Tensor rows_of(const Tensor& indices, std::int64_t count) {
  Tensor kept(DType::i32, {count, indices.shape()[1]});
  std::copy_n(indices.values<std::int32_t>().begin(), kept.elems(), kept.values<std::int32_t>().begin());
  return kept;
}

std::int64_t count_of(const Tensor& indices) {
  const auto values = indices.values<std::int32_t>();
  std::int64_t count = 0;
  while (count < indices.shape()[0] && values[static_cast<std::size_t>(4 * count)] >= 0) ++count;
  return count;
}

Level first_level(int sweeps, int steps) {
  const Tensor points = tool::lidar_scan({.steps = steps, .sweeps = sweeps});
  const Tensor indices = on_cpu("SparseVoxelize",
                                {{"range_min", std::vector<double>{0, -40, -3}},
                                 {"range_max", std::vector<double>{70.4, 40, 1}},
                                 {"voxel_size", std::vector<double>{0.05, 0.05, 0.1}}},
                                {points}, 2)[0];
  return {rows_of(indices, count_of(indices)), {41, 1600, 1408}};
}

struct Book {
  Tensor book;
  Level to;
  bool submanifold;
};

Book submanifold_book(const Level& level) {
  return {on_cpu("SparseRulebook",
                 {{"kind", std::string("submanifold")}, {"spatial_shape", level.size}, {"kernel_shape", Ints{3, 3, 3}}},
                 {level.indices}, 1)[0],
          level, true};
}

Book strided_book(const Level& level, const Ints& kernel, const Ints& stride, const Ints& pad) {
  Ints pads = pad, size;
  pads.insert(pads.end(), pad.begin(), pad.end());
  for (std::size_t a = 0; a < 3; ++a) size.push_back((level.size[a] + 2 * pad[a] - kernel[a]) / stride[a] + 1);
  const std::vector<Tensor> made = on_cpu("SparseRulebook",
                                          {{"kind", std::string("regular")},
                                           {"spatial_shape", level.size},
                                           {"kernel_shape", kernel},
                                           {"strides", stride},
                                           {"pads", pads}},
                                          {level.indices}, 2);
  return {made[0], {rows_of(made[1], count_of(made[1])), size}, false};
}

/// Other configurations than the planned one, cuts[0].
void add_tilings(std::vector<std::string>& tilings, const SparseConvProblem& p, SparseArithmetic arithmetic,
                 const DeviceProfile& device, int sites) {
  const NeighbourPlan planned = read_neighbour_plan(p, arithmetic, tilings[0]);
  const std::int64_t chunks = planned.chunks(row_bytes(p, arithmetic));
  const auto steps = static_cast<int>(p.taps * chunks);
  const std::pair<int, int> blocks[] = {{8, 2}, {8, 3}, {12, 2}, {16, 1}, {20, 1}};  // warps, resident
  for (const int width : {16, 32, 64})
    for (const int pieces : {1, 2, 4, 8})
      for (const auto& [warps, resident] : blocks)
        for (const int times : {1, 2, 4})
          for (const bool one_round : {false, true}) {
            NeighbourPlan plan = planned;
            plan.width = width;
            if (width > 16 && width >= 2 * p.filters) continue;
            plan.columns = width * times;
            if (plan.columns >= p.filters + width) continue;
            plan.pieces = pieces;
            plan.warps = warps;
            plan.stage = steps;
            if (resident * plan.filter_bytes(steps) > 150 << 10)
              plan.stage = std::max(1, (100 << 10) / resident / 2 / (plan.step_bytes() * plan.columns));
            plan.fill = static_cast<int>(std::max<std::int64_t>(1, resident * device.units / plan.tiles_n(p)));
            const int of = plan.tile_rows(), natural = ((sites + plan.fill - 1) / plan.fill + of - 1) / of * of;
            plan.rows = one_round ? std::min(natural, std::max(1, warps / times) * of) : natural;
            if (resident * (plan.shared_bytes(p.taps, chunks) + 1024) > device.shared_bytes_per_unit) continue;
            if (std::find(tilings.begin(), tilings.end(), plan.str()) == tilings.end()) tilings.push_back(plan.str());
          }
}

void measure(const Session& session, const std::string& layer, const Level& from, const Book& book, const Ints& kernel,
             std::int64_t channels, std::int64_t filters, const Numerics& numerics, bool planned) {
  const DType storage = numerics.storage;
  const Tensor w = drawn({filters, channels, kernel[0], kernel[1], kernel[2]}), bias = drawn({filters});
  const Tensor x = drawn({from.sites(), channels}).to_dtype(storage);
  const auto op = make_normalised_op(
      "SparseConv",
      {{"kind", std::string(book.submanifold ? "submanifold" : "regular")}, {"activation", std::string("relu")}}, 5);
  const std::vector<InputInfo> infos{{true, {storage, x.shape()}, nullptr},
                                     {true, {DType::i32, book.book.shape()}, nullptr},
                                     {true, {DType::f32, w.shape()}, &w},
                                     {true, {DType::i32, book.to.indices.shape()}, nullptr},
                                     {true, {DType::f32, bias.shape()}, nullptr}};
  const std::vector<TensorType> types{{storage, {book.to.sites(), filters}}};
  const Problem without_table(op, infos, types);
  const SparseConvProblem p = without_table.as<SparseConvOp>().problem(infos);
  const RulebookView view(book.book, p.taps, p.submanifold, false, p.max_inputs, p.max_outputs);
  const double useful = 2.0 * static_cast<double>(view.pair_count()) * static_cast<double>(channels * filters);

  Tensor table(DType::i32, {p.taps, neighbour_rows(p.max_outputs)});
  write_neighbours(view, p.taps, table.shape()[1], table.values<std::int32_t>().data());
  std::vector<InputInfo> infos_and_table = infos;
  infos_and_table.push_back({});
  infos_and_table.push_back({true, {DType::i32, table.shape()}, nullptr});
  const Problem with_table(op, infos_and_table, types);

  const auto uploaded = [](const Tensor& tensor) {
    return upload(std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes()));
  };
  DeviceBuffer<std::byte> x_on = uploaded(x), book_on = uploaded(book.book), bias_on = uploaded(bias),
                          sites_on = uploaded(book.to.indices), table_on = uploaded(table);
  DeviceBuffer<std::byte> y(static_cast<std::size_t>(book.to.sites() * filters) * dtype_bytes(storage));
  const Tensor inputs[] = {Tensor::view(storage, x.shape(), x_on.data()),
                           Tensor::view(DType::i32, book.book.shape(), book_on.data()),
                           Tensor(),
                           Tensor::view(DType::i32, book.to.indices.shape(), sites_on.data()),
                           Tensor::view(DType::f32, bias.shape(), bias_on.data()),
                           Tensor(),
                           Tensor::view(DType::i32, table.shape(), table_on.data())};
  Tensor outputs[] = {Tensor::view(storage, {book.to.sites(), filters}, y.data())};
  const DeviceProfile device = device_profile(0);
  const auto measure_one = [&](const std::string& name, const Problem& problem) {
    const bool tabled = &problem == &with_table;
    const Kernel& algorithm = *find_kernel("SparseConv", DeviceKind::cuda, name);
    const Offer offer = algorithm.offer(problem, {.device = device, .numerics = numerics});
    if (!offer.refusal.empty()) return;
    Candidate candidate = offer.candidates.at(0);
    const SparseArithmetic arithmetic = name.ends_with("tiles") ? SparseArithmetic::fma
                                        : storage == DType::f32 ? SparseArithmetic::tf32
                                        : storage == DType::f16 ? SparseArithmetic::fp16
                                                                : SparseArithmetic::bf16;
    std::vector<std::string> tilings{candidate.config};
    if (!planned && name.starts_with("neighbour"))
      add_tilings(tilings, p, arithmetic, device, static_cast<int>(book.to.sites()));
    std::map<std::string, DeviceBuffer<std::byte>> blobs;
    for (const std::string& tiling : tilings) {
      candidate.config = tiling;
      const BlobSpec spec = algorithm.blob(problem, candidate).value();
      DeviceBuffer<std::byte>& blob = blobs[spec.key];
      if (blob.size() == 0) {
        std::vector<std::byte> host_blob(spec.bytes);
        algorithm.prepare(problem, candidate, host_blob);
        blob = upload(host_blob);
      }
      DeviceBuffer<std::byte> workspace(candidate.workspace_bytes);
      const KernelRun run{.inputs = std::span(inputs).first(problem.inputs().size()),
                          .outputs = outputs,
                          .workspace = {workspace.data(), workspace.bytes()},
                          .blob = blob.data()};
      double us = 0;
      try {
        us = measure_us(session, *algorithm.bind({problem, candidate, device}), run);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::invalid_argument) throw;
        continue;  // not a configuration of the kernel
      }
      fmt::print("{}{},{},{},{},{},{},{},{},{:.1f},{:.1f},{:.2f},{:.1f}\n", &tiling == &tilings.front() ? "*" : "",
                 to_string(numerics), layer, tabled ? name + " with a table" : name, book.to.sites(), view.pair_count(),
                 channels, filters, tiling, us, candidate.estimated_us, useful / us / 1e6,
                 100 * useful / us / device.flops_per_us(numerics.multiply));
      std::fflush(stdout);
    }
  };
  for (const char* const name : {"neighbour_mma", "neighbour_tiles", "gathered_tiles"}) {
    measure_one(name, without_table);
    if (std::string_view(name).starts_with("neighbour")) measure_one(name, with_table);
  }
}

void run_all(std::span<const std::string_view> arguments) {
  std::vector<std::string_view> precisions(arguments.begin(), arguments.end());
  const bool planned = std::erase(precisions, "planned") > 0;
  if (precisions.empty()) precisions = {"fp32", "tf32", "fp16"};
  const Session session(0);
  fmt::print("precision,layer,kernel,outputs,pairs,channels,filters,config,us,estimated_us,useful_tflops,percent\n");
  const Ints cube{3, 3, 3}, two{2, 2, 2}, one{1, 1, 1};
  for (const auto& [sweeps, steps] : {std::pair{1, 1024}, {3, 2048}, {10, 2048}}) {
    const Level level1 = first_level(sweeps, steps);
    const Book sub1 = submanifold_book(level1), down1 = strided_book(level1, cube, two, one);
    const Book sub2 = submanifold_book(down1.to), down2 = strided_book(down1.to, cube, two, one);
    const Book sub3 = submanifold_book(down2.to), down3 = strided_book(down2.to, cube, two, {0, 1, 1});
    const Book sub4 = submanifold_book(down3.to), down4 = strided_book(down3.to, {3, 1, 1}, {2, 1, 1}, {0, 0, 0});
    for (const std::string_view precision : precisions) {
      const Numerics numerics = parse_numerics(precision);
      const auto layer = [&](const char* name, const Level& from, const Book& book, const Ints& kernel, std::int64_t c,
                             std::int64_t k) {
        measure(session, fmt::format("{} {}", level1.sites(), name), from, book, kernel, c, k, numerics, planned);
      };
      layer("input", level1, sub1, cube, 4, 16);
      layer("conv1", level1, sub1, cube, 16, 16);
      layer("down2", level1, down1, cube, 16, 32);
      layer("conv2", down1.to, sub2, cube, 32, 32);
      layer("down3", down1.to, down2, cube, 32, 64);
      layer("conv3", down2.to, sub3, cube, 64, 64);
      layer("down4", down2.to, down3, cube, 64, 64);
      layer("conv4", down3.to, sub4, cube, 64, 64);
      layer("wide4", down3.to, sub4, cube, 128, 128);  // CenterPoint's
      layer("out", down3.to, down4, {3, 1, 1}, 64, 128);
    }
  }
}

}  // namespace
}  // namespace lenslet::bench

int main(int argc, char** argv) {
  return lenslet::bench::run("lenslet-bench-sparse-conv", argc, argv, lenslet::bench::run_all);
}
