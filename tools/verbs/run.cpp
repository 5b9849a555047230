// lenslet run: tensors from files through a model, outputs to files.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/runner.h"
#include "lenslet/tensor_file.h"
#include "oracle/oracle.h"
#include "tools/verbs/bound_run.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/compare.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/output_name.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  std::vector<std::string> inputs;
  std::string output_dir = ".";
  bool json = false;
  PlanOptions plan;
};

struct Statistics {
  double min = 0, mean = 0, max = 0;  // of the elements that are not NaN
  std::int64_t nans = 0;
};

Statistics statistics(const Tensor& tensor) {
  Statistics result{.min = std::numeric_limits<double>::infinity(), .max = -std::numeric_limits<double>::infinity()};
  double sum = 0;
  for (const double value : oracle::from_tensor(tensor).values) {
    if (std::isnan(value)) {
      ++result.nans;
      continue;
    }
    sum += value;
    result.min = std::fmin(result.min, value);
    result.max = std::fmax(result.max, value);
  }
  const auto counted = static_cast<double>(tensor.elems() - result.nans);
  if (counted == 0) result.min = result.max = std::nan("");
  result.mean = sum / counted;
  return result;
}

ExitCode run(const Options& options) {
  const Model model = Model::load(options.model);
  const std::vector<Tensor> inputs = read_named_inputs(model, options.inputs);
  print_device_note(options.plan);
  Runner runner = runner_for(model, inputs, options.plan);
  note_refused_algorithms(runner.plan(), options.plan);
  const auto outputs = runner.run(inputs);

  std::error_code error;
  fs::create_directories(options.output_dir, error);
  if (error) throw Error(ErrorKind::io, fmt::format("cannot be made: {}", error.message()), options.output_dir);
  OutputNames names;
  auto listed = nlohmann::json::array();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = model.outputs()[i].name;
    const Tensor& tensor = outputs[i];
    const fs::path file = fs::path(options.output_dir) / names.file_name(name);
    // .npy has no bfloat16 and no type of those after bool; float32 holds each of their values.
    const bool other = tensor.dtype() == DType::bf16 || tensor.dtype() > DType::boolean;
    write_npy(file, other ? tensor.to_dtype(DType::f32) : tensor);
    const Statistics seen = statistics(tensor);
    if (options.json) {
      const auto dims = tensor.shape().dims();
      listed.push_back({{"name", name},
                        {"type", to_string(tensor.dtype())},
                        {"shape", std::vector<std::int64_t>(dims.begin(), dims.end())},
                        {"min", seen.min},
                        {"mean", seen.mean},
                        {"max", seen.max},
                        {"nan", seen.nans},
                        {"digest", digest(tensor)},
                        {"file", file.string()}});
    } else {
      fmt::print("{}: {} {} min {:.6g} mean {:.6g} max {:.6g}{} -> {}\n", name, to_string(tensor.dtype()),
                 tensor.shape().str(), seen.min, seen.mean, seen.max,
                 seen.nans > 0 ? fmt::format(" ({} NaN)", seen.nans) : "", printable(file.string()));
    }
  }
  if (options.json) {
    const nlohmann::json document{{"model", model.name()}, {"device", runner.plan().device}, {"outputs", listed}};
    print_document(document, options.plan);
  }
  return exit_ok;
}

}  // namespace

void add_run(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("run", "Run a model on tensors from files; write its outputs as .npy");
  verb->add_option("MODEL", options->model, "ONNX file")->required();
  verb->add_option("--input", options->inputs,
                   "[NAME=]FILE.npy or FILE.pb, once for each input; without a name in the model's order. "
                   "Float files are converted to the float type the model declares")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option("--output-dir", options->output_dir, "Folder for NAME.npy of each output")
      ->check(not_empty())
      ->capture_default_str();
  add_plan_options(*verb, options->plan);
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet run net.onnx --input photo.npy\n"
               "lenslet run net.onnx --input image=x.npy --input size=s.pb --output-dir out --threads 2\n"
               "lenslet run net.onnx --input x.npy --conv-algorithm direct --json");
  verb->callback([options, &result] { result = run(*options); });
}

}  // namespace lenslet::tool
