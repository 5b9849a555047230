// Times SparseConv's kernels on the sites of generated scans, layer by layer as SECOND's and CenterPoint's encoders
// have them, cut as planned (*) and in other ways: what plan_gathered() and the constants of gathered_us() are fitted
// to.
//
// usage: lenslet-bench-sparse-conv [precision...]   (fp32 tf32 fp16 bf16)
//
// useful: of the pairs that there are. pairs_us: of the kernel that cuts the lists of pairs, which is part of us.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/upload.h"
#include "base/thread_pool.h"
#include "lenslet/numerics.h"
#include "ops/core/op.h"
#include "ops/sparse/cuda/block_pairs.h"
#include "tests/cuda/cut_timer.h"
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

/// Sites of a level, without room behind them.
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

Level first_level(int sweeps) {
  const Tensor points = tool::lidar_scan({.sweeps = sweeps});
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

void measure(const Session& session, const std::string& layer, const Level& from, const Book& book, const Ints& kernel,
             std::int64_t channels, std::int64_t filters, const Numerics& numerics) {
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
  const Problem problem(op, infos, {{storage, {book.to.sites(), filters}}});
  const SparseConvProblem p = problem.as<SparseConvOp>().problem(infos);
  const RulebookView view(book.book, p.taps, p.submanifold, false, p.max_inputs, p.max_outputs);
  const double useful = 2.0 * static_cast<double>(view.pair_count()) * static_cast<double>(channels * filters);

  const auto uploaded = [](const Tensor& tensor) {
    return upload(std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes()));
  };
  DeviceBuffer<std::byte> x_on = uploaded(x), book_on = uploaded(book.book), bias_on = uploaded(bias),
                          sites_on = uploaded(book.to.indices);
  DeviceBuffer<std::byte> y(static_cast<std::size_t>(book.to.sites() * filters) * dtype_bytes(storage));
  const Tensor inputs[] = {Tensor::view(storage, x.shape(), x_on.data()),
                           Tensor::view(DType::i32, book.book.shape(), book_on.data()), Tensor(),
                           Tensor::view(DType::i32, book.to.indices.shape(), sites_on.data()),
                           Tensor::view(DType::f32, bias.shape(), bias_on.data())};
  Tensor outputs[] = {Tensor::view(storage, {book.to.sites(), filters}, y.data())};
  const DeviceProfile device = device_profile(0);
  for (const char* const name : {"gathered_mma", "gathered_tiles"}) {
    const Kernel& algorithm = *find_kernel("SparseConv", DeviceKind::cuda, name);
    const Offer offer = algorithm.offer(problem, {.device = device, .numerics = numerics});
    if (!offer.refusal.empty()) continue;
    Candidate candidate = offer.candidates.at(0);
    std::vector<std::byte> host_blob(algorithm.blob(problem, candidate).value().bytes);
    algorithm.prepare(problem, candidate, host_blob);
    const DeviceBuffer<std::byte> blob = upload(host_blob);
    const SparseArithmetic arithmetic = std::string_view(name) == "gathered_tiles" ? SparseArithmetic::fma
                                        : storage == DType::f32                    ? SparseArithmetic::tf32
                                        : storage == DType::f16                    ? SparseArithmetic::fp16
                                                                                   : SparseArithmetic::bf16;
    const GatheredPlan planned = read_gathered_plan(p, arithmetic, candidate.config);
    std::vector<GatheredPlan> cuts{planned};
    const auto add = [&](auto change) {
      GatheredPlan plan = planned;
      change(plan);
      if (plan.shared_bytes(p.taps, gathered_units(p, arithmetic)) <= device.shared_bytes_per_block &&
          std::none_of(cuts.begin(), cuts.end(), [&](const GatheredPlan& cut) { return cut.str() == plan.str(); }))
        cuts.push_back(plan);
    };
    // Blocks of 128, 64 and 32, and slices.
    const int sites = static_cast<int>(book.to.sites());
    for (const int rows : {128, 96, 64, 48, 32})
      add([&](GatheredPlan& plan) { plan.rows = std::max(rows, 64), plan.fill = (sites + rows - 1) / rows; });
    for (const int slices : {1, 2, 4})
      for (const int fill : {planned.fill, 2 * planned.fill})
        add([&](GatheredPlan& plan) { plan.slices = slices, plan.fill = fill; });
    for (const int units : {1, 2, 4})
      for (const int ahead : {1, 2}) add([&](GatheredPlan& plan) { plan.units = units, plan.ahead = ahead; });
    // Larger steps, as fewer blocks of a multiprocessor leave room for.
    for (const int eighths : {6, 4})
      add([&](GatheredPlan& plan) { plan.units = 4, plan.fill = planned.fill * eighths / 8; });
    for (const GatheredPlan& plan : cuts) {
      candidate.config = plan.str();
      candidate.workspace_bytes = plan.workspace_bytes(p);
      DeviceBuffer<std::byte> workspace(candidate.workspace_bytes);
      const KernelRun run{.inputs = inputs,
                          .outputs = outputs,
                          .workspace = {workspace.data(), workspace.bytes()},
                          .blob = blob.data()};
      DeviceRulebook rulebook(p, book.book.shape()[0]);
      rulebook.values = reinterpret_cast<const int*>(book_on.data());
      const auto pairs = bound([&](const KernelRun& of) {
        find_block_pairs(*of.cuda, rulebook, plan, static_cast<int>(plan.blocks(p)), plan.counters(plan.tiles_n(p)),
                         reinterpret_cast<int*>(workspace.data()));
      });
      const double us = measure_us(session, *algorithm.bind({problem, candidate, device}), run);
      fmt::print("{}{},{},{},{},{},{},{},{},{},{},{},{},{:.1f},{:.1f},{:.1f},{:.2f},{:.1f}\n",
                 &plan == &cuts.front() ? "*" : "", to_string(numerics), layer, name, book.to.sites(),
                 view.pair_count(), channels, filters, plan.rows_of(p.max_outputs),
                 plan.slices_of(p.max_outputs, p.taps), plan.units, plan.ahead, plan.fill, us,
                 measure_us(session, *pairs, run), candidate.estimated_us, useful / us / 1e6,
                 100 * useful / us / device.flops_per_us(numerics.multiply));
      std::fflush(stdout);
    }
  }
}

int main(const std::vector<std::string>& precisions) {
  const Session session(0);
  fmt::print(
      "precision,layer,kernel,outputs,pairs,channels,filters,rows,slices,units,ahead,fill,us,pairs_us,estimated_us,"
      "useful_"
      "tflops,percent\n");
  const Ints cube{3, 3, 3}, two{2, 2, 2}, one{1, 1, 1};
  for (const int sweeps : {1, 3, 10}) {
    const Level level1 = first_level(sweeps);
    const Book sub1 = submanifold_book(level1), down1 = strided_book(level1, cube, two, one);
    const Book sub2 = submanifold_book(down1.to), down2 = strided_book(down1.to, cube, two, one);
    const Book sub3 = submanifold_book(down2.to), down3 = strided_book(down2.to, cube, two, {0, 1, 1});
    const Book sub4 = submanifold_book(down3.to), down4 = strided_book(down3.to, {3, 1, 1}, {2, 1, 1}, {0, 0, 0});
    for (const std::string& precision : precisions) {
      const Numerics numerics = parse_numerics(precision);
      const auto layer = [&](const char* name, const Level& from, const Book& book, const Ints& kernel, std::int64_t c,
                             std::int64_t k) {
        measure(session, fmt::format("{}x {}", sweeps, name), from, book, kernel, c, k, numerics);
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
  return 0;
}

}  // namespace
}  // namespace lenslet::bench

int main(int argc, char** argv) {
  try {
    std::vector<std::string> precisions(argv + 1, argv + argc);
    if (precisions.empty()) precisions = {"fp32", "tf32", "fp16"};
    return lenslet::bench::main(precisions);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lenslet-bench-sparse-conv: %s\n", error.what());
    return 1;
  }
}
