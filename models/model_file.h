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

/// The file's structure is read first. Large raw data of initializers is left out, and read when it is asked for, to
/// where it stays: so it is copied once, and aligned, wherever in the file it lies.
class ModelFile {
 public:
  /// Errors have the file's name as their context.
  explicit ModelFile(const std::filesystem::path& file);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  /// As long as the file; what is left out is anything.
  std::span<const std::byte> bytes() const { return {memory_, static_cast<std::size_t>(file_.bytes())}; }
  /// Raw data that is a part of bytes(): read, if it was left out; no owner if it was not. Error(io), without a
  /// context.
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
