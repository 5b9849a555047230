#include "photos/photo_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "lenslet/device.h"
#include "lenslet/error.h"

namespace lenslet::photos {

namespace {

constexpr std::int64_t gpu_batch = 32;
constexpr int runners_of_a_gpu = 2;  // one uploads photos while the other computes

std::string known_device(const std::string& name) {
  try {
    return choose_device(name).id;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw Error(error.kind(), fmt::format("{}, all", error.message()));  // the known ones are listed last
  }
}

std::vector<std::string> device_names(const PhotoOptions& options) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& asked : options.devices) {
    if (asked != "all") {
      add(known_device(asked));
      continue;
    }
    for (const DeviceInfo& device : query_devices().devices)
      if (device.usable) add(device.id);
  }
  if (names.empty()) throw Error(ErrorKind::invalid_argument, "no device to classify photos on");
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name != "cpu"; });
  return names;
}

int cores_of(const PhotoOptions& options) {
  return std::max(options.threads > 0 ? options.threads : query_cpu().cores, 1);
}

}  // namespace

bool is_gpu(const PhotoRunners& runners) { return runners.device != "cpu"; }

std::vector<PhotoRunners> photo_runners(const Model& model, const Card& card, const PhotoOptions& options) {
  if (options.threads < 0 || options.threads > 1024)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} threads; 0 (all cores) to 1024 are allowed", options.threads));
  if (options.batch < 0) throw Error(ErrorKind::invalid_argument, fmt::format("the batch is {}", options.batch));
  const std::int64_t fixed = bind_card(card, model).fixed_batch;
  const auto count = static_cast<std::int64_t>(options.count);
  std::vector<PhotoRunners> made;
  for (const std::string& device : device_names(options)) {
    PhotoRunners on{device, runners_of_a_gpu, 1, options.batch > 0 ? options.batch : gpu_batch};
    if (!is_gpu(on) && options.batch <= 0) on.batch = 1;
    if (count > 0) on.batch = std::min(on.batch, count);
    if (fixed > 0) on.batch = fixed;
    const std::int64_t batches = count > 0 ? (count + on.batch - 1) / on.batch : 1024;
    if (is_gpu(on)) {
      on.runners = static_cast<int>(std::min<std::int64_t>(on.runners, batches));
    } else {
      on.runners = static_cast<int>(std::min<std::int64_t>(cores_of(options), batches));
      on.threads = cores_of(options) / on.runners;
    }
    made.push_back(on);
  }
  return made;
}

int decoders_for(const std::vector<PhotoRunners>& runners, const PhotoOptions& options) {
  if (!is_gpu(runners.front())) return runners.front().runners;
  const int most = options.count > 0 ? static_cast<int>(std::min<std::size_t>(options.count, 1024)) : 1024;
  return std::min(cores_of(options), most);
}

}  // namespace lenslet::photos
