#pragma once
// Bounds the bytes of files, or of pixels, that are in memory at once.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <utility>

namespace lenslet::photos {

class ByteBudget {
 public:
  explicit ByteBudget(std::int64_t bytes) : free_(bytes), all_(bytes) {}

  /// Bytes taken, given back with it.
  class Share {
   public:
    Share() = default;
    Share(ByteBudget& of, std::int64_t bytes) : of_(&of), bytes_(bytes) {}
    Share(Share&& other) noexcept : of_(std::exchange(other.of_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { shrink(0); }
    /// Keeps at most `bytes`.
    void shrink(std::int64_t bytes) {
      if (of_ != nullptr && bytes < bytes_) of_->give_back(bytes_ - bytes);
      bytes_ = std::min(bytes_, bytes);
    }

   private:
    ByteBudget* of_ = nullptr;
    std::int64_t bytes_ = 0;
  };

  /// Waits until `bytes` are free, or all of them for a file or photo beyond the budget. At once if `stop` is
  /// requested.
  Share take(std::int64_t bytes, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return free_ >= bytes || free_ == all_; });
    free_ -= bytes;
    return {*this, bytes};
  }

 private:
  void give_back(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    free_ += bytes;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t free_;
  const std::int64_t all_;
};

}  // namespace lenslet::photos
