#pragma once
// --output [NAME=]FILE.png: outputs as pictures.

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
  std::optional<std::size_t> port;  ///< of Model::outputs(); none: the only output that shows a picture
  std::filesystem::path file;
};

/// What `options` ask for. Error(invalid_argument) for names that no output has, files that do not end in .png, and a
/// scale without a file.
std::vector<PictureOutput> picture_outputs(const Model& model, const PictureOutputOptions& options);

/// Writes them, all looked at before the first is written, and fills in `port`. Says on stderr where more than a
/// hundredth was clamped. Error(invalid_argument) for outputs that show no picture, or where several do and no name
/// says which; Error(io).
void write_pictures(const Model& model, std::span<const Tensor> outputs, const PictureOutputOptions& options,
                    std::vector<PictureOutput>& wanted);

}  // namespace lenslet::tool
