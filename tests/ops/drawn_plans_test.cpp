// Candidates of kernels for nodes with random sizes, mostly powers of two, where limits are often met exactly.
// data/drawn_plans.txt has a line for each template, in which every name in capitals is a size drawn from its list for
// each node. A line for each device follows: the number of nodes that each of its kernels accepts, a checksum of all
// candidates, and one of all refusals. A changed line is intended or an error. estimates_test.cpp has fewer problems,
// in readable form. Needs no device; lines of CUDA's kernels are compared in builds with CUDA.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda_built.h"
#include "base/simd/targets.h"
#include "ops/core/kernel.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/node_text.h"

namespace lenslet::test {
namespace {

using Sizes = std::vector<std::int64_t>;

const std::map<char, Sizes> lists = {{'A', {1, 1, 2, 4, 8, 16, 64}},  // images
                                     {'C', {1, 3, 4, 8, 12, 16, 24, 32, 64, 96, 128, 256, 512}},
                                     {'D', {1, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512}},
                                     {'H', {1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112}},
                                     {'W', {1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112}},
                                     {'M', {1, 2, 3, 4, 5, 8, 9, 16, 32, 64, 128, 256, 512, 1000}},
                                     {'N', {1, 3, 4, 8, 16, 17, 64, 128, 256, 1000, 1024, 4096, 16384, 32768}},
                                     {'K', {1, 2, 7, 8, 16, 32, 64, 100, 256, 512, 2048}},
                                     {'R', {1, 2, 3, 3, 5, 7}},
                                     {'S', {1, 1, 2, 3}},
                                     {'P', {0, 1, 2, 3}},
                                     {'B', {94, 2094, 16478, 200094}},  // sizes of rulebooks
                                     {'E', {138, 1162, 20138, 200138}}};

std::string drawn(const std::string& text, std::mt19937& random) {
  std::map<char, std::int64_t> sizes;
  for (const auto& [name, list] : lists) sizes[name] = list[random() % list.size()];
  std::string node;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto letter = [&](std::size_t at) {
      return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at]));
    };
    const bool alone = (i == 0 || !letter(i - 1)) && !letter(i + 1) && i > text.find(' ');
    if (alone && sizes.contains(text[i]))
      node += std::to_string(sizes.at(text[i]));
    else
      node += text[i];
  }
  return node;
}

/// Weights whose values are never read: shared pages of zeros.
Tensor zeros(const TensorType& type) {
  constexpr std::size_t most = std::size_t{64} << 20;
  static void* const memory = std::calloc(most, 1);
  const auto bytes = static_cast<std::size_t>(type.shape.elems()) * dtype_bytes(type.dtype);
  if (bytes == 0 || bytes > most || memory == nullptr) return {};
  return Tensor::share(type.dtype, type.shape, nullptr, memory);
}

struct Sum {
  int taken = 0;
  std::uint32_t offers = sum_of(""), refusals = sum_of("");
};
using Sums = std::map<std::string_view, Sum>;

/// `known`: for inputs after the first that the template does not mark as constant.
TextNode with_weights(TextNode node, bool known) {
  for (std::size_t i = 1; i < node.inputs.size(); ++i)
    if (known && node.inputs[i].present && node.inputs[i].type.dtype != DType::i32 && node.constants[i].empty())
      node.constants[i] = zeros(node.inputs[i].type);
  node.know();
  return node;
}

/// Adds the candidates of a device's kernels for the node; activations are stored as in the precision.
void add_offers(Sums& sums, const TextNode& node, const Target& target) {
  const auto op = op_of(node);
  std::vector<InputInfo> inputs = node.inputs;
  std::vector<TensorType> outputs = infer_types(*op, inputs);
  const auto store = [&](TensorType& type) {
    if (type.dtype == DType::f32) type.dtype = target.numerics.storage;
  };
  for (InputInfo& input : inputs)
    if (input.constant == nullptr) store(input.type);
  for (TensorType& output : outputs) store(output);
  const Problem problem(op, inputs, outputs);
  for (const Kernel* const kernel : kernels_of(op->type(), target.device.kind)) {
    Sum& sum = sums[kernel->name()];
    const Offer offer = kernel->offer(problem, target);
    sum.taken += offer.candidates.empty() ? 0 : 1;
    sum.refusals = sum_of(offer.refusal + "\n", sum.refusals);
    for (const Candidate& c : offer.candidates) {
      sum.offers = sum_of(fmt::format("{} {} {:.6g} {:.5g} {:x} {:x} {} {:x} {} {}\n", c.config, c.workspace_bytes,
                                      c.estimated_us, c.tolerance, c.in_place, c.pitched_inputs, c.pitched_output,
                                      c.reads, c.needs_cublas, c.waits_for_weights),
                          sum.offers);
      if (const auto blob = kernel->blob(problem, c))
        sum.offers = sum_of(fmt::format("{} {}\n", blob->bytes, blob->key), sum.offers);
    }
  }
}

std::string line_of(const char* device, const Sums& sums) {
  std::string line = fmt::format("  {}:", device);
  for (const auto& [name, sum] : sums)
    line += sum.taken == 0 ? fmt::format(" {} {:x}", name, sum.refusals)
                           : fmt::format(" {} {} {:x} {:x}", name, sum.taken, sum.offers, sum.refusals);
  return line + "\n";
}

/// Builds without CUDA bind only its convolutions (ops/core/not_built.h), and have no gemm_cute.
bool has_cuda(const std::string& text) {
  const std::string op = text.substr(0, text.find('/'));
  return cuda_built || (op.find("Conv") != op.npos && op != "DeformConv");
}

std::string sums_of(const std::string& text, int draws) {
  std::mt19937 random(1);
  Sums cpu, cuda;
  DeviceProfile gpu = reference_gpu();
  gpu.cublas_reason.clear();
  DeviceProfile round = gpu;  // a power of two of multiprocessors
  round.units = 128;
  int asked = 0;
  for (int i = 0; i < draws; ++i) {
    const TextNode node = parse_node(drawn(text, random));
    try {
      infer_types(*op_of(node), node.inputs);
    } catch (const Error&) {
      continue;  // a window larger than its image
    }
    ++asked;
    for (const bool known : {true, false}) {
      const TextNode weighted = with_weights(node, known);
      for (const int threads : {1, 6}) {
        DeviceProfile device = cpu_profile(threads);
        device.l2_bytes = 1 << 20;
        add_offers(cpu, weighted, {.device = device});
      }
      for (const char* const precision : {"fp32", "tf32", "fp16"})
        for (const DeviceProfile& device : {gpu, round})
          if (has_cuda(text)) add_offers(cuda, weighted, {.device = device, .numerics = parse_numerics(precision)});
    }
  }
  CHECK(2 * asked >= draws);
  return line_of("cpu", cpu) + (has_cuda(text) ? line_of("cuda", cuda) : "");
}

enum class Family { conv, product, other };
Family family_of(const std::string& text) {
  const auto is = [&](std::string_view word) { return text.substr(0, text.find('/')).find(word) != text.npos; };
  return is("Conv") ? Family::conv : is("MatMul") || is("Gemm") || is("Einsum") ? Family::product : Family::other;
}

/// The CPU is assumed to have AVX2 and 1 MiB of L2, as in estimates_test.cpp.
void check_templates(Family family, int count) {
  for_each_target(HWY_TARGETS & HWY_AVX2, [&] {
    CHECK(check_said("drawn_plans.txt", cuda_built, [&](const std::string& text, std::string&) {
            return family_of(text) == family ? sums_of(text, family == Family::conv ? 50 : 250) : "";
          }) == count);
  });
}

}  // namespace

TEST_CASE("conv/plans_for_drawn_sizes_are_those_that_were_made") { check_templates(Family::conv, 17); }
TEST_CASE("gemm/plans_for_drawn_sizes_are_those_that_were_made") { check_templates(Family::product, 8); }
TEST_CASE("plans_for_drawn_sizes_are_those_that_were_made") { check_templates(Family::other, 33); }

}  // namespace lenslet::test
