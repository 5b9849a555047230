#pragma once
// A loaded network: immutable, shared by threads.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/error.h"
#include "lenslet/export.h"
#include "lenslet/host.h"
#include "lenslet/numerics.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// A graph input or output as the model declares it. A free dimension is -1, with its name in `dim_names` ("N"; empty
/// if the file gives none or a placeholder such as "?" or "None"). Fixed dimensions have an empty name.
struct LENSLET_API PortInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::string> dim_names;
  bool unread = false;  ///< an input that no node reads (a leftover label): it may be omitted
  /// "[N,3,224,224]"
  std::string str() const;
};

struct LoadOptions {
  /// Folder that external weight files are relative to; empty: the model file's own folder (none for load_bytes).
  std::filesystem::path external_data_dir;
  /// Inputs with a default value in the file (an initializer that is also a graph input) that a run must be given
  /// instead. All others stay constants. Error(invalid_argument) for a name that is no such input.
  std::vector<std::string> overridden = {};
};

/// How a model is to be run. Equal options on an equal model give an equal plan.
struct PlanOptions {
  /// Batch size, >= 1: replaces dimension 0 of every 4-D (or free-batch) input.
  std::int64_t batch = 1;
  /// Concrete shapes by input name, for models with free dimensions besides the batch; they override `batch`. In an
  /// input not listed here, a free dimension takes the size that its name has in the listed inputs, if they agree.
  std::vector<std::pair<std::string, Shape>> input_shapes;
  /// Input values by name, for models whose shapes depend on an input's contents (the target of a Reshape, the axes of
  /// a reduction). The plan is made for these values and their shapes. A Runner still takes each such input in its
  /// position and refuses any other value.
  std::vector<std::pair<std::string, Tensor>> input_values;
  /// Number of further sets of input shapes that a Runner keeps plans for. A run with new shapes plans again, which
  /// allocates and takes milliseconds (weights are packed once per Model), and evicts the least recently used plan. 0:
  /// other shapes are refused. load_image() and plan() refer to the shapes of the last run.
  std::size_t other_shapes = 0;
  /// Number of threads of a Runner, including the caller's. 0: the number of cores this process may use.
  int threads = 0;
  /// "cpu", "cuda", "cuda:1" or "auto", as choose_device() reads them. On CUDA, Error(unsupported) lists every node
  /// that has no kernel there: nothing is moved to the CPU.
  std::string device = "auto";
  /// Arithmetic that kernels may use. With parse_numerics("tf32") products may round their operands; with "fp16" and
  /// "bf16" values between products are also stored in 16 bits. The CPU has fp32 and bf16; others are
  /// Error(unsupported) there. Each step states its tolerance. Unset: fp32; on CUDA, nodes that the file computes in
  /// float16 or bfloat16 may run in that type (the one of most of its products), and float32 nodes stay float32.
  std::optional<Numerics> numerics;
  /// Representative inputs in the order of Model::inputs(), to check float16's range. If values are stored in float16,
  /// a Runner first computes the network on these inputs in float32 on the CPU. Error(unsupported) names the first step
  /// that exceeds 65504, and its value. Empty: no check. Read during construction, not kept.
  std::vector<Tensor> calibration;
  /// Forces one algorithm by name on every convolution; Error(unsupported) names each layer that refuses and why. ""
  /// lets the rule choose. With `conv_algorithm_where_accepted`, layers that refuse keep the rule's choice.
  std::string conv_algorithm;
  bool conv_algorithm_where_accepted = false;
  /// Algorithms of single steps, by node name ({"Conv_7", "im2col"}). They override `conv_algorithm`; "" lets the rule
  /// choose. A refusal is treated as above. Error(invalid_argument) for a name that no such step has, or an algorithm
  /// that its operator does not have.
  std::vector<std::pair<std::string, std::string>> layer_algorithms;
  /// Names of graph passes to disable (see pass_names()); Error(invalid_argument) for an unknown one.
  std::vector<std::string> disabled_passes;
  /// Keeps every value in its own memory until the end of the run, for observers that read a node's inputs.
  bool keep_all_values = false;
  /// CUDA: launches kernel by kernel and waits after each step, so that an error names the failing node. Slow; same
  /// results.
  bool sync_each_step = false;
  /// CPU: flushes denormal float32 operands and results to zero during a run. Denormals are slow on some CPUs
  /// (SqueezeNet on denormal inputs took 8 times as long on an Intel CPU, no longer on an AMD EPYC). Off: IEEE
  /// arithmetic.
  bool flush_denormals = false;
  /// CPU: the application's threads, which plan and run in place of a Runner's own; loops are split into `threads`
  /// tasks. Same results.
  std::shared_ptr<Executor> executor;
  /// Allocates a Runner's values and workspaces (MemoryReport::peak_bytes), on the CPU or its CUDA device. Not used for
  /// weights, which belong to the Model, or for small bookkeeping.
  std::shared_ptr<Allocator> allocator;
};

/// Bytes a Runner needs, known before the first run.
struct MemoryReport {
  std::size_t weight_bytes = 0;          ///< constants as loaded, on the host
  std::size_t uploaded_bytes = 0;        ///< the part of these copied to the CUDA device
  std::size_t prepared_bytes = 0;        ///< weights transformed for the chosen algorithms
  std::size_t activation_bytes = 0;      ///< arena for values, after reuse
  std::size_t activation_sum_bytes = 0;  ///< the same without reuse
  std::size_t lower_bound_bytes = 0;     ///< most bytes alive at one step: no plan can be smaller
  std::size_t workspace_bytes = 0;       ///< the largest workspace of any step
  std::size_t peak_bytes = 0;            ///< activations + workspace, one arena
};

/// A candidate kernel of a step: refused with a reason, or offered with an estimated time.
struct StepCandidate {
  std::string algorithm;
  std::string refusal;       ///< empty: offered
  std::string config;        ///< its configuration ("tile=128x64 split_k=4"); empty if it has none
  double estimated_us = 0;   ///< by the cost model, for the plan's device and threads
  double neighbours_us = 0;  ///< of the format conversions around it, if its neighbours use the usual format
  std::size_t workspace_bytes = 0;
  double tolerance = 0;  ///< stated max |error| relative to an element's terms
};

/// One step of a plan, in execution order.
struct StepInfo {
  std::string name;       ///< node name
  std::string op;         ///< "Conv", "LayoutConvert" ...
  std::string algorithm;  ///< the chosen candidate; empty where there is only one
  std::string config;     ///< its configuration; empty if it has none
  /// Why that algorithm was chosen; which weights are prefetched into L2 during an earlier step. Of a step between
  /// 8-bit codes and float32: what needs float32.
  std::string reason;
  AttributeList attributes;
  std::vector<std::string> inputs, outputs;  ///< value names; "" for an omitted optional input
  std::vector<Shape> output_shapes;
  std::vector<Format> output_formats;
  double flops = 0;                       ///< multiply and add counted apart
  std::size_t bytes = 0;                  ///< inputs + weights + outputs, each counted once
  double estimated_us = 0;                ///< by the cost model
  std::vector<StepCandidate> candidates;  ///< in the rule's order; empty where there is only one
  std::string problem;                    ///< description of the problem, where there are candidates
  std::size_t workspace_bytes = 0;
  double tolerance = 0;  ///< stated max |error| relative to an element's terms
  bool no_op = false;    ///< an alias of its input: runs nothing
};

/// A value's slot in the arena.
struct PlacementInfo {
  std::string value;
  std::size_t offset = 0, bytes = 0;
  int first_step = 0, last_step = 0;
};

/// Steps [first_step, last_step] that the CPU runs together, a few image rows at a time, so that the values between
/// them stay in the cache. With an observer they run one by one, with the same bits.
struct BandInfo {
  int first_step = 0, last_step = 0;
  std::int64_t rows = 0;  ///< of the last step's output, per piece
  std::string reason;
};

/// A node planned during the run, because its shapes depend on computed data or on another such node.
struct LateInfo {
  std::string name, op;
  std::string reason;  ///< "shape is computed from data ..."; that it follows; that the host computes it
  /// Upper bounds of each output's dimensions, where the host computes the node and the plan knows its inputs' shapes.
  std::vector<Shape> at_most;
};

struct PlanInfo {
  std::string device;       ///< "cpu", "cuda:0"
  std::string device_note;  ///< DeviceChoice::note, mostly empty
  Numerics numerics;
  int threads = 1;  ///< on the CPU; unused by CUDA plans
  std::vector<std::pair<std::string, Shape>> inputs, outputs;
  std::vector<StepInfo> steps;
  /// Nodes planned during the run, in order. After a run, a Runner's plan() lists them among its steps.
  std::vector<LateInfo> late;
  /// Indices of `outputs` whose shape is known only after a run; rank 0 before that.
  std::vector<std::size_t> late_outputs;
  /// CUDA: values, and their bytes, copied to the host during a run to plan the late nodes.
  int late_copies = 0;
  std::size_t late_copied_bytes = 0;
  std::vector<BandInfo> bands;
  std::vector<PlacementInfo> placements;
  MemoryReport memory;
  int layout_conversions = 0;  ///< LayoutConvert steps that change the order of elements
  int type_conversions = 0;    ///< Cast steps: between 16-bit values and float32, and the model's own
  int explicit_paddings = 0;   ///< LayoutConvert steps that zero-pad images for a kernel
};

/// Names of the graph passes in the order they run.
LENSLET_API std::vector<std::string> pass_names();
/// Names of a device's convolution algorithms, dense then sparse, in candidate order. "cuda" and "cuda:1" need no
/// device here; a build without CUDA has none of these names. Otherwise errors as for PlanOptions::device.
LENSLET_API std::vector<std::string> conv_algorithm_names(const std::string& device);
/// The table of supported operators as Markdown: op, domain, versions, CPU, CUDA, notes. docs/ops.md holds it.
LENSLET_API std::string op_support_table();

class ModelImpl;

/// Cheap to copy; copies share the network. All members are thread-safe. A moved-from Model can only be assigned to or
/// destroyed; other calls are Error(invalid_argument).
class LENSLET_API Model {
 public:
  /// Reads and checks a whole ONNX file (IR 3 to 14, opset 7 to 28). One Error lists every node that cannot run.
  /// Limits: docs/limits.md. Kinds: io, invalid_model, unsupported, limit.
  static Model load(const std::filesystem::path& file, const LoadOptions& options = {});
  /// The same from memory. `bytes` is copied as needed and may be freed afterwards. `name` is used in messages.
  static Model load_bytes(std::span<const std::byte> bytes, const LoadOptions& options = {},
                          const std::string& name = "model");

  const std::string& name() const;
  const std::vector<PortInfo>& inputs() const;
  /// Undeclared shapes and types are inferred from the inputs where possible; else -1, and float32 for a type.
  const std::vector<PortInfo>& outputs() const;
  /// The operator that computes the values of output `index` ("Softmax", "Sigmoid", "Gemm"), looking through those that
  /// only move, select, convert, clip or average them (Reshape, Slice, Cast, QuantizeLinear, Clip ...). Softmax and
  /// LogSoftmax are recognised when spelled out in several nodes. "" if there is none (an input) or several.
  std::string output_op(std::size_t index) const;
  std::int64_t parameter_elems() const;  ///< of all constants except int64 ones, which hold shapes

  /// The plan of a Runner with these options, without allocating memory or packing weights. Kinds: invalid_argument
  /// (shapes), invalid_model, unsupported, device.
  PlanInfo plan(const PlanOptions& options = {}) const;
  MemoryReport memory(std::int64_t batch = 1) const;
  /// The graph as text after `stage`: "load", "infer", a name from pass_names(), or "plan" for the final steps.
  std::string dump(const std::string& stage, const PlanOptions& options = {}) const;

  explicit Model(std::shared_ptr<ModelImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<ModelImpl>& impl() const;  ///< internal

 private:
  std::shared_ptr<ModelImpl> impl_;
};

}  // namespace lenslet
