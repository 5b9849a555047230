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

/// The external files of one model. Locations are relative to the folder, and stay in it: no absolute path, no "..", no
/// folder that is a symlink out of it. A file may be a symlink to anywhere, as in download caches, if who made the link
/// owns what it leads to. A hard link is a file like any other.
class ExternalData {
 public:
  /// An empty folder: there is none, and external tensors are refused.
  explicit ExternalData(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The `bytes` bytes that tensor's entries (location, offset, length) point at, aligned for every type, and read once
  /// for all tensors that point at the same. Error(invalid_model | io | limit) says what is wrong with which entry.
  WeightMemory::Part read(const OnnxTensor& tensor, std::uint64_t bytes);

 private:
  const InputFile& open(const std::string& location);

  std::filesystem::path folder_;
  std::map<std::string, InputFile::Identity> seen_;  ///< by location, as it was when it was first opened
  std::string location_;                             ///< of `file_`: one is open at a time
  std::optional<InputFile> file_;
  WeightMemory weights_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> taken_;  ///< bytes read, by device and number
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>, WeightMemory::Part>
      parts_;  ///< and offset, length
};

}  // namespace lenslet
