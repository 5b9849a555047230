// lenslet quantize: a copy of a model with 8-bit weights and values, and which layer loses most by it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "lenslet/tensor_file.h"
#include "photos/cards/sha256.h"
#include "photos/cards/write_card.h"
#include "photos/dtype_convert.h"
#include "tools/quantize/calibration.h"
#include "tools/quantize/fold_batch_norm.h"
#include "tools/quantize/raise_opset.h"
#include "tools/quantize/saved_work.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/stop_signals.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/text_table.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model, output, report;
  std::vector<std::string> photos, inputs, keep, skip;
  bool recursive = false, json = false, no_bias_correction = false;
  PreparationOptions preparation;
  std::string method = "auto", activations = "uint8";
  double percentile = 99.99, budget = -1;
  std::size_t blame_photos = 8;
  PlanOptions plan;
  TableOptions table;
  std::string all;  ///< the command's options, as text
};

struct Row {
  QuantizedLayer layer;
  double error = 0;
  std::string form = "int8";
  std::optional<double> saves_us = std::nullopt;  ///< by the cost model; nothing where no step has the layer's name
};

constexpr Column row_columns[] = {
    {"quantised alone", 0, Column::Kind::name}, {"op", 2, Column::Kind::word}, {"error", 0}, {"dB", 3}, {"saves us", 1},
    {"written as", 1, Column::Kind::text}};

[[noreturn]] void refuse(const std::string& why, const std::string& what = {}) {
  throw Error(ErrorKind::invalid_argument, why, what);
}

std::string read_bytes(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw Error(ErrorKind::io, "cannot be read", file);
  return bytes;
}

/// Beside the output; empty if that is a pipe or a device.
fs::path saved_file(const Options& options) {
  std::error_code ignored;
  if (fs::exists(options.output, ignored) && !fs::is_regular_file(options.output, ignored)) return {};
  return fs::path(options.output).replace_extension(".calibration.json");
}

/// Before minutes of work.
void check_output(const Options& options) {
  std::error_code ignored;
  const std::string& report = options.report;
  for (const std::string& written : {options.output, report}) {
    if (written.empty()) continue;
    if (fs::equivalent(options.model, written, ignored)) refuse("this is the model itself", written);
    for (const std::string& input : options.inputs)
      if (fs::equivalent(input, written, ignored)) refuse("this is one of --inputs", written);
  }
  if (report == options.output || fs::equivalent(report, options.output, ignored))
    refuse("--report and -o name one file", report);
  if (!report.empty() && !fs::is_directory(fs::absolute(report).parent_path(), ignored))
    throw Error(ErrorKind::io, "cannot be written", report);
  const fs::path folder = fs::absolute(options.output).parent_path();
  if (!fs::is_directory(folder, ignored) || fs::is_directory(options.output, ignored) ||
      access(folder.c_str(), W_OK) != 0)
    throw Error(ErrorKind::io, "cannot be written", options.output);
}

/// The file as it will be quantised.
OnnxFile prepared(const std::string& bytes, const Options& options) {
  OnnxFile file(bytes, fs::absolute(options.model).parent_path());
  for (const EditedNode& node : file.nodes)
    for (const char* part : {"QuantizeLinear", "DequantizeLinear", "QLinear", "ConvInteger", "MatMulInteger"})
      if (node.op.find(part) != std::string::npos)
        refuse(fmt::format("is quantised already: node {} ({})", node.label(), node.op));
  raise_opset(file);
  file.skip_identities();
  fold_batch_norm(file);
  return file;
}

Floats given_floats(const OnnxFile& file, const Options& options) {
  Floats floats;
  for (const std::string& layer : options.keep) {
    if (std::ranges::none_of(file.nodes, [&](const EditedNode& node) { return node.label() == layer; }))
      refuse(fmt::format("--keep {}: no node has this name (the report lists them)", layer));
    floats.layers.insert(layer);
  }
  for (const std::string& op : options.skip) {
    if (std::ranges::none_of(file.nodes, [&](const EditedNode& node) { return node.op == op; }))
      refuse(fmt::format("--skip-op {}: the model has no such node", op));
    floats.ops.insert(op);
  }
  return floats;
}

Samples samples_of(const Model& model, const Options& options) {
  if (model.inputs().size() != 1)
    refuse(fmt::format("the model has {} inputs; calibration is for models with one", model.inputs().size()));
  const PortInfo& port = model.inputs()[0];
  if (options.photos.empty())
    return {.files = options.inputs, .read = [&port](const std::string& file) { return read_tensor(file, port); }};
  FoundCard found = options.preparation.card.empty()
                        ? card_of(model, options.model)
                        : FoundCard{read_card(options.preparation.card), options.preparation.card, FoundBy::option};
  apply(options.preparation, found.card.spec);
  say_source(found, options.model);
  if (bind_card(found.card, model).fixed_batch > 1)
    refuse("the model's batch is fixed: give batches by --inputs, or export it with a free batch");
  Samples samples;
  samples.files = list_photos(options.photos, options.recursive);
  if (found.found_by != FoundBy::nothing)
    samples.card = photos::card_text(found.card, model, options.model, fs::path(options.output).parent_path());
  samples.read = [&port, card = found.card](const std::string& file) {
    const Picture picture = read_image(file, {.draft = card.draft_spec()});
    const ImageSpec& spec = card.spec;
    const std::int64_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
    Tensor input(photos::is_float(port.dtype) ? port.dtype : DType::f32,
                 spec.nhwc ? Shape{1, spec.height, spec.width, channels} : Shape{1, channels, spec.height, spec.width});
    to_input(picture.view(), spec, input);
    return photos::is_float(port.dtype) ? input : photos::to_bytes(input);
  };
  return samples;
}

/// Of all that calibration and comparison depend on.
std::string key_of(const OnnxFile& file, const Samples& samples, const Options& options) {
  const std::string model = file.bytes();
  std::string text = photos::sha256_of(std::as_bytes(std::span(model))) + options.all + samples.card;
  std::map<std::string, std::string> sums;
  for (const std::string& name : samples.files) {
    if (options.photos.empty()) {  // by content: lenslet.quantize() writes its samples anew, in another folder
      std::string& sum = sums[name];
      if (sum.empty()) {
        const std::string bytes = read_bytes(name);
        sum = photos::sha256_of(std::as_bytes(std::span(bytes)));
      }
      text += "\n" + sum;
      continue;
    }
    std::error_code ignored;
    text += fmt::format("\n{} {} {}", name, fs::file_size(name, ignored),
                        fs::last_write_time(name, ignored).time_since_epoch().count());
  }
  return photos::sha256_of(std::as_bytes(std::span(text)));
}

/// Ends the process soon after a signal, wherever its work is, but not while a file is written.
class EndOnStop {
 public:
  explicit EndOnStop(const StopSignals& stop)
      : thread_([this, &stop](const std::stop_token& done) {
          while (!done.stop_requested()) {
            if (stop.came()) {
              const std::scoped_lock lock(writing_);
              if (done.stop_requested()) return;
              if (isatty(STDERR_FILENO) == 1) std::fputs("\033[K", stderr);  // the progress line
              note(words_);
              _exit(exit_stopped);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

  /// While it is held the process does not end.
  [[nodiscard]] std::unique_lock<std::mutex> writing() { return std::unique_lock(writing_); }
  /// Said at the end; call it while writing.
  void set_words(std::string words) { words_ = std::move(words); }
  void release() { thread_.request_stop(); }

 private:
  std::mutex writing_;
  std::string words_ = "stopped; nothing was written";
  std::jthread thread_;
};

double decibels(double error) { return error > 0 ? -20 * std::log10(error) : 999; }

/// The quantisation of one model: what the options decide, what calibration gave, and a row for each layer.
class Quantizer {
 public:
  Quantizer(const Options& options, EndOnStop& stop) : options_(options), stop_(stop) {}

  ExitCode run() {
    check_output(options_);
    const std::string bytes = read_bytes(options_.model);
    const Model model = Model::load_bytes(std::as_bytes(std::span(bytes)),
                                          {.external_data_dir = fs::absolute(options_.model).parent_path()},
                                          fs::path(options_.model).filename().string());
    try {
      return run(model, prepared(bytes, options_));
    } catch (const Error& error) {
      if (error.context().empty() || error.context().starts_with("node ")) throw error.within(options_.model);
      throw;
    }
  }

 private:
  ExitCode run(const Model& model, const OnnxFile& file) {
    Floats floats = given_floats(file, options_);
    QuantizePlan plan = plan_quantization(file, floats);
    if (std::ranges::none_of(plan.layers, &QuantizedLayer::has_weights))
      refuse("there is no layer to quantise: no Conv, ConvTranspose, Gemm or MatMul with constant float32 weights");
    const Samples samples = samples_of(model, options_);
    SavedWork saved(saved_file(options_), key_of(file, samples, options_));
    Calibration before = saved.read(plan.group, samples.files.size());
    if (before.done > 0)
      note(fmt::format("going on behind {} of {} in {}", before.done, samples.files.size(), saved.file().string()));
    Progress progress(samples.files.size());
    calibration_ = calibrate(file, plan, samples, std::move(before), options_.blame_photos, options_.plan,
                             [&](const Calibration& now) {
                               progress.update(now.done);
                               save(saved, &now);
                             });
    progress.clear();
    how_.is_signed = options_.activations == "int8";
    if (!options_.no_bias_correction) how_.means = &calibration_.means;
    choose_ranges(plan);
    std::optional<OutputError> measure;
    if (options_.blame_photos > 0) measure.emplace(file, std::move(calibration_.kept), options_.plan);
    if (measure) blame(*measure, plan, saved);
    if (measure && options_.budget >= 0 && over_budget(*measure, plan, floats)) {
      plan = plan_quantization(file, floats);
      if (std::ranges::none_of(plan.layers, &QuantizedLayer::has_weights))
        refuse(fmt::format("every layer loses more than the budget of {}", options_.budget));
      choose_ranges(plan);
    }
    const OnnxFile quantized = with_qdq(file, plan, how_);
    const std::string bytes = quantized.bytes();
    Model::load_bytes(std::as_bytes(std::span(bytes)), {}, "the quantised file");
    if (measure) {
      error_ = measure->of(with_qdq(measure->file(), plan, how_));
      const auto of_floats = measure->estimated_us(file), of_codes = measure->estimated_us(quantized);
      for (Row& row : rows_)
        if (const auto b = of_floats.find(row.layer.name), a = of_codes.find(row.layer.name);
            b != of_floats.end() && a != of_codes.end())
          row.saves_us = b->second - a->second;
    }
    const auto lock = stop_.writing();  // from here on it is done
    stop_.release();
    write_file(options_.output, std::as_bytes(std::span(bytes)));
    // The card was found by the model's name or checksum, which the copy does not have.
    const fs::path card = fs::path(options_.output).replace_extension(".card.json");
    if (std::error_code ignored; !samples.card.empty() && !fs::exists(card, ignored)) {
      write_file(card, std::as_bytes(std::span(samples.card)));
      note(fmt::format("wrote {}, too: how the model's photos are prepared", card.string()));
    }
    report(plan, calibration_.runs, measure ? measure->inputs() : 0);
    saved.remove();
    return calibration_.failed > 0 ? exit_failed : exit_ok;
  }

  /// Not so often that saving takes a noticeable share of the time.
  void save(SavedWork& saved, const Calibration* now) {
    const auto begin = std::chrono::steady_clock::now();
    if (saved.file().empty() || begin < save_next_) return;
    const auto lock = stop_.writing();
    if (now != nullptr) saved.keep(*now);
    saved.write();
    stop_.set_words(fmt::format("stopped; the same command goes on from {}", saved.file().string()));
    const auto end = std::chrono::steady_clock::now();
    save_next_ =
        end + std::max<std::chrono::steady_clock::duration>(20 * (end - begin), std::chrono::milliseconds(500));
  }

  /// Values of another plan have other groups: their histograms are merged.
  void choose_ranges(const QuantizePlan& plan) {
    const auto method = static_cast<Method>(std::ranges::find(method_names, options_.method) - method_names.begin());
    std::map<std::string, Histogram> groups;
    for (const auto& [value, group] : plan.group) groups[group].add(calibration_.values.at(value));
    how_.ranges.clear();
    for (const auto& [group, values] : groups) how_.ranges[group] = choose_range(values, method, options_.percentile);
  }

  double error_of(const OutputError& measure, const QuantizePlan& plan, const Wanted& wanted) const {
    return measure.of(with_qdq(measure.file(), plan, how_, &wanted));
  }

  /// Quantises each layer alone: its weights and its output.
  void blame(const OutputError& measure, const QuantizePlan& plan, SavedWork& saved) {
    Progress progress(plan.layers.size(), "layers");
    for (const QuantizedLayer& layer : plan.layers) {
      progress.update(rows_.size());
      const auto known = saved.row(layer.name);
      rows_.push_back({layer, known ? *known : error_of(measure, plan, {{layer.value}, {layer.name}})});
      if (!known) saved.keep_row(layer.name, rows_.back().error);
      save(saved, nullptr);
    }
    std::ranges::stable_sort(rows_, std::ranges::greater(), &Row::error);
  }

  /// Layers beyond the budget become float, and if their output alone is beyond it, that, too.
  bool over_budget(const OutputError& measure, const QuantizePlan& plan, Floats& floats) {
    for (Row& row : rows_) {
      if (row.error <= options_.budget) break;
      floats.layers.insert(row.layer.name);
      row.form = "float: budget";
      if (row.layer.value.empty() || error_of(measure, plan, {{row.layer.value}, {}}) <= options_.budget) continue;
      const std::string& bad = plan.group.at(row.layer.value);
      for (const auto& [value, group] : plan.group)
        if (group == bad) floats.values.insert(value);
    }
    return !floats.layers.empty();
  }

  void report(const QuantizePlan& plan, std::size_t samples, std::size_t compared) {
    for (Row& row : rows_) {
      const bool stays =
          std::ranges::any_of(plan.layers, [&](const auto& layer) { return layer.name == row.layer.name; });
      if (!stays && row.form == "int8") row.form = "float: its input";
    }
    nlohmann::ordered_json document{{"model", options_.model},   {"output", options_.output},
                                    {"method", options_.method}, {"activations", options_.activations},
                                    {"samples", samples},        {"compared", compared},
                                    {"kept", options_.keep},     {"layers", nlohmann::ordered_json::array()}};
    for (const Row& row : rows_)
      document["layers"].push_back({{"name", row.layer.name},
                                    {"op", row.layer.op},
                                    {"error", row.error},
                                    {"snr_db", decibels(row.error)},
                                    {"saves_us", row.saves_us ? nlohmann::ordered_json(*row.saves_us) : nullptr},
                                    {"form", row.form}});
    if (compared > 0) {
      document["error"] = error_;
      document["snr_db"] = decibels(error_);
    }
    if (!options_.report.empty()) {
      const std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      write_file(options_.report, std::as_bytes(std::span(text)));
    }
    if (options_.json) return print_document(document, options_.plan);
    print_table();
    const auto layers = std::ranges::count_if(plan.layers, &QuantizedLayer::has_weights);
    fmt::print("{}: {} layers with int8 weights, calibrated on {} {}\n", options_.output, layers, samples,
               options_.photos.empty() ? "files" : "photos");
    if (compared > 0)
      fmt::print("the outputs' error by all of them: {:.4f} ({:.1f} dB), on {}\n", error_, decibels(error_), compared);
  }

  void print_table() const {
    if (rows_.empty()) return;
    TextTable table(row_columns, options_.table);
    for (const Row& row : rows_)
      table.add({row.layer.name, row.layer.op, fmt::format("{:.4f}", row.error),
                 fmt::format("{:.1f}", decibels(row.error)), row.saves_us ? fmt::format("{:.1f}", *row.saves_us) : "-",
                 row.form});
    table.print();
    fmt::print("saves us: by the plan's estimates of both files; -: no such step in one of them\n");
    if (options_.budget >= 0)
      fmt::print(
          "rule: a layer whose error alone is above --budget {} stays float; if its\n"
          "output alone is above it, that, too, and the layers that read it\n",
          options_.budget);
  }

  const Options& options_;
  EndOnStop& stop_;
  std::chrono::steady_clock::time_point save_next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  Calibration calibration_;
  Quantizers how_;
  std::vector<Row> rows_;
  double error_ = 0;
};

ExitCode quantize(const Options& options) {
  if (options.photos.empty() == options.inputs.empty()) refuse("either --photos or --inputs says what to calibrate on");
  if (!options.inputs.empty() && options.preparation.any())
    refuse("how pictures are prepared is said, and --inputs are none");
  if (options.budget >= 0 && options.blame_photos == 0) refuse("--budget needs --blame-photos");
  const StopSignals signals;
  EndOnStop stop(signals);
  return Quantizer(options, stop).run();
}

}  // namespace

void add_quantize(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("quantize", "Write a copy with 8-bit weights and values (QDQ)");
  verb->add_option("MODEL", options->model, "ONNX file, float32")->required();
  verb->add_option("-o,--output", options->output, "The file to write")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--photos", options->photos, "A folder of photos, or a photo, to calibrate on; repeatable")
      ->check(not_empty())
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  verb->add_option("--inputs", options->inputs, "Inputs as .npy or .pb to calibrate on, instead of photos")
      ->configurable(false)  // key_of has their bytes
      ->check(not_empty());
  verb->add_flag("--recursive", options->recursive, "Look into the folders in a folder, too");
  add_preparation_options(*verb, options->preparation);
  verb->add_option("--method", options->method,
                   "What range of a value 8 bits cover: minmax, percentile, entropy, mse; auto: of these the one with "
                   "the least squared error, value by value")
      ->check(CLI::IsMember(std::vector<std::string>(method_names.begin(), method_names.end())))
      ->capture_default_str();
  verb->add_option("--percentile", options->percentile, "Of the values that the method percentile covers, in percent")
      ->check(number_up_to(100))
      ->capture_default_str();
  verb->add_option("--activations", options->activations, "Type of values; weights are int8")
      ->check(CLI::IsMember({"uint8", "int8"}))
      ->capture_default_str();
  verb->add_option("--keep", options->keep, "A node that stays float; repeatable")
      ->type_name("LAYER")
      ->allow_extra_args(false);
  verb->add_option("--skip-op", options->skip, "An operator whose nodes stay float; repeatable")
      ->type_name("TYPE")
      ->allow_extra_args(false);
  verb->add_option("--blame-photos", options->blame_photos,
                   "Photos on which each layer is quantised alone and compared; 0: no such table")
      ->transform(whole_number<std::size_t>(0, 1000))
      ->capture_default_str();
  verb->add_option("--budget", options->budget,
                   "Layers whose error alone is larger stay float (0.02: 2 % of the outputs' rms)")
      ->check(number_up_to(1e6));
  verb->add_flag("--no-bias-correction", options->no_bias_correction,
                 "Leave the mean error that rounded weights make in each channel; else the bias takes it off");
  verb->add_option("--report", options->report, "Write the table as JSON")->check(not_empty())->type_name("FILE");
  add_device_options(*verb, options->plan);
  add_table_options(*verb, options->table, {row_columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet quantize net.onnx --photos holiday/ -o net-int8.onnx\n"
               "lenslet quantize net.onnx --photos holiday/ -o net-int8.onnx --budget 0.02 --report blame.json\n"
               "lenslet quantize net.onnx --inputs a.npy b.npy -o net-int8.onnx --keep conv1 --method minmax");
  verb->callback([options, verb, &result] {
    options->all = verb->config_to_str(true);
    result = quantize(*options);
  });
}

}  // namespace lenslet::tool
