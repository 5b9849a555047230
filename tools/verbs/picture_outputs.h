#pragma once
// --output [NAME=]FILE.png: writes outputs as pictures.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/model.h"

namespace lenslet::tool {

struct PictureOutputOptions {
  std::vector<std::string> files;
  std::optional<double> scale;
};

void add_picture_output_options(CLI::App& verb, PictureOutputOptions& options);

struct PictureOutput {
  std::optional<std::size_t> port;  ///< in Model::outputs(); none: the only output that shows a picture
  std::filesystem::path file;
};

/// Parses `options`. Error(invalid_argument) for names that are not outputs, files that do not end in .png, and a scale
/// without a file.
std::vector<PictureOutput> picture_outputs(const Model& model, const PictureOutputOptions& options);

/// Converts all pictures, then writes them, and fills in `port`. Warns on stderr if more than a hundredth of the values
/// was clamped. Error(invalid_argument) for outputs that show no picture, or if several do and no name selects one;
/// Error(io).
void write_pictures(const Model& model, std::span<const Tensor> outputs, const PictureOutputOptions& options,
                    std::vector<PictureOutput>& wanted);

}  // namespace lenslet::tool
