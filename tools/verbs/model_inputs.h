#pragma once
// Input options of verbs that take a model instead of a photo: --shape, --input, random inputs.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "check/random_inputs.h"
#include "lenslet/model.h"

namespace lenslet::tool {

/// --shape NAME=1x3x48x192 (repeatable): appends to `texts`, which parse_shapes() reads.
void add_shape_option(CLI::App& verb, std::vector<std::string>& texts);

/// Error(invalid_argument) for anything other than NAME=AxBxC.
std::vector<std::pair<std::string, Shape>> parse_shapes(const std::vector<std::string>& texts);

/// --shape, --input and --random: the inputs of a run.
struct InputOptions {
  std::vector<std::string> files, shapes;
  std::uint64_t seed = 1;
};
void add_input_options(CLI::App& verb, InputOptions& options);
/// Loads a model whose inputs include those that `texts` (--input) name: NAME=FILE may override a value of the file.
Model load_for(const std::filesystem::path& file, const std::vector<std::string>& texts);
/// The tensors of --input, empty without the option. Their shapes and those of --shape are stored in `plan`. Errors as
/// of read_named_inputs() and parse_shapes().
std::vector<Tensor> given_inputs(const Model& model, const InputOptions& options, PlanOptions& plan);
/// These, or random ones with --random.
std::vector<Tensor> given_or_random(const Model& model, const PlanInfo& plan, const std::vector<Tensor>& given,
                                    const InputOptions& options);

using check::random_inputs;

/// Reads a tensor for `port` from a .npy, .pb or .bin file; .bin holds points, float32 rows as long as the input's.
/// Error(invalid_argument) for any other.
Tensor read_tensor(const std::filesystem::path& file, const PortInfo& port);

/// Reads `file` for input `port` of the model; the default is read_tensor().
using ReadInput = std::function<Tensor(const std::string& file, std::size_t port)>;
/// One tensor for each input of the model, in its order. A text is NAME=FILE, or FILE for the next input without one.
/// Floats are converted to the input's type. Error(invalid_argument) for missing, repeated or surplus inputs.
std::vector<Tensor> read_named_inputs(const Model& model, const std::vector<std::string>& texts,
                                      const ReadInput& read = nullptr);

/// The port of NAME=FILE, if NAME is one of `ports` (names and paths may both contain '='); none: it is only a FILE.
std::optional<std::size_t> named_port(const std::vector<PortInfo>& ports, const std::string& text);
/// "x float32 [N,3,12,10], ..."
std::string described(const std::vector<PortInfo>& ports);

}  // namespace lenslet::tool
