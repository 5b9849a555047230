// Rulebooks and the moving of a scan's features. The values stay in L2 if they fit, as in a network.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/upload.h"
#include "base/tensor_bytes.h"
#include "ops/core/kernel.h"
#include "tools/measuring/cuda/memory_bench.h"
#include "tools/measuring/scan_sites.h"

namespace lenslet::bench {
namespace {

using test::Ints;

/// measure() of an operator on these inputs, which are valid: the kernel's error reports are not read.
Row measure_values(cuda::Session& session, const std::string& what, std::string_view op,
                   const AttributeList& attributes, std::vector<Tensor> inputs, std::size_t outputs) {
  std::vector<InputInfo> infos;
  std::vector<cuda::DeviceBuffer<std::byte>> values, others;
  std::size_t read = 0;
  for (Tensor& input : inputs) {
    infos.push_back({.present = true, .type = {input.dtype(), input.shape()}});
    values.push_back(cuda::upload(bytes_of(input)));
    read += input.bytes();
  }
  const Problem problem(make_op(op, "lenslet", attributes, inputs.size(), outputs, 1), infos);
  const DeviceProfile device = cuda::device_profile(session.context().device);
  const Kernel& kernel = *kernels_of(op, DeviceKind::cuda).front();
  const Candidate candidate = kernel.offer(problem, {.device = device}).candidates.at(0);
  const std::unique_ptr<const BoundKernel> bound = kernel.bind({problem, candidate, device});
  cuda::DeviceBuffer<std::byte> workspace(candidate.workspace_bytes);
  const auto bytes = [](const TensorType& type) {
    return static_cast<std::size_t>(type.shape.elems()) * dtype_bytes(type.dtype);
  };
  std::size_t written = bytes(problem.outputs()[0]);
  for (std::size_t i = 1; i < problem.outputs().size(); ++i) {
    others.emplace_back(bytes(problem.outputs()[i]));
    written += bytes(problem.outputs()[i]);
  }
  return measure(
      session, what, read, written,
      [&](const cuda::Context& context, const std::byte*, std::byte* to) {
        std::vector<Tensor> from, made;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          from.push_back(Tensor::share(inputs[i].dtype(), inputs[i].shape(), nullptr, values[i].data(), formats::nchw));
        for (std::size_t i = 0; i < problem.outputs().size(); ++i) {
          const TensorType& type = problem.outputs()[i];
          made.push_back(Tensor::view(type.dtype, type.shape, i == 0 ? to : others[i - 1].data(), formats::nchw));
        }
        bound->run(
            {.inputs = from, .outputs = made, .workspace = {workspace.data(), workspace.bytes()}, .cuda = &context});
      },
      true);
}

Tensor random_points(std::int64_t points, std::int64_t columns) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 20);
  Tensor tensor(DType::f32, {points, columns});
  for (float& value : tensor.values<float>()) value = normal(random);
  return tensor;
}

}  // namespace

std::vector<Row> sparse(cuda::Session& session) {
  std::vector<Row> rows;
  const std::vector<test::Site> sites = test::scan_sites(160'000, 1, 3);
  const auto count = static_cast<std::int64_t>(sites.size());
  const Tensor indices = test::indices_of(sites, count, 3);
  const auto rulebook = [&](const std::string& kind, const Ints& kernel, std::int64_t images, AttributeList more) {
    more.insert(more.end(),
                {{"kind", kind}, {"spatial_shape", test::scan_grid}, {"images", images}, {"kernel_shape", kernel}});
    rows.push_back(measure_values(
        session, fmt::format("{} {} of {}{}", kind, fmt::join(kernel, "x"), count, images == 1 ? "" : ", sorted"),
        "SparseRulebook", more, {indices}, kind == "submanifold" ? 1 : 2));
  };
  const AttributeList halved{
      {"strides", Ints{2, 2, 2}}, {"pads", Ints{1, 1, 1, 1, 1, 1}}, {"max_sites", std::int64_t{160'000}}};
  rulebook("submanifold", {3, 3, 3}, 1, {});
  rulebook("submanifold", {3, 3, 3}, 1, {{"max_pairs", std::int64_t{1'000'000}}});
  rulebook("submanifold", {5, 5, 5}, 1, {});
  rulebook("regular", {3, 3, 3}, 1, halved);
  rulebook("regular", {3, 3, 3}, 8, halved);
  rulebook("regular", {3, 1, 1}, 1, {{"strides", Ints{2, 1, 1}}});
  const AttributeList grid{{"spatial_shape", test::scan_grid}};
  rows.push_back(measure_values(session, fmt::format("SparseSort of {}x5", count), "SparseSort", grid,
                                {indices, random_points(count, 5)}, 2));
  Tensor points = random_points(300'000, 5);
  for (std::size_t i = 2; i < points.values<float>().size(); i += 5) points.values<float>()[i] *= 0.05F;  // a street
  rows.push_back(measure_values(session, "SparseVoxelize of 300000x5", "SparseVoxelize",
                                {{"voxel_size", std::vector<double>{0.075, 0.075, 0.2}},
                                 {"range_min", std::vector<double>{-54, -54, -5}},
                                 {"range_max", std::vector<double>{54, 54, 3}},
                                 {"max_sites", std::int64_t{300'000}}},
                                {points}, 2));
  // As at the end of an encoder: 180x180 cells of two planes.
  std::vector<test::Site> top;
  std::mt19937 random(4);
  for (std::int64_t cell = 0; cell < 2 * 180 * 180; ++cell)
    if (random() % 3 == 0) top.push_back({0, cell / (180 * 180), cell / 180 % 180, cell % 180});
  const auto last = static_cast<std::int64_t>(top.size());
  const Ints planes{2, 180, 180};
  rows.push_back(measure_values(session, fmt::format("SparseToDense of {}x128", last), "SparseToDense",
                                {{"spatial_shape", planes}}, {test::indices_of(top, last, 3), random_points(last, 128)},
                                1));
  rows.push_back(measure_values(session, "SparseFromDense 128x2x180x180", "SparseFromDense",
                                {{"max_sites", std::int64_t{2 * 180 * 180}}},
                                {Tensor(DType::f32, {1, 128, 2, 180, 180})}, 2));
  return rows;
}

}  // namespace lenslet::bench
