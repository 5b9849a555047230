#pragma once
// Weights kept in files beside the model (TensorProto.data_location EXTERNAL).

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/mapped_file.h"
#include "models/onnx_reader.h"

namespace lenslet {

/// The external files of one model, each mapped once. Locations are relative to the folder, and stay in it: no absolute
/// path, no "..", no symlink that leads out.
class ExternalData {
 public:
  /// An empty folder: there is none, and external tensors are refused.
  explicit ExternalData(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The `bytes` bytes that tensor's entries (location, offset, length) point at.
  /// Error(invalid_model | io | limit) says what is wrong with which entry.
  MappedFile read(const OnnxTensor& tensor, std::uint64_t bytes);
  /// Those that were read from.
  std::vector<MappedFile> files() const;

 private:
  const MappedFile& open(const std::string& location);

  std::filesystem::path folder_;
  std::map<std::string, MappedFile> files_;
};

}  // namespace lenslet
