// lenslet run: runs a model on tensors and pictures from files, and writes outputs to files.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/runner.h"
#include "lenslet/tensor_file.h"
#include "oracle/oracle.h"
#include "photos/dtype_convert.h"
#include "tools/verbs/bound_run.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/compare.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/observed_values.h"
#include "tools/verbs/output_name.h"
#include "tools/verbs/picture_outputs.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  std::vector<std::string> inputs;
  PreparationOptions preparation;
  PictureOutputOptions pictures;
  std::string output_dir, all_values;
  bool check_range = false, json = false;
  PlanOptions plan;
};

struct Statistics {
  double min = 0, mean = 0, max = 0;  // of the elements other than NaN
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

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorKind::io, fmt::format("cannot be made: {}", error.message()), folder.string());
}

/// Writes each value to NAME.npy in a folder. bfloat16 and the types after bool, which .npy lacks, become float32,
/// which represents all their values.
class NpyFolder {
 public:
  explicit NpyFolder(fs::path folder) : folder_(std::move(folder)) { make_folder(folder_); }
  fs::path write(const std::string& name, const Tensor& tensor) {
    fs::path file = folder_ / names_.file_name(name);
    const bool other = tensor.dtype() == DType::bf16 || tensor.dtype() > DType::boolean;
    write_npy(file, other ? tensor.to_dtype(DType::f32) : tensor);
    return file;
  }

 private:
  fs::path folder_;
  OutputNames names_;
};

ExitCode run(const Options& options) {
  const Model model = load_for(options.model, options.inputs);
  std::vector<PictureOutput> pictures = picture_outputs(model, options.pictures);
  const std::vector<Tensor> inputs =
      read_pictures_or_tensors(model, options.model, options.inputs, options.preparation);
  print_device_note(options.plan);
  PlanOptions plan = options.plan;
  if (options.check_range) plan.calibration = inputs;
  Runner runner = runner_for(model, inputs, plan);
  note_refused_algorithms(runner.plan(), options.plan);
  std::span<const Tensor> outputs;
  if (options.all_values.empty()) {
    outputs = runner.run(inputs);
  } else {
    NpyFolder values(options.all_values);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].empty()) values.write(model.inputs()[i].name, inputs[i]);
    outputs = observe_values(runner, model, inputs,
                             [&](const ObservedValue& value) { values.write(value.name, value.tensor); });
  }
  write_pictures(model, outputs, options.pictures, pictures);

  std::optional<NpyFolder> folder;
  if (pictures.empty() || !options.output_dir.empty())
    folder.emplace(options.output_dir.empty() ? "." : options.output_dir);
  auto listed = nlohmann::json::array();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = model.outputs()[i].name;
    const Tensor& tensor = outputs[i];
    std::string file, picture;
    if (folder) file = folder->write(name, tensor).string();
    for (const PictureOutput& output : pictures)
      if (output.port == i) picture = output.file.string();
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
                        {"digest", digest(tensor)}});
      if (!file.empty()) listed.back()["file"] = file;
      if (!picture.empty()) listed.back()["picture"] = picture;
    } else {
      fmt::print("{}: {} {} ", printable(name), to_string(tensor.dtype()), tensor.shape().str());
      if (tensor.elems() == 0)
        fmt::print("no values");
      else
        fmt::print("min {:.6g} mean {:.6g} max {:.6g}{}", seen.min, seen.mean, seen.max,
                   seen.nans > 0 ? fmt::format(" ({} NaN)", seen.nans) : "");
      for (const std::string& written : {file, picture})
        if (!written.empty()) fmt::print(" -> {}", printable(written));
      fmt::print("\n");
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
  CLI::App* verb =
      app.add_subcommand("run", "Run a model on tensors or pictures from files; write its outputs as .npy or PNG");
  verb->add_option("MODEL", options->model, "ONNX file")->required();
  verb->add_option("--input", options->inputs,
                   "[NAME=]FILE, once for each input; without a name in the model's order. FILE.npy or FILE.pb (floats "
                   "are converted to the type that the model declares), points of float32 as FILE.bin, or a picture "
                   "(JPEG, PNG, BMP, PNM, WebP; - is "
                   "standard input), prepared as the card says or the options below; else RGB or gray of 0 to 1, "
                   "stretched to the input's size or, where that is free, as large as it is")
      ->take_all()
      ->allow_extra_args(false);
  add_preparation_options(*verb, options->preparation);
  add_picture_output_options(*verb, options->pictures);
  verb->add_option("--output-dir", options->output_dir,
                   "Folder for NAME.npy of each output; default: ., and none where --output asks for pictures")
      ->check(not_empty());
  verb->add_option("--all-values", options->all_values,
                   "Also write inputs and all values that the layers make, as NAME.npy, into this folder")
      ->check(not_empty());
  add_plan_options(*verb, options->plan);
  verb->add_flag("--check-range", options->check_range,
                 "CUDA, where values are stored in float16: first compute the inputs in float32 on the CPU, and refuse "
                 "what float16 would not hold");
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet run net.onnx --input x.npy\n"
               "lenslet run net.onnx --input image=x.npy --input size=s.pb --output-dir out --threads 2\n"
               "lenslet run net.onnx --input x.npy --conv-algorithm direct --json\n"
               "lenslet run denoise.onnx --input photo.jpg --output clean.png\n"
               "lenslet run faces.onnx --input photo.jpg --scale 1 --mean 127 --std 128");
  verb->callback([options, &result] { result = run(*options); });
}

}  // namespace lenslet::tool
