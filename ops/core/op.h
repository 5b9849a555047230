#pragma once
// What an operator is: parsed attributes plus shape inference, layouts, preparation and kernels.
// Operators see tensors, the thread pool and each other's contexts, never the graph.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "lenslet/attributes.h"
#include "lenslet/error.h"
#include "lenslet/tensor.h"
#include "ops/core/device_kind.h"

namespace lenslet {

namespace cuda {
struct Context;  // base/cuda/context.h
}

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// An input during shape inference.
struct InputInfo {
  bool present = false;  ///< false: an optional input that was left out
  TensorType type;
  const Tensor* constant = nullptr;  ///< its value when known before the run (layout nchw), else null
};

/// Attributes of one node being parsed. Each getter checks the kind and remembers that the name was asked for; `finish`
/// throws for attributes nobody asked for. All throw Error(invalid_model | unsupported) that names the attribute.
class AttributeReader {
 public:
  explicit AttributeReader(const AttributeList& attributes)
      : attributes_(attributes), used_(attributes.size(), false) {}
  bool has(std::string_view name);
  std::int64_t integer(std::string_view name, std::int64_t fallback);
  std::int64_t required_integer(std::string_view name);
  double real(std::string_view name, double fallback);
  std::string text(std::string_view name, std::string_view fallback);
  /// Empty when absent.
  std::vector<std::int64_t> integers(std::string_view name);
  std::vector<double> reals(std::string_view name);
  std::optional<Tensor> tensor(std::string_view name);
  /// Accept and ignore (an attribute without effect on inference).
  void ignore(std::string_view name);
  void finish() const;

 private:
  const AttributeValue* find(std::string_view name);
  const AttributeList& attributes_;
  std::vector<bool> used_;
};

/// What a node is built from: checked against the row of the op table before `make` is called.
struct NodeSpec {
  const AttributeList& attributes;
  std::int64_t opset = 0;               ///< of the node's domain
  std::size_t inputs = 0, outputs = 0;  ///< counts as written, trailing empty names cut
};

/// Everything a kernel gets. Tensors are bound; shapes and layouts are final; nothing may be allocated.
struct RunContext {
  std::span<const Tensor> inputs;  ///< empty() for omitted optional inputs
  std::span<Tensor> outputs;
  std::span<std::byte> workspace;  ///< at least workspace_bytes(), 64-byte aligned, contents arbitrary
  const void* prepared = nullptr;  ///< what prepare() returned
  ThreadPool& pool;
};

/// The same on CUDA. `inputs` and `outputs` say shape, type and layout; their data() are device addresses, 256-byte
/// aligned but for views into constants: launchers take them, the host never reads them. Work is queued on
/// context.stream and nothing waits; a launch may be recorded into a graph and repeated, so that nothing on the host
/// may depend on the moment.
struct CudaRun {
  std::span<const Tensor> inputs;  ///< empty() for omitted optional inputs
  std::span<Tensor> outputs;
  std::span<const Tensor> host_inputs;  ///< of constant inputs: the same on the host; else empty()
  std::span<std::byte> workspace;  ///< device memory, workspace_bytes() of it, 256-byte aligned, contents arbitrary
  const void* prepared = nullptr;  ///< what prepare() returned for a CUDA plan
  const cuda::Context& context;
};

/// What prepare() and workspace_bytes() get: final types and layouts, constants in their memory layout.
struct PlanContext {
  std::span<const InputInfo> inputs;
  std::span<const Format> input_layouts;
  std::span<const TensorType> outputs;
  Format layout = formats::nchw;  ///< of the outputs
  int threads = 1;
  DeviceKind device = DeviceKind::cpu;  ///< cuda: the plan's device is current
};

/// Immutable after construction; shared by graphs, plans and threads.
class Op {
 public:
  virtual ~Op() = default;

  /// The operator's name as in the op table ("Conv").
  virtual std::string_view type() const = 0;
  /// Normalised attributes: everything that decides the result, with defaults filled in, independent of the opset.
  virtual AttributeList attributes() const { return {}; }

  /// Types of the outputs. All input shapes are concrete. Throws Error(invalid_model | unsupported).
  virtual std::vector<TensorType> infer(std::span<const InputInfo> inputs) const = 0;

  /// Can the node run with its 4-D inputs and outputs in `layout`? Every op runs in nchw. Inputs that are constant,
  /// of another rank, or have the same bytes in any layout are passed as they are.
  virtual bool runs_in(Format layout, std::span<const InputInfo> inputs) const {
    (void)inputs;
    return layout == formats::nchw;
  }
  /// Output 0 holds exactly the bytes of this input (Reshape, Identity ...): no kernel needs to run. -1: no.
  virtual int alias_input() const { return -1; }
  /// Output 0 may be written over input i while it is read: same element index read before written, equal type.
  virtual bool may_overwrite(int input) const {
    (void)input;
    return false;
  }
  /// False for random or stateful ops, and for those that must stay (none so far): not folded.
  virtual bool foldable() const { return true; }

  virtual double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const {
    (void)inputs;
    (void)outputs;
    return 0;
  }
  /// Stated bound on max |y - exact| over the rms of exact, for random data of one scale; `lenslet verify` holds the op
  /// to it. The default suits elementwise ops and short sums; exact data movement meets it with 0.
  virtual double tolerance(std::span<const InputInfo> inputs) const {
    (void)inputs;
    return 2e-6;
  }
  virtual std::size_t workspace_bytes(const PlanContext&) const { return 0; }
  /// Identifies what prepare() makes besides the constant inputs: equal keys and equal constants give equal results, so
  /// that plans share them. Empty: prepare() is not called.
  virtual std::string prepare_key(const PlanContext&) const { return {}; }
  /// Weights transformed once per Model (and CUDA device: then what it holds lies there); `bytes` receives their size.
  virtual std::shared_ptr<const void> prepare(const PlanContext&, std::size_t& bytes) const {
    bytes = 0;
    return nullptr;
  }

  virtual void run_cpu(const RunContext& context) const = 0;

  /// Why a node with these inputs cannot run on CUDA (a type or form without a kernel), or nothing: run_cuda does it.
  /// Answers alike in builds without CUDA. Nodes without a kernel are refused by name when a plan is made.
  virtual std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const {
    (void)inputs;
    return "there is no CUDA kernel for it";
  }
  /// Does run_cuda read this constant input on the device? No: prepare() took over what it needs of it, or only
  /// host_inputs are read. Saves the upload.
  virtual bool reads_on_cuda(int input, const PlanContext& context) const {
    (void)input;
    (void)context;
    return true;
  }
  /// Queues the work. Overrides wrap their calls of CUDA launchers in `if constexpr (cuda_built)`.
  virtual void run_cuda(const CudaRun& run) const;
};

/// One of the normalised attributes; nothing when there is none of that name and kind.
template <typename T>
std::optional<T> attribute(const Op& op, std::string_view name) {
  for (const auto& [key, value] : op.attributes())
    if (key == name)
      if (const T* found = std::get_if<T>(&value)) return *found;
  return std::nullopt;
}
inline std::optional<std::vector<std::int64_t>> integers_attribute(const Op& op, std::string_view name) {
  return attribute<std::vector<std::int64_t>>(op, name);
}
inline std::optional<std::int64_t> integer_attribute(const Op& op, std::string_view name) {
  return attribute<std::int64_t>(op, name);
}

/// One row of the op table.
struct OpRow {
  std::string_view name;
  std::string_view domain;             ///< "" is ai.onnx; "lenslet" for steps the passes insert (never in a file)
  int min_opset = 1;                   ///< first version of the op that `make` understands (read for opset >= 7 models)
  int min_inputs = 1, max_inputs = 1;  ///< max -1: any number
  int min_outputs = 1, max_outputs = 1;
  std::shared_ptr<const Op> (*make)(const NodeSpec&) = nullptr;
  std::string_view notes;  ///< limits of our support, for the table in docs/ops.md
  bool cuda = false;       ///< there is a CUDA kernel (or none is needed); Op::refuse_cuda knows the forms it takes
};

/// All rows, in the order of the support matrix.
std::span<const OpRow> op_table();
/// Null when unknown.
const OpRow* find_op(std::string_view name, std::string_view domain);

}  // namespace lenslet
