#pragma once
// How operators are computed. A kernel takes a problem of one operator on one device and answers with a refusal in
// words or with candidates: configurations that it can run. choose.h chooses among them; a run decides nothing.
//
// Most operators have one kernel per device, which is a row of data (SimpleKernel). Families with more to decide
// (convolutions, products) derive from Kernel.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_profile.h"
#include "base/dtypes.h"
#include "base/format.h"
#include "base/tensor_bytes.h"
#include "base/thread_pool.h"
#include "ops/core/needs_value.h"
#include "ops/core/op.h"

namespace lenslet {

namespace cuda {
struct Context;  // base/cuda/context.h
}

/// The device and options that a plan is made for.
struct Target {
  const DeviceProfile& device;
  Numerics numerics = {};
};

/// A node with all that is known before the run: resolved once, kept with its step. Immutable.
class Problem {
 public:
  /// Keeps constants alive. Infers the output types when `outputs` is empty.
  Problem(std::shared_ptr<const Op> op, std::span<const InputInfo> inputs, std::vector<TensorType> outputs = {});
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const Op& op() const { return *op_; }
  const std::shared_ptr<const Op>& shared_op() const { return op_; }
  template <typename T>
  const T& as() const {
    return static_cast<const T&>(*op_);
  }
  std::span<const InputInfo> inputs() const { return inputs_; }
  std::span<const TensorType> outputs() const { return outputs_; }
  const Shape& shape(std::size_t input) const { return inputs_[input].type.shape; }
  const Shape& output_shape(std::size_t output = 0) const { return outputs_[output].shape; }
  /// Bytes of all present inputs and all outputs, each counted once.
  double bytes() const;

 private:
  std::shared_ptr<const Op> op_;
  std::vector<InputInfo> inputs_;
  std::vector<TensorType> outputs_;
  std::vector<Tensor> constants_;
};

inline constexpr InputMask no_inputs = 0, all_inputs = ~InputMask{0};

/// One way in which a kernel would compute a problem.
struct Candidate {
  /// The configuration that Kernel::bind() parses: "tile=128x64 split_k=4". Empty: nothing to configure.
  std::string config;
  std::vector<Format> inputs, outputs;  ///< constants and what is not 4-D: nchw
  std::size_t workspace_bytes = 0;
  double estimated_us = 0;  ///< of the kernel alone: what brings its inputs into their formats is a step of its own
  double tolerance = 0;     ///< stated bound on |y - exact| by what an element is made of (oracle::Array::scale)
  /// Inputs that output 0 may overwrite: each element is read before the same index is written, types are equal.
  InputMask in_place = no_inputs;
  /// Inputs that may have a pixel pitch where they are nhwc (and output 0 likewise); bind() gets the pitch. On CUDA
  /// pitch and base address are multiples of 16 bytes, the padding up to the next 16 bytes may be written, and an image
  /// has less than 2^30 elements, pitch included.
  InputMask pitched_inputs = no_inputs;
  bool pitched_output = false;
  /// Constant inputs that run() reads. The others are in the blob or were read by bind().
  InputMask reads = all_inputs;
  bool needs_cublas = false;
  /// CUDA: the kernel stalls on prepared weights that come from memory instead of L2, so prefetching them during an
  /// earlier step pays (runtime/exec/early_weights.h).
  bool waits_for_weights = false;
};

struct Offer {
  std::string refusal;  ///< why this kernel cannot compute the problem; empty: it can
  std::vector<Candidate> candidates;

  Offer() = default;
  Offer(Candidate only) { candidates.push_back(std::move(only)); }
  static Offer refuse(std::string why) {
    Offer offer;
    offer.refusal = std::move(why);
    return offer;
  }
};

/// Weights transformed for a kernel: plain bytes that a file can hold. Plans share blobs: equal keys and equal
/// constants give equal bytes.
struct BlobSpec {
  std::string key;  ///< besides the kernel and the constants: everything that decides the bytes, the machine included
  std::size_t bytes = 0;
  std::size_t alignment = 64;
};

/// The arguments of a run. Shapes and formats are final; nothing may be allocated. On CUDA data() are device addresses
/// that the host never reads, 256-byte aligned except in views of other tensors. Work is queued on cuda->stream and
/// never waited for: it may be captured into a graph and replayed.
struct KernelRun {
  std::span<const Tensor> inputs;  ///< empty() for omitted optional inputs, and for constants that are not read
  std::span<Tensor> outputs;
  std::span<std::byte> workspace;   ///< the candidate's workspace_bytes, 64-byte (CUDA: 256-byte) aligned, arbitrary
  const std::byte* blob = nullptr;  ///< what prepare() made, where run() works
  bool blob_made_now = false;       ///< CUDA: an earlier kernel of this run writes the blob; wait_for_previous() first
  ThreadPool* pool = nullptr;       ///< CPU kernels
  const cuda::Context* cuda = nullptr;  ///< CUDA kernels

  /// Elements of an input; null when it is left out or not read.
  template <typename T>
  const T* in(std::size_t input) const {
    return input < inputs.size() ? static_cast<const T*>(inputs[input].data()) : nullptr;
  }
  /// Elements of an output; null when the node lacks it.
  template <typename T>
  T* out(std::size_t output = 0) const {
    return output < outputs.size() ? static_cast<T*>(outputs[output].data()) : nullptr;
  }
};

class RowKernel;  // row_kernel.h

/// A kernel bound to one problem and configuration before the first run. run() may be called any number of times, from
/// any thread with its own tensors.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  virtual std::size_t workspace_bytes() const { return 0; }
  virtual void run(const KernelRun& run) const = 0;
  /// The message when a CUDA kernel that checks its inputs has set cuda->fault ("an index is outside axis 0 of [3,5]").
  /// The run then ends with Error(invalid_argument). Empty: the kernel checks nothing.
  virtual std::string fault() const { return {}; }
  /// The interface of CPU kernels that can compute single rows of output 0 (row_kernel.h), or null.
  virtual const RowKernel* row_kernel() const { return nullptr; }
};

/// The arguments of bind().
struct Binding {
  const Problem& problem;
  const Candidate& candidate;
  const DeviceProfile& device;

  template <typename T>
  const T& op() const {
    return problem.as<T>();
  }
  const Shape& shape(std::size_t input) const { return problem.shape(input); }
  const Format& format(std::size_t input) const { return candidate.inputs[input]; }
  const Shape& output_shape(std::size_t output = 0) const { return problem.output_shape(output); }
  const Format& output_format(std::size_t output = 0) const { return candidate.outputs[output]; }
  int threads() const { return device.units; }  ///< on the CPU
  /// The constant value of an input, or null.
  const Tensor* constant(std::size_t input) const {
    return input < problem.inputs().size() && problem.inputs()[input].present ? problem.inputs()[input].constant
                                                                              : nullptr;
  }
};

/// Stateless; one static instance per kernel.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceKind device() const = 0;
  /// Element types of its data, for refusals and docs/ops.md.
  virtual DTypeSet types() const = 0;
  /// The input that has this type.
  virtual std::size_t typed_input() const { return 0; }

  virtual Offer offer(const Problem& problem, const Target& target) const = 0;
  /// offer()'s candidates, then those of its other configurations, by the estimate that chooses among them (mostly on
  /// reference_gpu()). For tuning and for planners of whole graphs; empty where it refuses.
  virtual std::vector<Candidate> all_candidates(const Problem& problem, const Target& target) const {
    return offer(problem, target).candidates;
  }
  /// The prepared weights that a candidate needs, or nothing.
  virtual std::optional<BlobSpec> blob(const Problem& problem, const Candidate& candidate) const;
  /// Fills the blob in host memory, for either device; the planner uploads it.
  virtual void prepare(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) const;
  /// `candidate` was offered by this kernel or read from a file. Error(invalid_argument) when its configuration cannot
  /// be parsed.
  virtual std::unique_ptr<const BoundKernel> bind(const Binding& binding) const = 0;
};

/// The prepared weights of a candidate in host memory; empty() when it has none.
Tensor prepared_blob(const Kernel& kernel, const Problem& problem, const Candidate& candidate);

/// All kernels of an operator on a device, in the order in which they are asked; the fallback comes last.
std::span<const Kernel* const> kernels_of(std::string_view op, DeviceKind device);
/// The name of a kernel that had another one before 0.1.0, which is taken until 0.2; else `name`.
std::string_view current_kernel_name(std::string_view name);
/// By name; null when there is none.
const Kernel* find_kernel(std::string_view op, DeviceKind device, std::string_view name);
/// The union of the types of all kernels of the operator, on any device.
DTypeSet supported_types(std::string_view op);

/// A kernel that is not a SimpleKernel.
struct KernelRow {
  std::string_view op;
  const Kernel* kernel = nullptr;
};
/// All of these, in the order in which each operator asks them (ops/table.cpp).
std::span<const KernelRow> family_kernels();

/// A kernel as a row of data, for operators with one kernel per device.
struct SimpleKernel {
  DeviceKind device = DeviceKind::cpu;
  DTypeSet types = DTypeSet::any();  ///< of input `typed_input`, and of all others that must have its type
  DTypeSet more_on_cuda = {};        ///< in on_both(): what the CUDA row takes besides
  std::size_t typed_input = 0;
  /// Formats that all 4-D inputs (except constants) and 4-D outputs share: one candidate each.
  std::span<const Format> formats = {};
  /// The same when it depends on the problem; used instead of `formats`.
  std::span<const Format> (*formats_for)(const Problem&) = nullptr;
  double tolerance = 0;
  double (*tolerance_for)(const Problem&) = nullptr;
  InputMask in_place = no_inputs;
  InputMask pitched_inputs = no_inputs;  ///< as Candidate's
  bool pitched_output = false;
  /// CUDA: all 4-D activations may be aligned_nhwc; bind() gets the pitches. Channelwise operators (AxisMap) need not
  /// set it: they compute padding channels like channels.
  bool skips_padding = false;
  InputMask reads = all_inputs;
  InputMask (*reads_for)(const Problem&) = nullptr;  ///< the same when it depends on the problem
  /// The reason to refuse this problem beyond its types, or nothing. The same answer in builds without CUDA.
  std::optional<std::string> (*refuse)(const Problem&) = nullptr;
  /// Replaces `formats` to `reads` where candidates are not one per format (conversions of formats).
  Offer (*offer)(const Problem&, const Target&) = nullptr;
  std::unique_ptr<const BoundKernel> (*bind)(const Binding&) = nullptr;
  /// As in Kernel, where run() needs prepared data (a host table). Set both or neither.
  std::optional<BlobSpec> (*blob)(const Problem&, const Candidate&) = nullptr;
  void (*prepare)(const Problem&, const Candidate&, std::span<std::byte>) = nullptr;
};

/// The kernels of both devices when only the run function differs:
///   constexpr auto kernels = on_both({.types = dtypes<Types<float>>}, bind_run<run_cpu>, bind_run<run_cuda>);
/// Optional: a refusal for CUDA alone, and `more_on_cuda`, its additional types.
constexpr std::array<SimpleKernel, 2> on_both(SimpleKernel common, decltype(SimpleKernel::bind) cpu,
                                              decltype(SimpleKernel::bind) cuda,
                                              decltype(SimpleKernel::refuse) refuse_cuda = nullptr) {
  SimpleKernel other = common;
  common.device = DeviceKind::cpu;
  common.bind = cpu;
  other.device = DeviceKind::cuda;
  other.bind = cuda;
  other.types = common.types.with(common.more_on_cuda);
  if (refuse_cuda != nullptr) other.refuse = refuse_cuda;
  return {common, other};
}

/// SimpleKernel::formats of kernels that follow strides, or that only look at elements.
inline constexpr Format nchw_only[] = {formats::nchw};
inline constexpr Format nchw_or_nhwc[] = {formats::nchw, formats::nhwc};

/// For SimpleKernel::bind: a class with a constructor from a Binding.
template <typename Bound>
std::unique_ptr<const BoundKernel> bind(const Binding& binding) {
  return std::make_unique<Bound>(binding);
}

/// For SimpleKernel::bind: a bound kernel from `run`, void(const KernelRun&), which holds what was resolved.
template <typename Run>
std::unique_ptr<const BoundKernel> bound(Run run, std::size_t workspace_bytes = 0) {
  class Bound final : public BoundKernel {
   public:
    Bound(Run run, std::size_t bytes) : run_(std::move(run)), bytes_(bytes) {}
    std::size_t workspace_bytes() const override { return bytes_; }
    void run(const KernelRun& run) const override { run_(run); }

   private:
    Run run_;
    std::size_t bytes_;
  };
  return std::make_unique<Bound>(std::move(run), workspace_bytes);
}

/// For SimpleKernel::bind: a function void(const MyOp&, const KernelRun&) with nothing to resolve beforehand.
template <auto run_op>
std::unique_ptr<const BoundKernel> bind_run(const Binding& binding) {
  return [&]<typename T>(void (*)(const T&, const KernelRun&)) {
    return bound([op = binding.problem.shared_op()](const KernelRun& run) { run_op(static_cast<const T&>(*op), run); });
  }(run_op);
}

}  // namespace lenslet
