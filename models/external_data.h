#pragma once
// Weights kept in files beside the model (TensorProto.data_location EXTERNAL).

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "models/input_file.h"
#include "models/onnx_reader.h"
#include "models/weight_memory.h"

namespace lenslet {

/// The external files of one model. Locations are relative to the folder and must stay in it: no absolute path, no
/// "..", no folder that is a symlink out of it. A file may be a symlink to anywhere, as in download caches, if the
/// link's owner also owns the target. Hard links are allowed.
class ExternalData {
 public:
  /// An empty path: no folder, external tensors are refused.
  explicit ExternalData(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The `bytes` bytes that the tensor's entries (location, offset, length) refer to, aligned for every type; read once
  /// if several tensors refer to the same. Error(invalid_model | io | limit) names the entry and the fault.
  WeightMemory::Part read(const OnnxTensor& tensor, std::uint64_t bytes);

 private:
  const InputFile& open(const std::string& location);

  std::filesystem::path folder_;
  std::map<std::string, InputFile::Identity> seen_;  ///< by location, when first opened
  std::string location_;                             ///< of `file_`, the only open one
  std::optional<InputFile> file_;
  WeightMemory weights_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> taken_;  ///< bytes read, by device and number
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>, WeightMemory::Part>
      parts_;  ///< and offset, length
};

}  // namespace lenslet
