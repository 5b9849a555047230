// lenslet diff: the first value in which two computations differ, and by how much.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "oracle/oracle.h"
#include "photos/dtype_convert.h"
#include "tools/verbs/bound_run.h"
#include "tools/verbs/check_rows.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/observed_values.h"
#include "tools/verbs/output_name.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/text_table.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model, against;
  InputOptions inputs;
  PreparationOptions preparation;
  double tolerance = 1e-4;
  bool json = false;
  PlanOptions plan;
  TableOptions table;
  // Of the other side; defaults to the first side's.
  std::optional<int> threads;
  std::optional<std::string> device, precision;
  std::vector<std::string> algorithms;
  bool other_settings() const { return threads || device || precision || !algorithms.empty(); }
};

constexpr Column columns[] = {{"value", 0, Column::Kind::name},
                              {"node", 2, Column::Kind::name},
                              {"op", 1, Column::Kind::name},
                              {"error/rms", 0},
                              {"where", 0, Column::Kind::text}};

PlanOptions plan_of_other(const Options& options) {
  PlanOptions plan = options.plan;
  if (options.threads) plan.threads = *options.threads;
  if (options.device) plan.device = *options.device;
  if (options.precision) plan.numerics = parse_numerics(*options.precision);
  if (!options.algorithms.empty()) {
    plan.conv_algorithm.clear();
    plan.layer_algorithms.clear();
    force_algorithms(plan, options.algorithms);
  }
  return plan;
}

struct Row {
  ObservedValue value;               // without its tensor once compared
  std::optional<double> error = {};  // none: no counterpart
  std::string remark = {};           // why they are not comparable
};

struct Report {
  std::string device, other_device = {};
  std::vector<Row> rows = {};  // in the model's order
  std::size_t only_there = 0;  // values of the other side without a counterpart
};

/// max |a - b| / rms(b), where b is the other side's; infinite if only one side is NaN or infinite.
double largest_error(const Tensor& a, const Tensor& b) {
  const std::vector<double> got = oracle::from_tensor(a).values, other = oracle::from_tensor(b).values;
  const double rms = oracle::rms(other);
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == other[i] || (std::isnan(got[i]) && std::isnan(other[i]))) continue;
    const double error = std::fabs(got[i] - other[i]);
    largest = std::isfinite(error) ? std::max(largest, error) : HUGE_VAL;
    if (!std::isfinite(largest)) break;
  }
  return largest / (rms > 0 ? rms : 1);
}

void compare(Row& row, const Tensor& other) {
  const Tensor mine = std::move(row.value.tensor);
  if (mine.shape() == other.shape()) {
    row.error = largest_error(mine, other);
  } else {
    row.error = HUGE_VAL;
    row.remark = fmt::format("{} against {}", mine.shape().str(), other.shape().str());
  }
}

/// A folder with NAME.npy files, also as written by `lenslet run --all-values`.
class Folder {
 public:
  explicit Folder(fs::path folder) : folder_(std::move(folder)) {}
  std::optional<Tensor> read(const std::string& name) {
    for (const fs::path& file : {fs::path(name + ".npy"), fs::path(names_.file_name(name))}) {
      std::error_code ignored;
      if (file.has_parent_path() || !fs::is_regular_file(folder_ / file, ignored)) continue;
      used_.insert(file);
      return read_npy(folder_ / file);
    }
    return std::nullopt;
  }
  std::size_t unused() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_))
      count += entry.path().extension() == ".npy" && !used_.contains(entry.path().filename()) ? 1 : 0;
    return count;
  }

 private:
  fs::path folder_;
  OutputNames names_;
  std::set<fs::path> used_;
};

std::vector<Tensor> inputs_of(const Model& model, const Options& options, Folder* folder) {
  if (!options.inputs.files.empty())
    return read_pictures_or_tensors(model, options.model, options.inputs.files, options.preparation);
  if (options.preparation.any())
    throw Error(ErrorKind::invalid_argument, "how pictures are prepared is said, and no --input is one");
  if (folder == nullptr) {
    PlanOptions plan = options.plan;
    plan.input_shapes = parse_shapes(options.inputs.shapes);
    return random_inputs(model, model.plan(plan), options.inputs.seed);
  }
  std::vector<Tensor> inputs;
  for (const PortInfo& port : model.inputs()) {
    const std::optional<Tensor> input = folder->read(port.name);
    if (!input && port.unread) {
      inputs.emplace_back();
      continue;
    }
    if (!input)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("there is no {}.npy of the model's input: give it by --input", port.name),
                  options.against);
    inputs.push_back(photos::convert_float(*input, port.dtype));
  }
  return inputs;
}

/// The same inputs for another model: by name if it has all the names, else in its order.
std::vector<Tensor> inputs_for(const Model& other, const Model& model, const std::vector<Tensor>& inputs) {
  const auto &theirs = other.inputs(), &ours = model.inputs();
  if (theirs.size() != ours.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the models have different inputs: {} against {}", described(ours), described(theirs)));
  std::vector<Tensor> named, ordered;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const auto given = [&](std::size_t j) {
      return inputs[j].empty() ? Tensor() : photos::convert_float(inputs[j], theirs[i].dtype);
    };
    ordered.push_back(given(i));
    for (std::size_t j = 0; j < ours.size(); ++j)
      if (theirs[i].name == ours[j].name) named.push_back(given(j));
  }
  return named.size() == theirs.size() ? named : ordered;
}

std::string run_side(const Model& model, const std::vector<Tensor>& inputs, const PlanOptions& plan,
                     const std::function<void(ObservedValue)>& see) {
  print_device_note(plan);
  Runner runner = runner_for(model, inputs, plan);
  note_refused_algorithms(runner.plan(), plan);
  observe_values(runner, model, inputs, see);
  return runner.plan().device;
}

Report compare_all(const Options& options, const Model& model) {
  std::error_code ignored;
  std::optional<Folder> folder;
  if (fs::is_directory(options.against, ignored)) folder.emplace(options.against);
  if (folder && options.other_settings())
    throw Error(ErrorKind::invalid_argument,
                "--against is a folder, whose values are there: the options --against-... are for models");
  const std::vector<Tensor> inputs = inputs_of(model, options, folder ? &*folder : nullptr);
  Report report;
  report.device = run_side(model, inputs, options.plan, [&](ObservedValue value) {
    Row& row = report.rows.emplace_back(Row{std::move(value)});
    if (!folder) return;
    if (const auto other = folder->read(row.value.name)) compare(row, *other);
    row.value.tensor = {};
  });
  if (folder) {
    report.only_there = folder->unused();
    return report;
  }
  std::map<std::string, Row*> by_name;
  for (Row& row : report.rows) by_name.emplace(row.value.name, &row);
  const bool same = options.against.empty();
  const Model other = same ? model : Model::load(options.against);
  report.other_device =
      run_side(other, inputs_for(other, model, inputs), plan_of_other(options), [&](const ObservedValue& value) {
        const auto found = by_name.find(value.name);
        if (found == by_name.end())
          ++report.only_there;
        else
          compare(*found->second, value.tensor);
      });
  return report;
}

/// True if no value differs.
bool diff(const Options& options) {
  if (options.against.empty() && !options.other_settings())
    throw Error(
        ErrorKind::invalid_argument,
        "--against is missing, or a setting of the other side (--against-device, --against-conv-algorithm ...)");
  const Model model = Model::load(options.model);
  const Report report = compare_all(options, model);
  const std::string other = options.against.empty() ? options.model : options.against;

  std::size_t compared = 0, beyond = 0;
  const Row* first = nullptr;
  auto listed = nlohmann::json::array();
  for (const Row& row : report.rows) compared += row.error ? 1 : 0;
  if (compared == 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("no value of {} has the name of one of {}", options.model, other));
  TextTable table(columns, options.table);
  for (const Row& row : report.rows) {
    if (!row.error) continue;
    const bool parts = *row.error > options.tolerance;
    beyond += parts ? 1 : 0;
    const bool is_first = parts && first == nullptr;
    if (is_first) first = &row;
    if (options.json) {
      listed.push_back({{"name", row.value.name},
                        {"node", row.value.node},
                        {"op", row.value.op},
                        {"error", number_or_infinite(*row.error)},
                        {"parts", parts}});
      if (!row.remark.empty()) listed.back()["shapes"] = row.remark;
    } else {
      table.add({row.value.name, row.value.node, row.value.op, fmt::format("{:.2e}", *row.error),
                 fmt::format("{}{}",
                             is_first ? "<- parts here "
                             : parts  ? "beyond "
                                      : "",
                             row.remark)});
    }
  }
  const std::size_t only_here = report.rows.size() - compared;
  if (options.json) {
    nlohmann::json document{{"model", model.name()},
                            {"device", report.device},
                            {"against", other},
                            {"values", listed},
                            {"compared", compared},
                            {"beyond", beyond},
                            {"tolerance", options.tolerance},
                            {"only_in_model", only_here},
                            {"only_in_against", report.only_there}};
    document["first"] = first == nullptr ? nlohmann::json() : nlohmann::json(first->value.name);
    if (!report.other_device.empty()) document["against_device"] = report.other_device;
    print_document(document, options.plan);
  } else {
    table.print();
    fmt::print("{} values compared, {} beyond {:.3g}{}; without a counterpart: {} here, {} there\n", compared, beyond,
               options.tolerance, first == nullptr ? "" : fmt::format(", the first: {}", printable(first->value.name)),
               only_here, report.only_there);
  }
  return beyond == 0;
}

}  // namespace

void add_diff(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("diff", "The first layer where two computations part, and by how much");
  verb->add_option("MODEL", options->model, "ONNX file")->required();
  verb->add_option("--against", options->against,
                   "Another ONNX file, run on the same inputs; or a folder of values as NAME.npy, as another engine or "
                   "run --all-values wrote them, the inputs among them unless --input gives them. Default: MODEL, "
                   "with the settings of --against-...")
      ->check(not_empty());
  verb->add_option("--tolerance", options->tolerance,
                   "Values part where the largest difference is beyond this, relative to the rms of --against's value")
      ->check(number_up_to(std::numeric_limits<double>::max()))
      ->capture_default_str();
  verb->add_option("--batch", options->plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  add_input_options(*verb, options->inputs);
  verb->get_option("--input")->description("[NAME=]FILE.npy, .pb or a picture, as run takes them; repeatable");
  add_preparation_options(*verb, options->preparation);
  add_plan_options(*verb, options->plan);
  verb->add_option("--against-device", options->device, "The other side's --device; default: the same");
  verb->add_option("--against-threads", options->threads, "The other side's --threads; default: the same")
      ->transform(whole_number(0, 1024));
  verb->add_option("--against-precision", options->precision, "The other side's --precision; default: the same")
      ->check(precision_name());
  verb->add_option("--against-conv-algorithm", options->algorithms,
                   "The other side's --conv-algorithm; repeatable; default: the same")
      ->type_name("[LAYER=]NAME")
      ->allow_extra_args(false);
  add_table_options(*verb, options->table, {columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet diff net.onnx --against-conv-algorithm direct\n"
               "lenslet diff net.onnx --device cpu --against-device cuda --tolerance 1e-5\n"
               "lenslet diff net.onnx --against net-fp16.onnx --tolerance 1e-2 --input photo.jpg\n"
               "lenslet diff net.onnx --against values/");
  verb->callback([options, &result] { result = diff(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool
