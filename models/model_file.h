#pragma once
// An ONNX file while it is loaded.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>

#include "models/input_file.h"
#include "models/weight_memory.h"

namespace lenslet {

/// Reads the file's structure first and skips the initializers' large raw data. This is read on request directly to its
/// final, aligned memory, so it is copied only once.
class ModelFile {
 public:
  /// Errors have the file's name as their context.
  explicit ModelFile(const std::filesystem::path& file);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  /// As long as the file; the contents of skipped ranges are undefined.
  std::span<const std::byte> bytes() const { return {memory_, static_cast<std::size_t>(file_.bytes())}; }
  /// Raw data, a range of bytes(): read now if it was skipped, else without owner. Error(io), without a context.
  WeightMemory::Part read(std::span<const std::byte> raw_data);

 private:
  class Skim;

  InputFile file_;
  std::byte* memory_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> left_out_;  ///< offset: length
  std::uint64_t to_come_ = 0;
  WeightMemory weights_;
};

}  // namespace lenslet
