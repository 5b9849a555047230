#pragma once
// Checks layers: each step of a network, or a single layer, against an independent double-precision reference. A
// separate package component without any test framework: find_package(lenslet COMPONENTS check), target lenslet::check
// (lenslet::check_static with the static library).
//
//   const auto model = lenslet::Model::load("net.onnx");
//   for (const auto& layer : lenslet::check_layers(model, {.device = "cpu"}))
//     CHECK_MESSAGE(layer.passed(), layer.str());
//
// docs/verify.md says what is checked and how errors are measured.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// One result: a step computed by one kernel, a network output, or a kernel's refusal. Owns all its data.
struct LayerCheck {
  enum class Kind : std::uint8_t {
    layer,   ///< a step of the plan, checked on the inputs that the run gave it
    output,  ///< an output of the network, checked against the network as loaded from the file
    refusal  ///< a kernel does not support this step: nothing was run
  };
  Kind kind = Kind::layer;
  std::string name;       ///< of the node or output, exactly as in the file, control characters included
  std::string op;         ///< "Conv"; empty for an output
  std::string algorithm;  ///< the kernel; empty where the operator has only one
  std::string config;     ///< its configuration ("tile=128x64"), as StepInfo::config
  std::string device;     ///< "cpu", "cuda:0"
  std::string precision;  ///< "fp32", "tf32", "fp16", "bf16": the plan's arithmetic
  std::string forced;     ///< the algorithm forced on all convolutions; empty: chosen by the rule
  std::vector<Shape> input_shapes, output_shapes;  ///< N, C, H, W; [] for an omitted input

  /// The largest error of any element; infinite where only one of the two is NaN or the sizes differ. For a layer it is
  /// relative to the element's scale (the magnitude of the terms it sums), less what rounding to 16 bits explains; for
  /// integers and bool any difference is infinite. For an output it is |got - exact| at the element closest to, or
  /// furthest beyond, its tolerance.
  double error = 0;
  double tolerance = 0;           ///< stated by the kernel, or derived for an output; same measure as `error`
  std::size_t worst_output = 0;   ///< index of the step's output with this error
  std::size_t worst_element = 0;  ///< index of the element there, row-major in the order of the shape
  double got = 0, exact = 0;      ///< its value, and the reference's
  std::size_t not_finite = 0;     ///< elements that are infinite or NaN in the reference as well
  std::size_t made_nan = 0;       ///< elements made NaN by a neighbour in the same Winograd or FFT tile; not an error
  std::size_t beyond_range = 0;   ///< finite elements that overflow to infinity in 16-bit storage
  double largest = 0;             ///< the largest magnitude of these

  std::string refusal;  ///< why the kernel refuses
  std::string skipped;  ///< why it was not compared (no reference for the operator); empty: it was

  double ms = 0;  ///< median time of the step alone, in milliseconds; 0 if not measured
  int runs = 0;   ///< number of timed runs

  /// Whether it was compared with a reference.
  bool judged() const { return kind != Kind::refusal && skipped.empty(); }
  /// False if it was compared and its error exceeds the tolerance.
  bool passed() const { return !judged() || (error <= tolerance && beyond_range == 0); }
  /// The measure of error and tolerance: "of the element's terms" or "absolute".
  std::string_view measure() const { return kind == Kind::output ? "absolute" : "of the element's terms"; }
  /// "ok" or "EXCEEDED" with remarks, or why it was not compared.
  std::string verdict() const;
  /// One-line summary: "conv1 (Conv by winograd_f4 on cpu, [1,3,8,8] -> [1,4,8,8]): error 3.1e-07 of the element's
  /// terms, 2.4e-06 allowed: ok".
  std::string str() const;
};

/// Options of check_layers().
struct CheckOptions {
  std::string device = {};     ///< "cpu", "cuda", "cuda:1", "auto"; empty: as in `plan`, whose default is "auto"
  std::string precision = {};  ///< "fp32", "bf16", and on CUDA "tf32", "fp16"; empty: as in `plan`
  /// Convolution algorithm. Empty: as in `plan`, by default the rule's choice. A name from conv_algorithm_names() is
  /// forced on all convolutions; Error(unsupported) names each layer that refuses (PlanOptions::conv_algorithm). "all":
  /// each algorithm in turn where it is accepted; each refusal has a row.
  std::string algorithm = {};
  /// In the order of Model::inputs(), in the file's types; floats of another width are converted. The plan takes their
  /// shapes. Shared, not copied. read_npy() (lenslet/tensor_file.h) reads one from a file. Empty: random inputs from
  /// `seed`, the same on every machine: floats uniform in [-1, 1), integers 0 or 1, bytes of any value.
  std::vector<Tensor> inputs = {};
  std::uint64_t seed = 1;
  /// Also compare the outputs with the whole network in double precision. This finds errors that no single layer shows,
  /// such as a wrong graph rewrite. It computes the network three more times, slowly.
  bool outputs = true;
  /// Seconds to spend on timing the layers of each algorithm, with at least 3 runs; 0: no timing.
  double seconds = 0;
  /// All other planning options: batch, shapes, threads, disabled passes ...
  PlanOptions plan = {};
  /// Called in the caller's thread at the begin (0) and after each step of a run, each algorithm's, then, for
  /// `outputs`, that of the whole network in double precision. Models with data-dependent shapes may have more steps
  /// than `total`.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

/// Runs the model once per algorithm and checks every step and the outputs. Rows are in execution order, algorithm by
/// algorithm, each with its outputs last. With "all", steps other than convolutions appear once, with the last
/// algorithm. Some hundred times slower than a run. Error(invalid_argument): unknown device, precision or algorithm, or
/// inputs that do not fit the model; Error(unsupported) and others as for Runner.
std::vector<LayerCheck> check_layers(const Model& model, const CheckOptions& options = {});

/// Options of check_layer().
struct LayerOptions {
  std::string device = {};     ///< as CheckOptions::device; empty: "auto"
  std::string precision = {};  ///< as CheckOptions::precision; empty: "fp32"
  std::string algorithm = {};  ///< one kernel by name; empty: all kernels that the device has for the operator
  double seconds = 0.05;       ///< time to spend on timing each kernel; 0: no timing
  /// The number of leading inputs that are given at run time; the others are constants, like the weights in a file.
  /// Kernels pack constants beforehand, and some refuse a filter that is not constant.
  std::size_t run_inputs = 1;
  std::size_t outputs = 1;  ///< number of the node's outputs: 2 for a TopK, the parts of a Split
  std::string domain = {};  ///< of the operator; empty: ONNX's own. "lenslet" has the sparse ones (docs/ops.md)
  std::int64_t opset = 0;   ///< version of that domain for attributes and inputs; 0: the newest known
  int threads = 0;          ///< on the CPU; 0: one per core
};

/// Checks one layer, given as a node of an ONNX file: attributes and inputs as the operator defines them, an empty()
/// tensor for an omitted optional input. Returns a row for each kernel that accepts it (error, tolerance, time) and for
/// each that refuses it (reason). A layer computed in several steps has rows for each step. Constant tensors are
/// copied.
///
///   check_layer("Conv", {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}},
///               {random_tensor(DType::f32, {1, 64, 56, 56}, 1), random_tensor(DType::f32, {64, 64, 3, 3}, 2)})
///
/// Error(invalid_argument): unknown device, precision or algorithm. Error(invalid_model) or Error(unsupported), naming
/// the operator: attributes or inputs that it does not define, or no kernel accepts it.
std::vector<LayerCheck> check_layer(std::string_view op, const AttributeList& attributes,
                                    const std::vector<Tensor>& inputs, const LayerOptions& options = {});

/// Checks one step from within an observer of your own Runner. Needs PlanOptions::keep_all_values: without it a step's
/// inputs may already be overwritten. Leaves `device` and `precision` empty and takes `ms` from the event.
/// Error(invalid_argument): inputs that do not fit the operator.
LayerCheck check_step(const LayerEvent& event);

/// A random tensor: floats uniform in [-1, 1), 16-bit floats of magnitude 0.5 to 1, bytes of any value, other integers
/// 0 or 1. The same seed gives the same values on every machine.
Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed = 1);

}  // namespace lenslet
