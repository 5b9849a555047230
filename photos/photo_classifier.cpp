#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "lenslet/gpu_jpeg.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "photos/byte_budget.h"
#include "photos/dtype_convert.h"
#include "photos/photo_devices.h"
#include "photos/pictures/decoders.h"
#include "photos/pictures/read_file.h"

namespace lenslet {

using namespace photos;

namespace {

constexpr std::int64_t most_bytes = std::int64_t{256} << 20;      // of files, and of pixels
constexpr std::int64_t most_of_decoder = std::int64_t{96} << 20;  // at least: a progressive JPEG of 16 megapixels
constexpr std::int64_t most_on_gpu = std::int64_t{48} << 20;      // a GPU decodes no larger photo

class Stopwatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

struct Queued {
  Photo photo;
  PhotoResult result;
};

/// A photo on its way: a file, whose picture is decoded now, or later by a GPU.
struct Opened {
  Photo photo;
  PhotoResult result;
  ByteBudget::Share file{}, pixels{};  // given back after what they are for is freed
  std::string read{};                  // the file's bytes, if the photo came without
  std::optional<PictureSize> for_gpu{};
  Picture picture{};
  ImageView on_gpu{};

  std::span<const std::byte> bytes() const {
    return photo.bytes ? std::span(*photo.bytes) : std::as_bytes(std::span(read));
  }
  std::int64_t gpu_bytes() const { return for_gpu ? 3 * for_gpu->height * for_gpu->width : 0; }
  void free_file() {
    photo.bytes.reset();
    std::string().swap(read);  // an assignment would keep the memory
    file = {};
  }
};

/// A Runner, and the photos in the slots of its next batch.
struct Batch {
  std::unique_ptr<Classifier> classifier;
  const PhotoRunners& on;
  std::vector<PhotoResult> photos{};
  bool full() const { return static_cast<std::int64_t>(photos.size()) == classifier->batch(); }
};

/// With texts of its own: std::runtime_error's copies share theirs between threads, by a counter that ThreadSanitizer
/// does not see.
Error copy_of(const Error& error) { return {error.kind(), error.message(), error.context()}; }

PlanOptions plan_for(const PhotoRunners& on, const PhotoOptions& options) {
  PlanOptions plan = options.plan;
  plan.device = on.device;
  plan.threads = on.threads;
  plan.batch = on.batch;
  return plan;
}

}  // namespace

/// One mutex guards the queues: a photo takes milliseconds of a core, and a few microseconds of the mutex.
class PhotoClassifier::Work {
 public:
  Work(const Model& model, const Card& card, const PhotoOptions& options)
      : model_(model),
        card_(card),
        options_(options),
        runners_(photo_runners(model, card, options)),
        decoders_(decoders_for(runners_, options)),
        first_(make(runners_.front())),
        bound_(first_->bound()),
        plan_(first_->plan()),
        gpu_decodes_(options.decode == PhotoOptions::Decode::gpu) {
    if (gpu_decodes_) check_gpu_decodes();
    stop_ = stopper_.source.get_token();
    for (const PhotoRunners& on : runners_) {
      capacity_ += static_cast<std::size_t>(2 * on.runners * on.batch);
      for (int i = 0; is_gpu(on) && i < on.runners; ++i) {
        most_opened_ += static_cast<std::size_t>(on.batch);
        std::unique_ptr<GpuJpegDecoder> decoder;
        if (gpu_decodes_) decoder = std::make_unique<GpuJpegDecoder>(on.device);
        if (decoder && gpu_decoder_.empty()) gpu_decoder_ = decoder->description();
        start([this, batch = Batch{std::move(first_), on}, decoder = std::move(decoder)]() mutable {
          serve_gpu(batch, decoder.get());
        });
      }
    }
    capacity_ += static_cast<std::size_t>(4 * decoders_);
    const PhotoRunners* cpu = is_gpu(runners_.back()) ? nullptr : &runners_.back();
    for (int i = 0; i < decoders_; ++i)
      if (cpu != nullptr && i < cpu->runners)
        start([this, batch = Batch{std::move(first_), *cpu}]() mutable { decode_photos(&batch); });
      else
        start([this] { decode_photos(nullptr); });
  }

  bool offer(Photo&& photo) {
    const std::lock_guard lock(mutex_);
    if (is_full_locked()) return false;
    Queued queued{std::move(photo), {}};
    queued.result.index = offered_;
    queued.result.name = queued.photo.name;
    queued_.push_back(std::move(queued));
    ++offered_;  // not if memory was short: take() would wait for it
    to_decode_.notify_one();
    return true;
  }

  std::optional<PhotoResult> take(std::optional<std::chrono::milliseconds> most) {
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return !done_.empty() && (!options_.in_order || done_.begin()->first == taken_); };
    const auto is_decided = [&] { return failure_ || offered_ == taken_ || is_ready(); };
    if (most)
      to_take_.wait_for(lock, std::clamp<std::chrono::milliseconds>(*most, {}, std::chrono::hours(9999)), is_decided);
    else
      to_take_.wait(lock, is_decided);
    if (failure_) std::rethrow_exception(failure_);
    if (!is_ready()) return std::nullopt;
    ++taken_;
    return std::move(done_.extract(done_.begin()).mapped());
  }

  std::size_t capacity() const { return capacity_; }
  bool is_full() const {
    const std::lock_guard lock(mutex_);
    return is_full_locked();
  }
  const std::vector<PhotoRunners>& runners() const { return runners_; }
  int decoders() const { return decoders_; }
  const BoundCard& bound() const { return bound_; }
  const PlanInfo& plan() const { return plan_; }
  const std::string& gpu_decoder() const { return gpu_decoder_; }

 private:
  void check_gpu_decodes() const {
    if (!is_gpu(runners_.front()))
      throw Error(ErrorKind::invalid_argument, "photos are decoded on the GPU where a GPU runs them; none does");
    if (const DType dtype = model_.inputs()[bound_.input].dtype; !is_float(dtype))
      throw Error(
          ErrorKind::unsupported,
          fmt::format("the input is {}, which the CPU prepares: photos cannot be decoded on the GPU", to_string(dtype)),
          model_.name());
  }

  bool is_full_locked() const { return failure_ || offered_ - taken_ >= capacity_; }

  std::unique_ptr<Classifier> make(const PhotoRunners& on) const {
    return std::make_unique<Classifier>(model_, card_, options_.labels, plan_for(on, options_));
  }

  template <typename Loop>
  void start(Loop loop) {
    threads_.emplace_back([this, loop = std::move(loop)]() mutable {
      try {
        loop();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        to_take_.notify_all();
        stopper_.source.request_stop();
      }
    });
  }

  /// Moves up to `most` items out of `queue`, with `wait` once it has one, and no second one that does not `fit`. None:
  /// the end, or none are there.
  template <typename Item, typename Fits>
  std::vector<Item> next(std::deque<Item>& queue, std::condition_variable_any& filled, std::size_t most, bool wait,
                         const Fits& fits) {
    std::unique_lock lock(mutex_);
    if (wait) filled.wait(lock, stop_, [&] { return !queue.empty(); });
    std::vector<Item> items;
    for (; !stop_.stop_requested() && !queue.empty() && items.size() < most; queue.pop_front()) {
      if (!fits(queue.front()) && !items.empty()) break;
      items.push_back(std::move(queue.front()));
    }
    return items;
  }

  /// With `batch`, of the CPU, this thread also runs photos: all, or those that find the GPUs' queue full.
  void decode_photos(Batch* batch) {
    if (batch != nullptr && batch->classifier == nullptr) batch->classifier = make(batch->on);
    for (;;) {
      const bool has_photos = batch != nullptr && !batch->photos.empty();
      std::vector<Queued> next_one = next(queued_, to_decode_, 1, !has_photos, [](const Queued&) { return true; });
      if (next_one.empty()) {
        if (!has_photos || stop_.stop_requested()) return;
        run(*batch);
        continue;
      }
      std::optional<Opened> opened = open(std::move(next_one.front()));
      if (!opened || (most_opened_ > 0 && to_gpu(*opened, batch == nullptr))) continue;
      if (stop_.stop_requested()) return;
      if (opened->for_gpu && !decode(*opened, true)) continue;
      prepare(*batch, *std::move(opened));
      if (batch->full()) run(*batch);
    }
  }

  void serve_gpu(Batch& batch, GpuJpegDecoder* decoder) {
    if (batch.classifier == nullptr) batch.classifier = make(batch.on);
    for (;;) {
      std::int64_t bytes = 0;
      std::vector<Opened> photos =
          next(opened_, to_run_, static_cast<std::size_t>(batch.classifier->batch()), true, [&](const Opened& opened) {
            bytes += opened.gpu_bytes();
            return bytes <= most_bytes;
          });
      if (photos.empty()) return;
      gpu_not_full_.notify_all();
      if (decoder != nullptr) decode_on_gpu(*decoder, photos);
      for (Opened& opened : photos) prepare(batch, std::move(opened));
      run(batch);
    }
  }

  /// Reads the photo, and decodes it if no GPU does. Nothing: it has its result, an error.
  std::optional<Opened> open(Queued&& queued) {
    const Stopwatch watch;
    std::optional<Opened> opened(Opened{std::move(queued.photo), std::move(queued.result)});
    if (!succeeds(*opened, [&] {
          if (!opened->photo.bytes) read(*opened);
          if (gpu_decodes_) opened->for_gpu = jpeg_for_gpu(opened->bytes());
        }))
      return std::nullopt;
    if (opened->gpu_bytes() > most_on_gpu) opened->for_gpu.reset();
    opened->result.decode_ms = watch.ms();
    if (!opened->for_gpu && !decode(*opened, true)) return std::nullopt;
    return opened;
  }

  void read(Opened& opened) {
    const std::string& name = opened.photo.name;
    std::error_code error;  // such files are refused, as are those that are too large
    if (const auto size = std::filesystem::file_size(name, error); !error && size <= max_image_file_bytes)
      opened.file = files_.take(static_cast<std::int64_t>(size), stop_);
    opened.read = read_when_possible(name);
  }

  /// Tries again, as long as other threads read, which have descriptors to give back. CannotOpenNow if none does.
  std::string read_when_possible(const std::string& name) {
    for (;;) {
      const bool began_alone = ++reading_ == 1;
      try {
        std::string bytes = read_photo(name);
        --reading_;
        return bytes;
      } catch (const CannotOpenNow&) {
        if (--reading_ == 0 && began_alone) throw;
      } catch (...) {
        --reading_;
        throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  /// On the CPU. False: the photo has its result, an error. A GPU's thread does not wait for `pixels_`, which the GPUs'
  /// queue may hold.
  bool decode(Opened& opened, bool wait) {
    const auto reserve = [&](std::int64_t bytes) {
      if (!wait) return;
      opened.pixels = {};  // of an earlier call: two shares could wait for each other
      opened.pixels = pixels_.take(bytes, stop_);
    };
    const Stopwatch watch;
    opened.for_gpu.reset();
    return succeeds(opened, [&] {
      opened.picture =
          decode_image(opened.bytes(), opened.photo.name, {.reserve = reserve, .draft = card_.draft_spec()});
      opened.pixels.shrink(static_cast<std::int64_t>(opened.picture.pixels.size()));
      opened.free_file();
      opened.result.decode_ms += watch.ms();
    });
  }

  /// Whether `step` succeeded; otherwise the photo has its result.
  template <typename Step>
  bool succeeds(Opened& opened, const Step& step) {
    try {
      step();
      return true;
    } catch (const CannotOpenNow&) {
      throw;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::device) throw;
      opened.result.error = copy_of(error);
      finish(std::move(opened.result));
      return false;
    }
  }

  /// Removes those that turn out to be broken.
  void decode_on_gpu(GpuJpegDecoder& decoder, std::vector<Opened>& photos) {
    const Stopwatch watch;
    std::vector<GpuJpeg> files;
    for (const Opened& opened : photos)
      if (opened.for_gpu) files.push_back({opened.bytes(), opened.for_gpu->height, opened.for_gpu->width});
    if (files.empty()) return;
    const std::vector<ImageView> images = decoder.decode(files);
    const double ms = watch.ms() / static_cast<double>(files.size());
    auto image = images.begin();
    std::erase_if(photos, [&](Opened& opened) {
      if (!opened.for_gpu) return false;
      opened.on_gpu = *image++;
      if (opened.on_gpu.pixels == nullptr) return !decode(opened, false);
      opened.result.decoded_on_gpu = true;
      opened.result.decode_ms += ms;
      opened.free_file();
      return false;
    });
  }

  /// Leaves the photo, and returns false, if the GPUs' queue is full. With `wait` it waits until it is not.
  bool to_gpu(Opened& opened, bool wait) {
    std::unique_lock lock(mutex_);
    const auto not_full = [&] { return opened_.size() < most_opened_; };
    if (wait) gpu_not_full_.wait(lock, stop_, not_full);
    if (!not_full()) return wait;  // waited in vain: the end
    opened_.push_back(std::move(opened));
    to_run_.notify_one();
    return true;
  }

  void prepare(Batch& batch, Opened opened) {
    const Stopwatch watch;
    try {
      batch.classifier->prepare(opened.on_gpu.pixels != nullptr ? opened.on_gpu : opened.picture.view(),
                                static_cast<std::int64_t>(batch.photos.size()));
    } catch (const Error& error) {
      // Not the photo's fault: a device error, or no memory for pixels within the limits.
      if (error.kind() == ErrorKind::device || error.kind() == ErrorKind::limit) throw;
      opened.result.error = copy_of(error);
      return finish(std::move(opened.result));
    }
    opened.result.prepare_ms = watch.ms();
    batch.photos.push_back(std::move(opened.result));
  }

  void run(Batch& batch) {
    if (batch.photos.empty()) return;
    const Stopwatch watch;
    batch.classifier->run();
    const double ms = watch.ms() / static_cast<double>(batch.photos.size());
    for (std::size_t slot = 0; slot < batch.photos.size(); ++slot) {
      PhotoResult& result = batch.photos[slot];
      result.run_ms = ms;
      result.device = batch.on.device;
      result.top = batch.classifier->top(static_cast<std::int64_t>(slot), options_.top);
      finish(std::move(result));
    }
    batch.photos.clear();
  }

  void finish(PhotoResult&& result) {
    const std::lock_guard lock(mutex_);
    done_.emplace(result.index, std::move(result));
    to_take_.notify_one();
  }

  /// Destroyed before the threads are joined.
  struct Stopper {
    std::stop_source source;
    ~Stopper() { source.request_stop(); }
  };

  const Model model_;
  const Card card_;
  const PhotoOptions options_;
  const std::vector<PhotoRunners> runners_;
  const int decoders_;
  std::unique_ptr<Classifier> first_;  // goes to the first thread
  const BoundCard bound_;
  const PlanInfo plan_;
  const bool gpu_decodes_;
  std::string gpu_decoder_;
  std::size_t capacity_ = 0, most_opened_ = 0;  // most_opened_: 0 without a GPU

  mutable std::mutex mutex_;
  std::condition_variable_any to_decode_, to_run_, gpu_not_full_;
  std::condition_variable to_take_;
  std::deque<Queued> queued_;
  std::deque<Opened> opened_;
  std::map<std::size_t, PhotoResult> done_;  // by index
  std::size_t offered_ = 0, taken_ = 0;
  std::exception_ptr failure_;
  // A thread takes of files_ first: whoever has taken of pixels_ waits for neither.
  ByteBudget files_{most_bytes}, pixels_{std::max(most_bytes, decoders_*most_of_decoder)};

  std::atomic<int> reading_ = 0;  // threads in read() that do not wait

  std::stop_token stop_;
  std::vector<std::jthread> threads_;
  Stopper stopper_;
};

PhotoClassifier::PhotoClassifier(const Model& model, const Card& card, const PhotoOptions& options)
    : work_(std::make_unique<Work>(model, card, options)) {}
PhotoClassifier::~PhotoClassifier() = default;

std::size_t PhotoClassifier::capacity() const { return work_->capacity(); }
bool PhotoClassifier::is_full() const { return work_->is_full(); }
bool PhotoClassifier::offer(Photo&& photo) { return work_->offer(std::move(photo)); }
std::optional<PhotoResult> PhotoClassifier::take() { return work_->take(std::nullopt); }
std::optional<PhotoResult> PhotoClassifier::take_within(std::chrono::milliseconds most) { return work_->take(most); }
const std::vector<PhotoRunners>& PhotoClassifier::runners() const { return work_->runners(); }
int PhotoClassifier::decoders() const { return work_->decoders(); }
const std::string& PhotoClassifier::gpu_decoder() const { return work_->gpu_decoder(); }
const BoundCard& PhotoClassifier::bound() const { return work_->bound(); }
const PlanInfo& PhotoClassifier::plan() const { return work_->plan(); }

void PhotoClassifier::classify(const std::function<std::optional<Photo>()>& next,
                               const std::function<bool(PhotoResult&&)>& done) {
  for (std::optional<Photo> photo = next(); photo; photo = next())
    for (bool offered = false; !offered;) {
      offered = offer(std::move(*photo));
      for (auto result = offered ? take_ready() : take(); result; result = take_ready())
        if (!done(std::move(*result))) return;
    }
  while (auto result = take())
    if (!done(std::move(*result))) return;
}

void PhotoClassifier::classify(std::span<const std::string> files, const std::function<bool(PhotoResult&&)>& done) {
  std::size_t next = 0;
  classify([&] { return next < files.size() ? std::optional(Photo{files[next++]}) : std::nullopt; }, done);
}

}  // namespace lenslet
