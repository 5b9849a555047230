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

/// A graph input or output as the model declares it. A dimension that is free is -1 and has its name in `dim_names`
/// ("N"; empty when the file gives none); a fixed one has an empty name.
struct LENSLET_API PortInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::string> dim_names;
  /// "[N,3,224,224]"
  std::string str() const;
};

struct LoadOptions {
  /// Folder external weight files are relative to; empty: the model file's own folder (none for load_bytes).
  std::filesystem::path external_data_dir;
  /// Inputs for which the file has values of its own (initializers that are graph inputs, too): these become inputs
  /// that a run must be given, the others stay constants. Error(invalid_argument) for a name that is no such input.
  std::vector<std::string> overridden = {};
};

/// How a model is to be run. Equal options on an equal model give an equal plan.
struct PlanOptions {
  /// Images at once: replaces dimension 0 of every 4-D (or free-batch) input. >= 1.
  std::int64_t batch = 1;
  /// Concrete shapes by input name, for models with free dimensions besides the batch; they override `batch`.
  std::vector<std::pair<std::string, Shape>> input_shapes;
  /// Whole inputs by name, for models whose shapes depend on what an input holds (the target of a Reshape, the axes of
  /// a reduction): the plan is made for these values. A Runner still takes each such input in its place, and refuses
  /// any other value. They set the input's shape too.
  std::vector<std::pair<std::string, Tensor>> input_values;
  /// Of a Runner: for how many further sets of input shapes it keeps a plan. A run with inputs of new shapes plans anew
  /// (milliseconds: weights are prepared once a Model), which allocates, and the set not used for longest goes. 0:
  /// other shapes than those above are refused. load_image() and plan() are of the shapes of the last run.
  std::size_t other_shapes = 0;
  /// Threads a Runner works with, the caller's included. 0: the number of cores this process may use.
  int threads = 0;
  /// "cpu", "cuda", "cuda:1" or "auto", as choose_device() reads them. On CUDA, Error(unsupported) lists every node
  /// that has no kernel there: nothing is moved to the CPU.
  std::string device = "auto";
  /// Arithmetic that kernels may use: parse_numerics("tf32") lets products round their operands, "fp16" and "bf16"
  /// store what lies between them in 16 bit, too (on CUDA; Error(unsupported) on the CPU). A step states the tolerance
  /// of what it does. Unset: fp32, but for models whose weights are mostly of a 16-bit type, which CUDA computes in
  /// that.
  std::optional<Numerics> numerics;
  /// Inputs in the order of Model::inputs(), such as are to come. Where values are stored in float16, a Runner first
  /// computes the network on them in float32, on the CPU, and refuses what float16 would not hold: Error(unsupported)
  /// names the first step that goes beyond 65504, and how far. Empty: nothing is checked. Read while the Runner is
  /// made, not kept.
  std::vector<Tensor> calibration;
  /// Force one convolution algorithm by name for every convolution: Error(unsupported) names each layer that refuses
  /// and why. "" lets the rule choose. With `conv_algorithm_where_accepted`, layers that refuse keep the rule's choice.
  std::string conv_algorithm;
  bool conv_algorithm_where_accepted = false;
  /// Algorithms of single steps, by node name ({"Conv_7", "im2col"}); they win over `conv_algorithm`, and "" gives the
  /// step back to the rule. A step that refuses is treated likewise. Error(invalid_argument) for a name that no such
  /// step has, and for an algorithm that its operator has not.
  std::vector<std::pair<std::string, std::string>> layer_algorithms;
  /// Names of graph passes to leave out (see pass_names()); Error(invalid_argument) for an unknown one.
  std::vector<std::string> disabled_passes;
  /// Keep every value in memory of its own to the end of the run: for observers that look back at a node's inputs.
  bool keep_all_values = false;
  /// CUDA: launch kernel by kernel and wait after each step, so that an error names the node whose kernel failed. Slow;
  /// the results are the same.
  bool sync_each_step = false;
  /// CPU: denormal float32 numbers count as zero in a run, as operands and as results. They are slow on some CPUs
  /// (Intel's: SqueezeNet on denormal inputs was seen to take 8 times as long; an AMD EPYC shows no difference), and
  /// networks whose values fade away meet them. Off: IEEE, as everywhere else.
  bool flush_denormals = false;
  /// CPU: the app's threads, which plan and run in place of a Runner's own; `threads` is how many tasks a loop is
  /// shared out to. Results are the same.
  std::shared_ptr<Executor> executor;
  /// Of a Runner: where its values and workspaces lie (MemoryReport::peak_bytes), on the CPU or on its CUDA device.
  /// Weights belong to the Model, and what else it needs is small: those are not asked for here.
  std::shared_ptr<Allocator> allocator;
};

/// Bytes a Runner needs, known before the first run.
struct MemoryReport {
  std::size_t weight_bytes = 0;          ///< constants as loaded, on the host
  std::size_t uploaded_bytes = 0;        ///< of these, what was copied to the CUDA device
  std::size_t prepared_bytes = 0;        ///< weights transformed for the chosen algorithms
  std::size_t activation_bytes = 0;      ///< arena for values, after reuse
  std::size_t activation_sum_bytes = 0;  ///< the same without reuse
  std::size_t lower_bound_bytes = 0;     ///< most bytes alive at one step: no plan can be smaller
  std::size_t workspace_bytes = 0;       ///< scratch of the greediest step
  std::size_t peak_bytes = 0;            ///< activations + workspace, one arena
};

/// One way of computing a step: refused with a reason, or offered at an estimated cost.
struct StepCandidate {
  std::string algorithm;
  std::string refusal;       ///< empty: offered
  std::string config;        ///< how it would be run ("tile=128x64 slices=4"); empty when there is nothing to say
  double estimated_us = 0;   ///< by the cost model, for the plan's device and threads
  double neighbours_us = 0;  ///< of the conversions around it, were its neighbours in the usual format
  std::size_t workspace_bytes = 0;
  double tolerance = 0;  ///< stated max |error| relative to the output's rms
};

/// One step of a plan, in execution order.
struct StepInfo {
  std::string name;       ///< node name
  std::string op;         ///< "Conv", "LayoutConvert" ...
  std::string algorithm;  ///< of a step with several candidates: the chosen one; else empty
  std::string config;     ///< how it is run; empty when there is nothing to say
  std::string reason;     ///< why that algorithm; which of its weights come to L2 while an earlier step runs
  AttributeList attributes;
  std::vector<std::string> inputs, outputs;  ///< value names; "" for an omitted optional input
  std::vector<Shape> output_shapes;
  std::vector<Format> output_formats;
  double flops = 0;                       ///< multiply and add counted apart
  std::size_t bytes = 0;                  ///< inputs + weights + outputs, each once
  double estimated_us = 0;                ///< by the cost model
  std::vector<StepCandidate> candidates;  ///< where there are several, in the rule's order
  std::string problem;                    ///< of such a step, in words
  std::size_t workspace_bytes = 0;
  double tolerance = 0;  ///< stated max |error| relative to the output's rms
  bool no_op = false;    ///< only renames bytes; costs nothing
};

/// A value's place in the arena.
struct PlacementInfo {
  std::string value;
  std::size_t offset = 0, bytes = 0;
  int first_step = 0, last_step = 0;
};

/// Steps [first_step, last_step] that a run on the CPU takes together, some rows of their images at a time, so that
/// what lies between them stays in the cache. With an observer they run one by one, to the same bits.
struct BandInfo {
  int first_step = 0, last_step = 0;
  std::int64_t rows = 0;  ///< of the last one's output, at a time
  std::string reason;
};

/// A node whose shape follows from what a run computes, or from one that does: it is planned in the run.
struct LateInfo {
  std::string name, op;
  std::string reason;  ///< "shape is computed from data ..."; that it follows; that the host computes it
  /// By output, where the host computes it and the plan knows its inputs' shapes: no dimension will be larger.
  std::vector<Shape> at_most;
};

struct PlanInfo {
  std::string device;       ///< "cpu", "cuda:0"
  std::string device_note;  ///< DeviceChoice::note, mostly empty
  Numerics numerics;
  int threads = 1;  ///< on the CPU; a CUDA plan computes nothing there
  std::vector<std::pair<std::string, Shape>> inputs, outputs;
  std::vector<StepInfo> steps;
  /// What is planned in the run, in its order. A Runner's own plan() has these among its steps after a run, as that run
  /// did them.
  std::vector<LateInfo> late;
  /// Of `outputs` those whose shape a run decides, by number: rank 0 here, and what it was after a run.
  std::vector<std::size_t> late_outputs;
  /// On CUDA: values, and their bytes, that are copied to the host in the middle of a run for what is planned there.
  int late_copies = 0;
  std::size_t late_copied_bytes = 0;
  std::vector<BandInfo> bands;
  std::vector<PlacementInfo> placements;
  MemoryReport memory;
  int layout_conversions = 0;  ///< LayoutConvert steps that change the order of elements
  int type_conversions = 0;    ///< Cast steps: a 16-bit precision's, where it meets float32, and the model's own
  int explicit_paddings = 0;   ///< LayoutConvert steps that put zeros around images for a kernel
};

/// Names of the graph passes in the order they run.
LENSLET_API std::vector<std::string> pass_names();
/// Names of a device's convolution algorithms, dense then sparse, in candidate order. Those of "cuda" and "cuda:1" can
/// be asked for without a device; a build without the CUDA half has none. Else errors as of PlanOptions::device.
LENSLET_API std::vector<std::string> conv_algorithm_names(const std::string& device);
/// The table of supported operators as Markdown: op, domain, versions, CPU, CUDA, notes. docs/ops.md holds it.
LENSLET_API std::string op_support_table();

class ModelImpl;

/// Cheap to copy; copies share the network. All members may be called from several threads at once. One that was moved
/// from can be assigned to; all else is an Error(invalid_argument).
class LENSLET_API Model {
 public:
  /// Reads and checks an ONNX file (IR 3 to 14, opset 7 to 28), wholly, before returning. One Error lists every node
  /// that cannot run. Limits: docs/limits.md. Kinds: io, invalid_model, unsupported, limit.
  static Model load(const std::filesystem::path& file, const LoadOptions& options = {});
  /// The same from memory. What is kept is copied: `bytes` may go afterwards. `name` is used in messages.
  static Model load_bytes(std::span<const std::byte> bytes, const LoadOptions& options = {},
                          const std::string& name = "model");

  const std::string& name() const;
  const std::vector<PortInfo>& inputs() const;
  /// What the file leaves undeclared is filled in where it follows from the inputs; else -1, and float32 for a type.
  const std::vector<PortInfo>& outputs() const;
  /// Type of the operator that the numbers of output `index` come from, behind what only moves, picks, converts, cuts
  /// off or averages them (Reshape, Slice, Cast, QuantizeLinear, Clip ...): "Softmax", "Sigmoid", "Gemm". Softmax and
  /// LogSoftmax count where a file spells them out. "" of none, as an input's, and of several.
  std::string output_op(std::size_t index) const;
  std::int64_t parameter_elems() const;  ///< of all constants but int64 ones, which hold shapes

  /// What a Runner with these options will do and need; nothing of it is allocated or prepared. Kinds: invalid_argument
  /// (shapes), invalid_model, unsupported, device.
  PlanInfo plan(const PlanOptions& options = {}) const;
  MemoryReport memory(std::int64_t batch = 1) const;
  /// The graph as text after `stage`: "load", "infer", or a name out of pass_names(); "plan" for the final steps.
  std::string dump(const std::string& stage, const PlanOptions& options = {}) const;

  explicit Model(std::shared_ptr<ModelImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<ModelImpl>& impl() const;  ///< of lenslet's own

 private:
  std::shared_ptr<ModelImpl> impl_;
};

}  // namespace lenslet
