#include "models/model_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

/// Finds the tensors that hold weights, as far as it understands the file. The rest is read and judged by the parser,
/// which sees the same bytes.
class ModelFile::Skim {
 public:
  explicit Skim(ModelFile& model) : model_(model), size_(model.file_.bytes()) {}

  void run() {
    static_cast<void>(walk(Level::model, 0, size_));
    read_to(size_);
  }

 private:
  enum class Level { model, graph, node, attribute, tensor };
  /// The message fields that it descends into.
  struct Inner {
    Level outer;
    std::uint64_t field;
    Level inner;
  };
  static constexpr Inner inner[] = {{Level::model, 7, Level::graph},
                                    {Level::graph, 5, Level::tensor},
                                    {Level::graph, 1, Level::node},
                                    {Level::node, 5, Level::attribute},
                                    {Level::attribute, 5, Level::tensor}};
  static constexpr std::uint64_t block = 8192, large = 16384;

  void read_to(std::uint64_t end) {
    if (end <= there_) return;
    end = std::min(size_, std::max(end, there_ + block));
    model_.file_.read(there_, {model_.memory_ + there_, static_cast<std::size_t>(end - there_)});
    there_ = end;
  }

  bool varint(std::uint64_t& at, std::uint64_t end, std::uint64_t& value) {
    read_to(std::min(end, at + 10));
    value = 0;
    for (unsigned shift = 0; shift < 64 && at < end; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(model_.memory_[at++]);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool walk(Level level, std::uint64_t at, std::uint64_t end) {
    std::uint64_t tag = 0, length = 0;
    while (at < end) {
      if (!varint(at, end, tag)) return false;
      const std::uint64_t field = tag >> 3U, type = tag & 7U;
      if (type == 0) {
        if (!varint(at, end, length)) return false;
        continue;
      }
      if (type == 1 || type == 5) {
        length = type == 1 ? 8 : 4;
      } else if (type != 2 || !varint(at, end, length)) {
        return false;
      }
      if (length > end - at) return false;
      if (type == 2)
        for (const Inner& row : inner)
          if (row.outer == level && row.field == field && !walk(row.inner, at, at + length)) return false;
      if (level == Level::tensor && type == 2 && field == 9 && length >= large) {
        model_.left_out_.emplace(at, length);
        model_.to_come_ += length;
        there_ = std::max(there_, at + length);
      }
      at += length;
    }
    return true;
  }

  ModelFile& model_;
  const std::uint64_t size_;
  std::uint64_t there_ = 0;  ///< everything before is read or skipped
};

ModelFile::ModelFile(const std::filesystem::path& file) : file_(file, limits::model_file_bytes) {
  if (file_.bytes() == 0) return;
  // Pages of skipped data are never touched.
  void* const memory =
      ::mmap(nullptr, bytes().size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  try {
    Skim(*this).run();
  } catch (const Error& error) {
    ::munmap(memory_, bytes().size());
    throw error.within(file.string());
  } catch (...) {
    ::munmap(memory_, bytes().size());
    throw;
  }
}

ModelFile::~ModelFile() {
  if (memory_ != nullptr) ::munmap(memory_, bytes().size());
}

WeightMemory::Part ModelFile::read(std::span<const std::byte> raw_data) {
  if (raw_data.empty()) return {};
  const auto found = left_out_.find(static_cast<std::uint64_t>(raw_data.data() - memory_));
  if (found == left_out_.end() || found->second != raw_data.size()) return {};
  const WeightMemory::Part part = weights_.take(raw_data.size(), to_come_ + 64 * left_out_.size());
  to_come_ -= std::min<std::uint64_t>(to_come_, raw_data.size());
  file_.read(found->first, part.bytes);
  return part;
}

}  // namespace lenslet
