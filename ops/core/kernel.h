#pragma once
// How operators are computed. A kernel is a row of its own: for one operator on one device it looks at a problem and
// answers with a refusal in words, or with candidates, each a configuration that it could run. Choosing among them is
// somebody else's business (choose.h), and nothing is decided in a run.
//
// Most operators have one obvious kernel a device: those are rows of data (SimpleKernel). Families with more to say
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

/// What a plan is made for.
struct Target {
  const DeviceProfile& device;
  Numerics numerics = {};
};

/// A node with everything that is known of it before the run: resolved once, kept with its step. Immutable.
class Problem {
 public:
  /// Constants are kept alive. Types of the outputs are inferred when `outputs` is empty.
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
  /// Of all inputs that are present and of all outputs, each once.
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
  /// What Kernel::bind() reads back: "tile=128x64 slices=4". Empty: there is nothing to configure.
  std::string config;
  std::vector<Format> inputs, outputs;  ///< constants and what is not 4-D: nchw
  std::size_t workspace_bytes = 0;
  double estimated_us = 0;  ///< of the kernel alone: what brings its inputs into their formats is a step of its own
  double tolerance = 0;     ///< stated bound on |y - exact| by what an element is made of (oracle::Array::scale)
  /// Output 0 may be written over one of these while it is read: same element index read before written, equal type.
  InputMask in_place = no_inputs;
  /// May these inputs, may output 0, where they are nhwc, get a pixel pitch instead? bind() sees it. On CUDA the pitch
  /// and where they begin are multiples of 16 bytes, what is left of the last 16 of a pixel may be written, too, and an
  /// image has less than 2^30 elements, pitch included.
  InputMask pitched_inputs = no_inputs;
  bool pitched_output = false;
  /// Of the constant inputs, those that run() reads. The others are in the blob, or were read by bind().
  InputMask reads = all_inputs;
  bool needs_cublas = false;
  /// CUDA: it waits for what prepare() made where that comes from memory instead of L2, so that bringing it to L2 while
  /// an earlier step runs pays (runtime/exec/early_weights.h).
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

/// Weights transformed for a kernel: plain bytes, which a file could hold. Equal keys and equal constants give equal
/// bytes, so that plans share them.
struct BlobSpec {
  std::string key;  ///< besides the kernel and the constants: everything that decides the bytes, the machine included
  std::size_t bytes = 0;
  std::size_t alignment = 64;
};

/// Everything a kernel gets in a run. Shapes and formats are final; nothing may be allocated. On CUDA the tensors'
/// data() are device addresses, 256-byte aligned but for parts of others, which the host never reads; work is queued on
/// cuda->stream and nothing waits: a launch may be recorded into a graph and repeated, so nothing may depend on the
/// moment.
struct KernelRun {
  std::span<const Tensor> inputs;  ///< empty() for omitted optional inputs, and for constants that are not read
  std::span<Tensor> outputs;
  std::span<std::byte> workspace;   ///< the candidate's workspace_bytes, 64-byte (CUDA: 256-byte) aligned, arbitrary
  const std::byte* blob = nullptr;  ///< what prepare() made, where run() works
  bool blob_made_now = false;       ///< CUDA: an earlier kernel of this run writes the blob; wait_for_previous() first
  ThreadPool* pool = nullptr;       ///< CPU kernels
  const cuda::Context* cuda = nullptr;  ///< CUDA kernels

  /// Its elements; null for an input that is left out or not read.
  template <typename T>
  const T* in(std::size_t input) const {
    return input < inputs.size() ? static_cast<const T*>(inputs[input].data()) : nullptr;
  }
  /// Its elements; null for an output that the node does not have.
  template <typename T>
  T* out(std::size_t output = 0) const {
    return output < outputs.size() ? static_cast<T*>(outputs[output].data()) : nullptr;
  }
};

class RowKernel;  // rows.h

/// A kernel bound to one problem and configuration: ready to run, any number of times, from any thread that has its
/// own tensors. Bound before the first run; run() decides nothing.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  virtual std::size_t workspace_bytes() const { return 0; }
  virtual void run(const KernelRun& run) const = 0;
  /// Of a CUDA kernel that checks what its inputs hold: what is wrong where it has set cuda->fault ("an index is
  /// outside axis 0 of [3,5]"). The run ends with Error(invalid_argument) then. Empty: it checks nothing.
  virtual std::string fault() const { return {}; }
  /// A CPU kernel that can also compute rows of output 0 apart (rows.h), or null.
  virtual const RowKernel* row_kernel() const { return nullptr; }
};

/// What bind() gets.
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
  /// The known value of an input, or null.
  const Tensor* constant(std::size_t input) const {
    return input < problem.inputs().size() && problem.inputs()[input].present ? problem.inputs()[input].constant
                                                                              : nullptr;
  }
};

/// Stateless; one static instance each.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceKind device() const = 0;
  /// Element types of its data: for the refusal and for docs/ops.md.
  virtual DTypeSet types() const = 0;
  /// The input whose type that is.
  virtual std::size_t typed_input() const { return 0; }

  virtual Offer offer(const Problem& problem, const Target& target) const = 0;
  /// Nothing: there is nothing to prepare.
  virtual std::optional<BlobSpec> blob(const Problem& problem, const Candidate& candidate) const;
  /// Fills the blob, on the host, whatever the device: whoever plans brings it there.
  virtual void prepare(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) const;
  /// `candidate` is one of those offered, or read back from a file: Error(invalid_argument) when its configuration
  /// cannot be read.
  virtual std::unique_ptr<const BoundKernel> bind(const Binding& binding) const = 0;
};

/// What a kernel prepares for a candidate, in host memory as Tensor makes it; empty(): nothing.
Tensor prepared_blob(const Kernel& kernel, const Problem& problem, const Candidate& candidate);

/// All kernels of an operator on a device, in the order in which they are asked; the last resort comes last.
std::span<const Kernel* const> kernels_of(std::string_view op, DeviceKind device);
/// By name; null when there is none.
const Kernel* find_kernel(std::string_view op, DeviceKind device, std::string_view name);
/// What the kernels of an operator take together, on any device.
DTypeSet supported_types(std::string_view op);

/// A kernel that is more than a row of data.
struct KernelRow {
  std::string_view op;
  const Kernel* kernel = nullptr;
};
/// All of those, in the order in which each operator's are asked (ops/table.cpp).
std::span<const KernelRow> family_kernels();

/// The kernel of a device as a row of data, for operators with one obvious way to compute them.
struct SimpleKernel {
  DeviceKind device = DeviceKind::cpu;
  DTypeSet types = DTypeSet::any();  ///< of input `typed_input`, and of all others that must have its type
  DTypeSet more_on_cuda = {};        ///< in on_both(): what the CUDA row takes besides
  std::size_t typed_input = 0;
  /// Formats that the 4-D inputs (which are no constants) and 4-D outputs may all have together: one candidate each.
  std::span<const Format> formats = {};
  /// The same where it depends on the problem; instead of `formats`.
  std::span<const Format> (*formats_for)(const Problem&) = nullptr;
  double tolerance = 0;
  double (*tolerance_for)(const Problem&) = nullptr;
  InputMask in_place = no_inputs;
  InputMask pitched_inputs = no_inputs;  ///< as Candidate's
  bool pitched_output = false;
  /// CUDA: all that moves and is 4-D may be in aligned_nhwc formats, of which bind() sees the pitches. Where an
  /// operator keeps channels apart (AxisMap) it needs not say so: the room is computed like channels.
  bool steps_over_room = false;
  InputMask reads = all_inputs;
  /// Why this problem (not only its types) cannot be computed, or nothing. Answers alike in builds without CUDA.
  std::optional<std::string> (*refuse)(const Problem&) = nullptr;
  /// Where candidates are not one a format (conversions of formats): instead of what `formats` to `reads` say.
  Offer (*offer)(const Problem&, const Target&) = nullptr;
  std::unique_ptr<const BoundKernel> (*bind)(const Binding&) = nullptr;
  /// As Kernel's, where run() reads more than its inputs (a table of the host's); both or neither.
  std::optional<BlobSpec> (*blob)(const Problem&, const Candidate&) = nullptr;
  void (*prepare)(const Problem&, const Candidate&, std::span<std::byte>) = nullptr;
};

/// The kernels of both devices where all that differs is how they run:
/// constexpr auto kernels = on_both({.types = dtypes<Types<float>>}, bind_run<run_cpu>, bind_run<run_cuda>);
/// and, if the device refuses what the CPU takes, in which words; `more_on_cuda`, if it takes more types.
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

/// Formats that dense kernels take which look at strides, or at nothing but elements: SimpleKernel::formats.
inline constexpr Format nchw_only[] = {formats::nchw};
inline constexpr Format nchw_or_nhwc[] = {formats::nchw, formats::nhwc};

/// For SimpleKernel::bind: a class with a constructor from a Binding.
template <typename Bound>
std::unique_ptr<const BoundKernel> bind(const Binding& binding) {
  return std::make_unique<Bound>(binding);
}

/// What a function given as SimpleKernel::bind returns when `run`, void(const KernelRun&), holds all that it resolved.
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

/// For SimpleKernel::bind: a function void(const MyOp&, const KernelRun&) that needs nothing resolved beforehand.
template <auto run_op>
std::unique_ptr<const BoundKernel> bind_run(const Binding& binding) {
  return [&]<typename T>(void (*)(const T&, const KernelRun&)) {
    return bound([op = binding.problem.shared_op()](const KernelRun& run) { run_op(static_cast<const T&>(*op), run); });
  }(run_op);
}

}  // namespace lenslet
