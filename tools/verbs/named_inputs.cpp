#include "tools/verbs/named_inputs.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "tools/verbs/dtype_convert.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

Tensor read_tensor(const fs::path& file) {
  if (file.extension() == ".npy") return read_npy(file);
  if (file.extension() == ".pb") return read_tensor_pb(file);
  throw Error(ErrorKind::invalid_argument, "an input file must end in .npy or .pb", file.string());
}

// NAME=FILE when NAME is an input of the model (names and paths may both hold '='), else just a FILE.
std::optional<std::size_t> named_input(const std::vector<PortInfo>& ports, const std::string& text) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (text.starts_with(ports[i].name + "=") && (!best || ports[i].name.size() > ports[*best].name.size())) best = i;
  return best;
}

}  // namespace

std::vector<Tensor> read_named_inputs(const Model& model, const std::vector<std::string>& texts) {
  const auto& ports = model.inputs();
  std::vector<Tensor> tensors(ports.size());
  std::vector<std::string> unnamed;
  for (const std::string& text : texts) {
    const auto port = named_input(ports, text);
    if (!port) {
      unnamed.push_back(text);
    } else if (!tensors[*port].empty()) {
      throw Error(ErrorKind::invalid_argument, fmt::format("input {} is given twice", ports[*port].name));
    } else {
      tensors[*port] = read_tensor(text.substr(ports[*port].name.size() + 1));
    }
  }
  std::size_t next = 0;
  for (const std::string& file : unnamed) {
    while (next < tensors.size() && !tensors[next].empty()) ++next;
    if (next == tensors.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("'{}' is one input too many: the model has {}", file, ports.size()));
    tensors[next] = read_tensor(file);
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (tensors[i].empty())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no --input for {} {} {}", ports[i].name, to_string(ports[i].dtype), ports[i].str()));
    tensors[i] = convert_float(tensors[i], ports[i].dtype);
  }
  return tensors;
}

}  // namespace lenslet::tool
