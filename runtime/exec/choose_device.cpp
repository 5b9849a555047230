// choose_device(): resolves device names.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <mutex>

#include "base/boundary.h"
#include "base/cuda/device.h"
#include "base/fork.h"
#include "lenslet/device.h"
#include "lenslet/error.h"
#include "runtime/exec/device_name.h"

namespace lenslet {

namespace {

// Cache of the driver and the devices queried so far. Later changes are not noticed, so that all plans of a process
// agree.
class Seen {
 public:
  Seen() : count_(cuda::query_driver(driver_)) {}
  const CudaInfo& driver() const { return driver_; }
  int count() const { return count_; }
  unsigned process() const { return process_; }
  /// Returns a copy, since the map may grow concurrently. `index` in [0, count).
  DeviceInfo device(int index) {
    const std::lock_guard lock(mutex_);
    auto [it, added] = devices_.try_emplace(index);
    if (added) it->second = cuda::query_device(index);
    return it->second;
  }

 private:
  const unsigned process_ = fork_count();
  CudaInfo driver_;
  int count_;
  std::mutex mutex_;
  std::map<int, DeviceInfo> devices_;
};

Seen& seen() {
  static Seen once;
  if (once.process() == fork_count()) return once;
  static Seen in_child;  // a fork()ed child must not use its parent's results
  return in_child;
}

// Why `index` cannot be used; fills `choice` when it can.
std::optional<std::string> refuse(int index, DeviceChoice& choice) {
  if (seen().count() == 0) return seen().driver().reason;
  if (index >= seen().count())
    return fmt::format("no such device: the driver shows {}, cuda:0{}", seen().count(),
                       seen().count() == 1 ? "" : fmt::format(" to cuda:{}", seen().count() - 1));
  const DeviceInfo info = seen().device(index);
  if (!info.usable) return info.reason;
  choice.id = info.id;
  choice.cuda_index = index;
  choice.multiprocessors = info.cores;
  choice.name = info.name;
  if (!info.note.empty()) choice.note = fmt::format("{}: {}", info.id, info.note);
  return std::nullopt;
}

}  // namespace

std::optional<int> cuda_index(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  name.remove_prefix(5);
  int index = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (status != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

DeviceChoice choose_device(const std::string& name) {
  return at_boundary([&] {
    DeviceChoice choice;
    if (name == "cpu") return choice;
    if (name == "auto") {
      const auto refusal = refuse(0, choice);
      if (refusal && seen().driver().built) choice.note = fmt::format("device auto: using the CPU: {}", *refusal);
      return choice;
    }
    const std::optional<int> index = cuda_index(name);
    if (!index)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("unknown device '{}'; known: auto, cpu, cuda, cuda:INDEX", name));
    if (const auto refusal = refuse(*index, choice))
      throw Error(ErrorKind::device, fmt::format("device '{}': {}", name, *refusal));
    return choice;
  });
}

}  // namespace lenslet
