#pragma once
// lenslet-bench-cuda: memory-bound kernels compared with a device copy of as many bytes.

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

/// Times `launch`, which reads from_bytes and writes to_bytes, alternating with a copy that moves as much. Each is a
/// CUDA graph of many calls over several buffers, which hides launch times and exceeds L2; times are medians of
/// replays. With `few_bytes` all calls use one pair of buffers, as in a small network.
Row measure(cuda::Session& session, const std::string& what, std::size_t from_bytes, std::size_t to_bytes,
            const Launch& launch, bool few_bytes = false);

/// A node with one output.
struct Node {
  std::string_view op = {};
  AttributeList attributes = {};
  std::vector<TensorType> inputs = {};
  Format format = formats::nchw;  ///< of its 4-D tensors; not used by LayoutConvert
  std::int64_t opset = 13;
  std::vector<Tensor> constants = {};  ///< known inputs after the others, on the host
};
/// measure() of the first kernel, bound as in a plan. The inputs are adjacent and aligned as a plan aligns them; the
/// gaps, less than 256 bytes each, count as read. Error(unsupported) if the kernel refuses or lacks the format.
Row measure_op(cuda::Session& session, const std::string& what, const Node& node, bool few_bytes = false);

/// One function for each source file.
std::vector<Row> elementwise(cuda::Session& session);
std::vector<Row> halves(cuda::Session& session);
std::vector<Row> movement(cuda::Session& session);
/// Loaded photos, by the host's clock and compared with uploads from pinned memory.
std::vector<Row> photos(cuda::Session& session);
std::vector<Row> reduction(cuda::Session& session);
/// On one pair of buffers, like few_bytes.
std::vector<Row> sparse(cuda::Session& session);

}  // namespace lenslet::bench
