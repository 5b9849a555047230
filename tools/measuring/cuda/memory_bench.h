#pragma once
// lenslet-bench-cuda: kernels that are bound by memory against the device's own copy of as many bytes.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/session.h"
#include "ops/core/op.h"

namespace lenslet::bench {

struct Row {
  std::string what;
  double megabytes = 0;  ///< read + written by one call
  double microseconds = 0;
  double copy_gbs = 0, kernel_gbs = 0;
};

/// Launches one call that reads `from` and writes `to`, device addresses aligned to 256 bytes.
using Launch = std::function<void(const cuda::Context& context, const std::byte* from, std::byte* to)>;

/// Times `launch`, which reads from_bytes and writes to_bytes, in turn with a copy that moves as much. Each is recorded
/// into a CUDA graph of many calls that go round several buffers, so that neither launch time nor a working set left in
/// L2 flatters it; medians of the replays. With `few_bytes` one pair of buffers is used again and again instead: what a
/// small network sees.
Row measure(cuda::Session& session, const std::string& what, std::size_t from_bytes, std::size_t to_bytes,
            const Launch& launch, bool few_bytes = false);

/// An operator with one output.
struct Node {
  std::string_view op = {};
  AttributeList attributes = {};
  std::vector<TensorType> inputs = {};
  Format format = formats::nchw;  ///< of its 4-D tensors; a LayoutConvert has its own
  std::int64_t opset = 13;
  std::vector<Tensor> constants = {};  ///< known inputs behind the others, on the host
};
/// measure() of its first kernel, bound as a plan binds it. The inputs lie one after the other, each as aligned as a
/// plan would place it: what separates them counts as read, less than 256 bytes each. Error(unsupported) when the
/// kernel refuses, or does not offer the format.
Row measure_op(cuda::Session& session, const std::string& what, const Node& node, bool few_bytes = false);

/// One a source file.
std::vector<Row> elementwise(cuda::Session& session);
std::vector<Row> halves(cuda::Session& session);
std::vector<Row> movement(cuda::Session& session);
/// Loaded ones: by the host's clock, and against uploads out of pinned memory.
std::vector<Row> photos(cuda::Session& session);
std::vector<Row> reduction(cuda::Session& session);
/// On one pair of buffers, as few_bytes.
std::vector<Row> sparse(cuda::Session& session);

}  // namespace lenslet::bench
