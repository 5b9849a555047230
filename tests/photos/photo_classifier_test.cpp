#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "photos/byte_budget.h"
#include "photos/photo_devices.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"
#include "tests/expect_error.h"
#include "tests/photos/make_png.h"
#include "tests/random_seed.h"
#include "tests/usable_device.h"

namespace lenslet {
namespace {

using test::FileBytes;

/// Photos of 17 x 19 pixels, 5 classes.
Card small_card() {
  return parse_card(R"({"input": {"size": [17, 19]}, "resize": {"mode": "stretch"},
                        "normalize": {"scale": 0.01, "mean": [0.5, 0.6, 0.7]}, "output": {"softmax": true}})",
                    "small.card.json");
}

Model small_model() { return make_model(test::small_net()); }

FileBytes drawn_png(std::mt19937_64& random) {
  const std::size_t height = 1 + random() % 40, width = 1 + random() % 40, channels = random() % 2 == 0 ? 1 : 3;
  std::vector<std::uint8_t> pixels(height * width * channels);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
  return test::make_png(height, width, channels, pixels);
}

/// A photo in five is damaged: cut short, of no format, empty, larger than the limits, or a missing file.
std::vector<Photo> drawn_photos(std::size_t count, std::mt19937_64& random) {
  std::vector<Photo> photos;
  for (std::size_t i = 0; i < count; ++i) {
    Photo photo{"photo" + std::to_string(i), drawn_png(random)};
    switch (random() % 25) {
      case 0:
        photo.bytes->resize(photo.bytes->size() / 2);
        break;
      case 1:
        photo.bytes->assign(100, std::byte{7});
        break;
      case 2:
        photo.bytes->clear();
        break;
      case 3:
        for (std::size_t at = 16; at < 20; ++at) (*photo.bytes)[at] = std::byte{1};  // the width
        break;
      case 4:
        photo.bytes.reset();
        break;
      default:
        break;
    }
    photos.push_back(std::move(photo));
  }
  return photos;
}

/// Each photo by a Classifier alone.
std::vector<PhotoResult> one_by_one(const Model& model, const std::vector<Photo>& photos, const std::string& device) {
  PlanOptions plan;
  plan.device = device;
  Classifier classifier(model, small_card(), std::nullopt, plan);
  std::vector<PhotoResult> results;
  for (const Photo& photo : photos) {
    PhotoResult result{results.size(), photo.name};
    try {
      classifier.prepare(photo.bytes ? decode_image(*photo.bytes, photo.name) : read_image(photo.name), 0);
      classifier.run();
      result.top = classifier.top(0, 5);
    } catch (const Error& error) {
      result.error = error;
    }
    results.push_back(std::move(result));
  }
  return results;
}

void check_equal(const PhotoResult& got, const PhotoResult& expected) {
  CAPTURE(expected.index);
  CHECK(got.index == expected.index);
  CHECK(got.name == expected.name);
  REQUIRE(got.error.has_value() == expected.error.has_value());
  if (got.error) {
    CHECK(std::string(got.error->what()) == expected.error->what());
    CHECK(got.error->kind() == expected.error->kind());
    return;
  }
  REQUIRE(got.top.size() == expected.top.size());
  std::map<std::int64_t, float> probs;
  for (const ClassResult& best : expected.top) probs[best.index] = best.prob;
  for (const ClassResult& best : got.top) CHECK(best.prob == doctest::Approx(probs.at(best.index)).epsilon(1e-6));
}

void check_all(const Model& model, const std::vector<Photo>& photos, const PhotoOptions& options,
               const std::vector<PhotoResult>& expected) {
  CAPTURE(options.threads);
  CAPTURE(options.batch);
  CAPTURE(options.in_order);
  PhotoClassifier classifier(model, small_card(), options);
  std::set<std::size_t> seen;
  std::size_t next = 0;
  classifier.classify([&] { return next < photos.size() ? std::optional(photos[next++]) : std::nullopt; },
                      [&](PhotoResult&& result) {
                        if (options.in_order) CHECK(result.index == seen.size());
                        CHECK(next - seen.size() <= classifier.capacity() + 1);
                        CHECK(seen.insert(result.index).second);
                        check_equal(result, expected.at(result.index));
                        return true;
                      });
  CHECK(seen.size() == photos.size());
  CHECK(!classifier.take());
}

TEST_CASE("photos/each_photo_once_and_as_alone") {
  const auto seed = test::random_seed();
  std::mt19937_64 random(seed);
  const Model model = small_model();
  const std::vector<Photo> photos = drawn_photos(90, random);
  const std::vector<PhotoResult> expected = one_by_one(model, photos, "cpu");
  for (const int threads : {1, 2, 4})
    for (const std::int64_t batch : {0, 1, 3})
      for (const bool in_order : {true, false})
        check_all(model, photos, {.devices = {"cpu"}, .threads = threads, .batch = batch, .in_order = in_order},
                  expected);
}

TEST_CASE("photos/on_a_gpu_and_beside_the_cpu") {
  if (!test::device_is_here("cuda")) return;
  const auto seed = test::random_seed();
  std::mt19937_64 random(seed);
  const Model model = small_model();
  const std::vector<Photo> photos = drawn_photos(400, random);
  const std::vector<PhotoResult> expected = one_by_one(model, photos, "cpu");
  for (const std::vector<std::string>& devices : {std::vector<std::string>{"cuda:0"}, {"cpu", "cuda:0"}, {"all"}})
    for (const std::int64_t batch : {0, 1, 5})
      check_all(model, photos, {.devices = devices, .threads = 3, .batch = batch}, expected);
}

TEST_CASE("photos/a_photo_has_the_same_bits_in_every_slot") {
  for (const std::string device : {"cpu", "cuda"}) {
    if (!test::device_is_here(device)) continue;
    PlanOptions plan;
    plan.device = device;
    plan.batch = 7;
    Classifier classifier(small_model(), small_card(), std::nullopt, plan);
    std::mt19937_64 random(5);
    const Picture picture = decode_image(drawn_png(random), "p");
    std::set<std::vector<float>> outputs;
    for (std::int64_t slot = 0; slot < 7; ++slot) {
      for (std::int64_t other = 0; other < 7; ++other)
        classifier.prepare(other == slot ? picture : decode_image(drawn_png(random), "p"), other);
      classifier.run();
      std::vector<float> probs(5);
      for (const ClassResult& best : classifier.top(slot, 5)) probs[static_cast<std::size_t>(best.index)] = best.prob;
      outputs.insert(probs);
    }
    CHECK(outputs.size() == 1);
  }
}

TEST_CASE("photos/no_more_than_capacity_are_under_way") {
  std::mt19937_64 random(1);
  PhotoClassifier classifier(small_model(), small_card(), {.devices = {"cpu"}, .threads = 2});
  CHECK(!classifier.take());  // waits for nothing
  std::size_t offered = 0;
  for (Photo photo{"p", drawn_png(random)}; classifier.offer(Photo(photo)); ++offered) CHECK(offered < 1000);
  CHECK(offered == classifier.capacity());
  Photo refused{"kept", drawn_png(random)};
  CHECK(!classifier.offer(std::move(refused)));
  CHECK(refused.bytes->size() > 0);
  CHECK(classifier.take()->index == 0);
  CHECK(classifier.offer(std::move(refused)));
  std::size_t taken = 1;
  while (classifier.take()) ++taken;
  CHECK(taken == offered + 1);
}

TEST_CASE("photos/results_come_while_the_source_waits") {
  std::mt19937_64 random(2);
  PhotoClassifier classifier(small_model(), small_card(), {.devices = {"cpu"}, .threads = 2, .batch = 4});
  REQUIRE(classifier.offer({"p", drawn_png(random)}));
  for (int tries = 0;; ++tries) {  // a batch that stays incomplete runs nevertheless
    if (const auto result = classifier.take_ready()) {
      CHECK(!result->error);
      break;
    }
    REQUIRE(tries < 30000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// A thread must not wait for more photos while its batch holds some, even if another takes the last one just then.
TEST_CASE("photos/an_unfilled_batch_is_run") {
  std::mt19937_64 random(5);
  const FileBytes png = drawn_png(random);
  PhotoClassifier classifier(small_model(), small_card(), {.devices = {"cpu"}, .threads = 4, .batch = 3});
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i < 2 + round % 5; ++i) REQUIRE(classifier.offer({"p", png}));
    for (int i = 0; i < 2 + round % 5; ++i) REQUIRE(classifier.take_within(std::chrono::seconds(60)));
  }
}

TEST_CASE("photos/as_long_as_it_takes") {
  PhotoClassifier classifier(small_model(), small_card(), {.devices = {"cpu"}, .threads = 1});
  CHECK(!classifier.take_within(std::chrono::milliseconds::max()));
  CHECK(!classifier.take_within(std::chrono::milliseconds::min()));
  REQUIRE(classifier.offer({"p", test::make_png(100, 100, 3, std::vector<std::uint8_t>(30000))}));
  CHECK(classifier.take_within(std::chrono::milliseconds::max()));
}

TEST_CASE("photos/abandoned_at_any_moment") {
  std::mt19937_64 random(3);
  const Model model = small_model();
  for (int round = 0; round < 12; ++round) {
    PhotoClassifier classifier(model, small_card(), {.devices = {"cpu"}, .threads = 1 + round % 3, .batch = 2});
    for (int i = 0; i < round && classifier.offer({"p", drawn_png(random)}); ++i)
      if (random() % 3 == 0) (void)classifier.take_ready();
  }
  PhotoClassifier classifier(model, small_card(), {.devices = {"cpu"}});
  std::size_t done = 0;
  const std::vector<std::string> files(50, "missing.png");
  classifier.classify(files, [&](PhotoResult&& result) {
    CHECK(result.error->kind() == ErrorKind::io);
    return ++done < 10;
  });
  CHECK(done == 10);
}

/// Memory for the first Runner alone.
class LittleMemory : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment, bool /*on_cuda*/) override {
    return given_++ < most ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment) : nullptr;
  }
  void release(void* data, std::size_t, std::size_t, bool) noexcept override { std::free(data); }
  int most = 1 << 30;
  int given() const { return given_; }

 private:
  std::atomic<int> given_{0};
};

TEST_CASE("photos/a_lack_of_memory_ends_it_with_an_error") {
  std::mt19937_64 random(4);
  const Model model = small_model();
  auto memory = std::make_shared<LittleMemory>();
  PhotoOptions options{.devices = {"cpu"}, .threads = 1};
  options.plan.allocator = memory;
  { const PhotoClassifier alone(model, small_card(), options); }
  auto scarce = std::make_shared<LittleMemory>();
  scarce->most = memory->given();
  options.plan.allocator = scarce;
  options.threads = 3;
  PhotoClassifier classifier(model, small_card(), options);
  CHECK_ERROR(
      [&] {
        for (;;) {
          (void)classifier.offer({"p", drawn_png(random)});
          (void)classifier.take();
        }
      }(),
      limit, "allocator did not give");
  CHECK(!classifier.offer({"p", drawn_png(random)}));
  CHECK_ERROR((void)classifier.take(), limit, "allocator did not give");
}

// UBSan asks the kernel, by a pipe, whether an object can be read: without descriptors it takes each for none.
#ifndef LENSLET_SANITIZED
/// Takes all descriptors of the process but `left`.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit fewer = before_;
    fewer.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 64);
    setrlimit(RLIMIT_NOFILE, &fewer);
    for (int taken = 0; (taken = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(taken);
    for (; left > 0 && !taken_.empty(); --left, taken_.pop_back()) ::close(taken_.back());
  }
  FewDescriptors(const FewDescriptors&) = delete;
  ~FewDescriptors() {
    for (const int descriptor : taken_) ::close(descriptor);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

TEST_CASE("photos/too_many_open_files_are_not_the_photos_fault") {
  const auto file =
      std::filesystem::temp_directory_path() / ("lenslet-descriptors-" + std::to_string(getpid()) + ".ppm");
  std::ofstream(file) << "P6 800 800 255\n" << std::string(3 * 800 * 800, 'x');
  const std::vector<std::string> photos(300, file.string());
  PhotoClassifier classifier(small_model(), small_card(), {.devices = {"cpu"}, .threads = 8});
  std::size_t results = 0;
  {
    const FewDescriptors one(1);  // for eight threads that read
    classifier.classify(photos, [&](PhotoResult&& result) {
      ++results;
      CHECK_MESSAGE(!result.error, result.error->message());
      return true;
    });
  }
  CHECK(results == photos.size());
  const FewDescriptors none(0);
  CHECK_ERROR(
      classifier.classify(photos, [](PhotoResult&&) { return true; }), io,
      "lenslet-descriptors-" + std::to_string(getpid()) + ".ppm: the file cannot be opened: Too many open files");
  std::filesystem::remove(file);
}
#endif

TEST_CASE("photos/refused_options") {
  const Model model = small_model();
  CHECK_ERROR(PhotoClassifier(model, small_card(), {.devices = {}}), invalid_argument, "no device");
  CHECK_ERROR(PhotoClassifier(model, small_card(), {.devices = {"cpu", "tpu"}}), invalid_argument,
              "unknown device 'tpu'; known: auto, cpu, cuda, cuda:INDEX, all");
  for (const int threads : {-1, 1025, 1 << 30})
    CHECK_ERROR(PhotoClassifier(model, small_card(), {.devices = {"cpu"}, .threads = threads}), invalid_argument,
                std::to_string(threads) + " threads; 0 (all cores) to 1024");
  CHECK_ERROR(PhotoClassifier(model, small_card(), {.devices = {"cpu"}, .batch = -1}), invalid_argument, "batch is -1");
  CHECK_ERROR(PhotoClassifier(model, small_card(), {.devices = {"cpu"}, .labels = "/no/labels.txt"}), io, "labels.txt");
}

TEST_CASE("photos/runners_for_the_photos_that_come") {
  const Model model = small_model();
  const auto runners = [&](int threads, std::size_t count, std::int64_t batch) {
    const PhotoOptions options{.devices = {"cpu", "cpu"}, .threads = threads, .batch = batch, .count = count};
    const auto made = photos::photo_runners(model, small_card(), options);
    REQUIRE(made.size() == 1);
    CHECK(photos::decoders_for(made, options) == made.front().runners);
    return std::vector<std::int64_t>{made.front().runners, made.front().threads, made.front().batch};
  };
  using Numbers = std::vector<std::int64_t>;
  CHECK(runners(6, 0, 0) == Numbers{6, 1, 1});
  CHECK(runners(6, 1, 0) == Numbers{1, 6, 1});  // latency
  CHECK(runners(6, 2, 0) == Numbers{2, 3, 1});
  CHECK(runners(6, 1000, 0) == Numbers{6, 1, 1});
  CHECK(runners(6, 9, 8) == Numbers{2, 3, 8});
  CHECK(runners(6, 3, 8) == Numbers{1, 6, 3});
}

TEST_CASE("photos/byte_budget_holds_a_photo_back") {
  photos::ByteBudget budget(100);
  const std::stop_source stop;
  auto first = budget.take(60, stop.get_token());
  std::atomic<bool> taken{false};
  std::thread other([&] {
    const auto second = budget.take(50, stop.get_token());
    taken = true;
  });
  auto third = budget.take(40, stop.get_token());
  CHECK(!taken);
  third = {};
  CHECK(!taken);
  first.shrink(45);  // of a decoded photo only the pixels stay
  other.join();
  CHECK(taken);
  first = {};
  const auto beyond = budget.take(1000, stop.get_token());  // alone it passes
}

}  // namespace
}  // namespace lenslet
