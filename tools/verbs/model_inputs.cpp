#include "tools/verbs/model_inputs.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "photos/dtype_convert.h"
#include "tools/scans/read_points.h"
#include "tools/verbs/common_options.h"

namespace lenslet::tool {

namespace {

std::int64_t parse_dim(std::string_view text, const std::string& whole) {
  std::int64_t dim = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), dim);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size() || dim < 0)
    throw Error(ErrorKind::invalid_argument, fmt::format("--shape {}: wanted NAME=AxBxC with whole numbers", whole));
  return dim;
}

namespace fs = std::filesystem;

// A missing FILE with '=' in its name was meant as NAME=FILE.
void refuse_unknown_name(const std::vector<PortInfo>& ports, const std::string& text) {
  const std::size_t equals = text.find('=');
  std::error_code ignored;
  if (equals == text.npos || fs::exists(text, ignored)) return;
  throw Error(ErrorKind::invalid_argument, fmt::format("--input {}: no input is called '{}'; the model has {}", text,
                                                       text.substr(0, equals), described(ports)));
}

}  // namespace

Tensor read_tensor(const fs::path& file, const PortInfo& port) {
  if (file.extension() == ".npy") return read_npy(file);
  if (file.extension() == ".pb") return read_tensor_pb(file);
  if (file.extension() != ".bin")
    throw Error(ErrorKind::invalid_argument, "an input file must end in .npy, .pb or, of points, .bin", file.string());
  if (port.dims.size() != 2 || port.dims[1] < 1)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a file of points is for inputs [points, columns], and {} is {}", port.name, port.str()),
                file.string());
  return read_points(file, port.dims[1]);
}

std::optional<std::size_t> named_port(const std::vector<PortInfo>& ports, const std::string& text) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (text.starts_with(ports[i].name + "=") && (!best || ports[i].name.size() > ports[*best].name.size())) best = i;
  return best;
}

std::string described(const std::vector<PortInfo>& ports) {
  std::string text;
  for (const PortInfo& port : ports)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", port.name, to_string(port.dtype), port.str());
  return text;
}

void add_shape_option(CLI::App& verb, std::vector<std::string>& texts) {
  verb.add_option("--shape", texts, "Shape of an input with free dimensions, NAME=1x3x48x192; repeatable")
      ->allow_extra_args(false);
}

std::vector<std::pair<std::string, Shape>> parse_shapes(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const std::string& text : texts) {
    // Names may hold '=', sizes cannot.
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorKind::invalid_argument, fmt::format("--shape {}: wanted NAME=AxBxC", text));
    std::vector<std::int64_t> dims;
    std::string_view rest = std::string_view(text).substr(equals + 1);
    while (true) {
      const std::size_t x = rest.find('x');
      dims.push_back(parse_dim(rest.substr(0, x), text));
      if (x == std::string_view::npos) break;
      rest.remove_prefix(x + 1);
    }
    shapes.emplace_back(text.substr(0, equals), Shape(dims));
  }
  return shapes;
}

void add_input_options(CLI::App& verb, InputOptions& options) {
  CLI::Option* const input =
      verb.add_option("--input", options.files, "[NAME=]FILE.npy or .pb, or points as .bin; repeatable")
          ->allow_extra_args(false);
  verb.add_option("--random", options.seed, "Seed of random inputs, when no --input is given")
      ->transform(whole_number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str()
      ->excludes(input);
  add_shape_option(verb, options.shapes);
}

Model load_for(const fs::path& file, const std::vector<std::string>& texts) {
  Model model = Model::load(file);
  LoadOptions options;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    std::error_code ignored;
    if (equals != text.npos && !named_port(model.inputs(), text) && !fs::exists(text, ignored))
      options.overridden.push_back(text.substr(0, equals));
  }
  if (options.overridden.empty()) return model;
  try {
    return Model::load(file, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    return model;  // reading the inputs refuses them, and lists the existing names
  }
}

std::vector<Tensor> given_inputs(const Model& model, const InputOptions& options, PlanOptions& plan) {
  plan.input_shapes = parse_shapes(options.shapes);
  std::vector<Tensor> inputs;
  if (!options.files.empty()) inputs = read_named_inputs(model, options.files);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].empty()) plan.input_shapes.emplace_back(model.inputs()[i].name, inputs[i].shape());
  return inputs;
}

std::vector<Tensor> given_or_random(const Model& model, const PlanInfo& plan, const std::vector<Tensor>& given,
                                    const InputOptions& options) {
  return given.empty() ? random_inputs(model, plan, options.seed) : given;
}

std::vector<Tensor> read_named_inputs(const Model& model, const std::vector<std::string>& texts,
                                      const ReadInput& read) {
  const auto& ports = model.inputs();
  std::vector<Tensor> tensors(ports.size());
  std::vector<std::string> unnamed;
  const auto read_for = [&](const std::string& file, std::size_t port) {
    return read ? read(file, port) : read_tensor(file, ports[port]);
  };
  for (const std::string& text : texts) {
    const auto port = named_port(ports, text);
    if (!port) {
      refuse_unknown_name(ports, text);
      unnamed.push_back(text);
    } else if (!tensors[*port].empty()) {
      throw Error(ErrorKind::invalid_argument, fmt::format("input {} is given twice", ports[*port].name));
    } else {
      tensors[*port] = read_for(text.substr(ports[*port].name.size() + 1), *port);
    }
  }
  // Inputs that no node reads take their turn only if there are enough files.
  const auto wanted = [&](std::size_t i) { return tensors[i].empty() && !ports[i].unread; };
  std::size_t read_ones = 0, next = 0;
  for (std::size_t i = 0; i < ports.size(); ++i) read_ones += wanted(i) ? 1 : 0;
  const bool skip = unnamed.size() <= read_ones;
  for (const std::string& file : unnamed) {
    while (next < tensors.size() && (skip ? !wanted(next) : !tensors[next].empty())) ++next;
    if (next == tensors.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("'{}' is one input too many: the model has {}", file, described(ports)));
    tensors[next] = read_for(file, next);
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (tensors[i].empty() && ports[i].unread) continue;
    if (tensors[i].empty())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no --input for {} {} {}", ports[i].name, to_string(ports[i].dtype), ports[i].str()));
    tensors[i] = photos::convert_float(tensors[i], ports[i].dtype);
  }
  return tensors;
}

}  // namespace lenslet::tool
