#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_api/structs.h"
#include "lenslet/c_api.h"
#include "lenslet/photos.h"
#include "photos/c_api/card.h"

template <>
inline constexpr std::size_t lenslet::c_api::first_size<lenslet_photo_options> = offsetof(lenslet_photo_options,
                                                                                          gpu_decode);

using namespace lenslet;
using namespace lenslet::c_api;

namespace {

struct PhotosObject {
  using Handle = lenslet_photos;
  static constexpr auto handle_name = "lenslet_photos";

  PhotosObject(const Model& model, const Card& card, const PhotoOptions& options)
      : class_offset(card.class_offset), classifier(std::make_unique<PhotoClassifier>(model, card, options)) {}
  PhotosObject(const PhotosObject&) = delete;
  PhotosObject& operator=(const PhotosObject&) = delete;
  ~PhotosObject() {
    if (is_forked()) static_cast<void>(classifier.release());  // its threads are the parent's
  }
  bool is_forked() const { return ::getpid() != process; }

  /// -1: a run gives the number.
  std::int64_t class_count() const {
    const std::int64_t elems = classifier->bound().classes;
    return elems < 0 ? -1 : elems - class_offset;
  }

  const pid_t process = ::getpid();
  const std::int64_t class_offset;
  std::unique_ptr<PhotoClassifier> classifier;
  PhotoResult result;  // of the last take
  std::vector<lenslet_photo_class> classes;
  std::atomic<bool> at_work{false};
};

/// Locks the object for one call.
class PhotosInUse {
 public:
  explicit PhotosInUse(const lenslet_photos* handle) : object_(Handles<PhotosObject>::get(handle)) {
    if (object_->is_forked())
      throw Error(ErrorKind::invalid_argument, "the lenslet_photos is of the process that fork()ed this one");
    if (object_->at_work.exchange(true, std::memory_order_acquire))
      throw Error(ErrorKind::invalid_argument, "the lenslet_photos is at work: another thread is in it");
  }
  PhotosInUse(const PhotosInUse&) = delete;
  PhotosInUse& operator=(const PhotosInUse&) = delete;
  ~PhotosInUse() { object_->at_work.store(false, std::memory_order_release); }
  PhotosObject* operator->() const { return object_.get(); }

 private:
  std::shared_ptr<PhotosObject> object_;
};

PhotoOptions options_of(const lenslet_photo_options& given) {
  PhotoOptions options;
  if (given.device_count > 0) options.devices.clear();
  take_names(given.devices, given.device_count, "devices", options.devices);
  if (given.labels != nullptr) options.labels = given.labels;
  options.batch = given.batch;
  options.threads = given.threads;
  options.in_order = given.unordered == 0;
  if (given.gpu_decode != 0) options.decode = PhotoOptions::Decode::gpu;
  if (given.top > 0) options.top = given.top;
  options.count = given.count;
  options.plan = plan_options_of(given.plan);
  return options;
}

/// Pointers into `object`.
lenslet_photo_result as_c(PhotosObject& object) {
  const PhotoResult& of = object.result;
  object.classes.clear();
  for (const ClassResult& best : of.top) object.classes.push_back({best.index, best.label.c_str(), best.prob, 0});
  lenslet_photo_result result{};
  result.index = of.index;
  result.name = of.name.c_str();
  result.device = of.device.c_str();
  result.classes = object.classes.data();
  result.class_count = object.classes.size();
  result.error = of.error ? of.error->what() : "";
  result.status = of.error ? status_of(of.error->kind()) : LENSLET_OK;
  result.decoded_on_gpu = of.decoded_on_gpu ? 1 : 0;
  result.decode_ms = of.decode_ms;
  result.prepare_ms = of.prepare_ms;
  result.run_ms = of.run_ms;
  return result;
}

}  // namespace

lenslet_status lenslet_photos_create(lenslet_model* model, lenslet_card* card, const lenslet_photo_options* options,
                                     lenslet_photos** photos) {
  return guarded([&] {
    check_given(photos, "photos");
    *photos = nullptr;
    *photos = Handles<PhotosObject>::add(std::make_shared<PhotosObject>(model_of(model), Cards::get(card)->card,
                                                                        options_of(taken(options, "photo options"))));
  });
}

lenslet_status lenslet_photos_free(lenslet_photos* photos) {
  return guarded([&] { Handles<PhotosObject>::free(photos); });
}

lenslet_status lenslet_photos_describe(lenslet_photos* photos, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    const PhotosInUse object(photos);
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const PhotoRunners& on : object->classifier->runners())
      devices.push_back({{"device", on.device}, {"runners", on.runners}, {"threads", on.threads}, {"batch", on.batch}});
    const nlohmann::ordered_json made{{"devices", devices},
                                      {"decoders", object->classifier->decoders()},
                                      {"gpu_decoder", object->classifier->gpu_decoder()},
                                      {"classes", object->class_count()}};
    *json = text_for_app(made.dump());
  });
}

lenslet_status lenslet_photos_capacity(lenslet_photos* photos, size_t* capacity) {
  return guarded([&] {
    check_given(capacity, "capacity");
    *capacity = PhotosInUse(photos)->classifier->capacity();
  });
}

lenslet_status lenslet_photos_offer(lenslet_photos* photos, const lenslet_photo* photo, int32_t* accepted) {
  return guarded([&] {
    check_given(accepted, "accepted");
    *accepted = 0;
    const PhotosInUse object(photos);
    const lenslet_photo given = taken(photo, "photo");
    check_given(given.name, "the photo's name");
    if (object->classifier->is_full()) return;  // nothing is copied
    Photo offered{given.name};
    if (given.bytes != nullptr) {
      const auto* const bytes = static_cast<const std::byte*>(given.bytes);
      offered.bytes.emplace(bytes, bytes + given.size);
    }
    *accepted = object->classifier->offer(std::move(offered)) ? 1 : 0;
  });
}

lenslet_status lenslet_photos_take(lenslet_photos* photos, int32_t wait, lenslet_photo_result* result,
                                   int32_t* is_taken) {
  return guarded([&] {
    check_given(is_taken, "taken");
    *is_taken = 0;
    const PhotosInUse object(photos);
    lenslet_photo_result none{};
    give(result, none, "result");  // checked before a result is taken
    std::optional<PhotoResult> next = wait != 0 ? object->classifier->take() : object->classifier->take_ready();
    if (!next) return;
    object->result = *std::move(next);
    give(result, as_c(*object.operator->()), "result");
    *is_taken = 1;
  });
}
