#pragma once
// Classifies many photos: reading, decoding, preparation and the network run side by side, on every core and GPU. A
// component of the package: find_package(lenslet COMPONENTS photos), target lenslet::photos. docs/photos.md.
//
//   lenslet::PhotoClassifier photos(model, lenslet::card_of(model, file).card);
//   photos.classify(lenslet::list_photos({"holiday"}), [](const lenslet::PhotoResult& result) { ... });

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/classifier.h"
#include "lenslet/error.h"
#include "lenslet/model.h"

namespace lenslet {

/// Files as given. A folder stands for its photos (by extension), sorted by path; with `recursive` also those in
/// subfolders, without following links. Nothing is opened: a missing file stays in the list, and reading it reports the
/// error. Error(io) for a folder without photos.
std::vector<std::string> list_photos(const std::vector<std::string>& arguments, bool recursive = false);

struct Photo {
  std::string name;                               ///< the file's path, or a name for `bytes` in results and messages
  std::optional<std::vector<std::byte>> bytes{};  ///< the encoded photo; unset: the file `name` is read
};

struct PhotoResult {
  std::size_t index = 0;  ///< in the order of the photos, from 0
  std::string name;
  std::optional<Error> error{};    ///< why there are no classes: the photo is missing, damaged or refused
  std::vector<ClassResult> top{};  ///< best first
  std::string device{};            ///< "cpu", "cuda:0"
  bool decoded_on_gpu = false;
  double decode_ms = 0, prepare_ms = 0;  ///< of a batch that a GPU decoded: its time, divided by its photos
  double run_ms = 0;                     ///< the network's time, divided by the photos of its batch
};

struct PhotoOptions {
  /// "auto" (one device, as PlanOptions::device), "cpu", "cuda:N", or "all". With several, GPUs take photos as fast as
  /// they can; the CPU, if it is one of them, runs those that find the GPUs' queue full.
  std::vector<std::string> devices{"auto"};
  int threads = 0;         ///< for reading, decoding and CPU devices, in all; 0: the available cores
  std::int64_t batch = 0;  ///< photos in a run; 0: 1 on the CPU, 32 on a GPU. A batch fixed by the model is kept.
  std::size_t top = 5;     ///< classes of each photo
  /// What decodes JPEGs for GPUs: libjpeg-turbo on the CPU, or nvJPEG on the GPU (GpuJpegDecoder). nvJPEG gets baseline
  /// files that are upright, gray or YCbCr and of at most 48 MiB of pixels, and decodes them whole; all other photos
  /// are decoded on the CPU.
  enum class Decode { cpu, gpu } decode = Decode::cpu;
  bool in_order = true;   ///< results in the order of the photos; else as they are ready
  std::size_t count = 0;  ///< photos that will come, if known: a few need fewer Runners. 0: unknown
  std::optional<std::filesystem::path> labels{};  ///< instead of the card's
  PlanOptions plan{};                             ///< the rest; device, threads and batch above replace its own
};

/// Runners of one device, for people and benchmarks.
struct PhotoRunners {
  std::string device;
  int runners = 0, threads = 0;  ///< threads of each Runner
  std::int64_t batch = 0;
};

/// Threads that read, decode, prepare and run. Photos are offered and results taken by one thread at a time; nothing is
/// called back. Memory is bounded: capacity() photos; 256 MiB, or one photo, of files and of what decoding takes, and
/// of the latter 96 MiB for each decoder if that is more. A photo that fails has an error in its result and disturbs no
/// other. The destructor abandons photos whose results were not taken, and waits for those being decoded or run. No use
/// in a fork()ed child.
class PhotoClassifier {
 public:
  /// Plans a Runner for each device. Errors as of Classifier, and with Decode::gpu of GpuJpegDecoder, or
  /// Error(invalid_argument) without a GPU, Error(unsupported) for a model whose input the CPU prepares.
  PhotoClassifier(const Model& model, const Card& card, const PhotoOptions& options = {});
  ~PhotoClassifier();
  PhotoClassifier(const PhotoClassifier&) = delete;
  PhotoClassifier& operator=(const PhotoClassifier&) = delete;

  /// Photos whose results have not been taken, at most.
  std::size_t capacity() const;
  /// Whether no photo would be queued: capacity() photos are under way, or it has failed.
  bool is_full() const;
  /// Queues a photo and returns true; false, and leaves `photo`, if is_full().
  bool offer(Photo&& photo);
  /// Waits for the next result; nothing if no photo is under way. Throws a device's error, a lack of memory, and errors
  /// of a network whose output's shape only a run gives; nothing more can be done then.
  std::optional<PhotoResult> take();
  /// The same, waiting at most so long: nothing if the next result is not ready by then.
  std::optional<PhotoResult> take_within(std::chrono::milliseconds most);
  /// The same without waiting.
  std::optional<PhotoResult> take_ready() { return take_within({}); }

  /// Offers what `next` returns until it returns nothing, and passes each result to `done` until that returns false.
  /// Both are called by this thread only.
  void classify(const std::function<std::optional<Photo>()>& next, const std::function<bool(PhotoResult&&)>& done);
  /// The same for files.
  void classify(std::span<const std::string> files, const std::function<bool(PhotoResult&&)>& done);

  /// One entry for each device.
  const std::vector<PhotoRunners>& runners() const;
  /// Threads that read and decode.
  int decoders() const;
  /// GpuJpegDecoder::description() of the first GPU; "" with Decode::cpu.
  const std::string& gpu_decoder() const;
  const BoundCard& bound() const;
  /// The plan of the first device's Runner.
  const PlanInfo& plan() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace lenslet
