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

#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "photos/byte_budget.h"
#include "photos/photo_devices.h"
#include "photos/pictures/read_file.h"

namespace lenslet {

using namespace photos;

namespace {

constexpr std::int64_t most_bytes = std::int64_t{256} << 20;      // of files, and of pixels
constexpr std::int64_t most_of_decoder = std::int64_t{96} << 20;  // at least: a progressive JPEG of 16 megapixels

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

struct Decoded {
  Picture picture;
  ByteBudget::Share pixels;
  PhotoResult result;
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
        plan_(first_->plan()) {
    stop_ = stopper_.source.get_token();
    for (const PhotoRunners& on : runners_) {
      capacity_ += static_cast<std::size_t>(2 * on.runners * on.batch);
      for (int i = 0; is_gpu(on) && i < on.runners; ++i) {
        most_decoded_ += static_cast<std::size_t>(on.batch);
        start([this, batch = Batch{std::move(first_), on}]() mutable { serve_gpu(batch); });
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

 private:
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

  /// Moves up to `most` items out of `queue`, with `wait` once it has one. None: the end, or none are there.
  template <typename Item>
  std::vector<Item> next(std::deque<Item>& queue, std::condition_variable_any& filled, std::size_t most, bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) filled.wait(lock, stop_, [&] { return !queue.empty(); });
    std::vector<Item> items;
    for (; !stop_.stop_requested() && !queue.empty() && items.size() < most; queue.pop_front())
      items.push_back(std::move(queue.front()));
    return items;
  }

  /// With `batch`, of the CPU, this thread also runs photos: all, or those that find the GPUs' queue full.
  void decode_photos(Batch* batch) {
    if (batch != nullptr && batch->classifier == nullptr) batch->classifier = make(batch->on);
    for (;;) {
      const bool has_photos = batch != nullptr && !batch->photos.empty();
      std::vector<Queued> next_one = next(queued_, to_decode_, 1, !has_photos);
      if (next_one.empty()) {
        if (!has_photos || stop_.stop_requested()) return;
        run(*batch);
        continue;
      }
      std::optional<Decoded> decoded = decode(std::move(next_one.front()));
      if (!decoded || (most_decoded_ > 0 && to_gpu(*decoded, batch == nullptr))) continue;
      if (stop_.stop_requested()) return;
      prepare(*batch, *std::move(decoded));
      if (batch->full()) run(*batch);
    }
  }

  void serve_gpu(Batch& batch) {
    if (batch.classifier == nullptr) batch.classifier = make(batch.on);
    for (;;) {
      std::vector<Decoded> pictures =
          next(decoded_, to_run_, static_cast<std::size_t>(batch.classifier->batch()), true);
      if (pictures.empty()) return;
      gpu_not_full_.notify_all();
      for (Decoded& decoded : pictures) prepare(batch, std::move(decoded));
      run(batch);
    }
  }

  /// Tries again, as long as other threads read, which have descriptors to give back. CannotOpenNow if none does.
  Picture read(const std::string& file, const DecodeOptions& options) {
    for (;;) {
      const bool began_alone = ++reading_ == 1;
      try {
        Picture picture = read_image(file, options);
        --reading_;
        return picture;
      } catch (const CannotOpenNow& error) {
        if (--reading_ == 0 && began_alone) throw;
      } catch (...) {
        --reading_;
        throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::optional<Decoded> decode(Queued&& queued) {
    const Stopwatch watch;
    Decoded decoded{{}, {}, std::move(queued.result)};
    const auto reserve = [&](std::int64_t size) {
      decoded.pixels = {};  // of an earlier call: two shares could wait for each other
      decoded.pixels = pixels_.take(size, stop_);
    };
    const DecodeOptions options{.reserve = reserve, .draft = card_.draft_spec()};
    try {
      const auto& [name, bytes] = queued.photo;
      if (bytes) {
        decoded.picture = decode_image(*bytes, name, options);
      } else {
        ByteBudget::Share file;
        std::error_code error;  // such files are refused, as are those that are too large
        if (const auto size = std::filesystem::file_size(name, error); !error && size <= max_image_file_bytes)
          file = files_.take(static_cast<std::int64_t>(size), stop_);
        decoded.picture = read(name, options);
      }
    } catch (const CannotOpenNow&) {
      throw;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::device) throw;
      decoded.result.error = copy_of(error);
      finish(std::move(decoded.result));
      return std::nullopt;
    }
    decoded.pixels.shrink(static_cast<std::int64_t>(decoded.picture.pixels.size()));
    decoded.result.decode_ms = watch.ms();
    return decoded;
  }

  /// Leaves the photo, and returns false, if the GPUs' queue is full. With `wait` it waits until it is not.
  bool to_gpu(Decoded& decoded, bool wait) {
    std::unique_lock lock(mutex_);
    const auto not_full = [&] { return decoded_.size() < most_decoded_; };
    if (wait) gpu_not_full_.wait(lock, stop_, not_full);
    if (!not_full()) return wait;  // waited in vain: the end
    decoded_.push_back(std::move(decoded));
    to_run_.notify_one();
    return true;
  }

  void prepare(Batch& batch, Decoded decoded) {
    const Stopwatch watch;
    try {
      batch.classifier->prepare(decoded.picture, static_cast<std::int64_t>(batch.photos.size()));
    } catch (const Error& error) {
      // Not the photo's fault: a device error, or no memory for pixels within the limits.
      if (error.kind() == ErrorKind::device || error.kind() == ErrorKind::limit) throw;
      decoded.result.error = copy_of(error);
      return finish(std::move(decoded.result));
    }
    decoded.result.prepare_ms = watch.ms();
    batch.photos.push_back(std::move(decoded.result));
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
  std::size_t capacity_ = 0, most_decoded_ = 0;  // most_decoded_: 0 without a GPU

  mutable std::mutex mutex_;
  std::condition_variable_any to_decode_, to_run_, gpu_not_full_;
  std::condition_variable to_take_;
  std::deque<Queued> queued_;
  std::deque<Decoded> decoded_;
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
