// Pictures through a model for Python, and the command.
#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "c_api/structs.h"
#include "lenslet/c_api.h"
#include "lenslet/classifier.h"
#include "photos/c_api/card.h"
#include "photos/c_api/picture.h"
#include "python/native/python.h"
#include "tools/verbs/command.h"

using namespace lenslet;
using namespace lenslet::c_api;

namespace {

struct ClassifierObject {
  using Handle = lenslet_classifier;
  static constexpr auto handle_name = "lenslet_classifier";

  ClassifierObject(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
                   const PlanOptions& options)
      : classifier(model, card, labels, options) {}

  std::mutex mutex;  // one thread at a time; a second waits
  Classifier classifier;
};

using Classifiers = Handles<ClassifierObject>;

void check_slot(const ClassifierObject& object, std::int64_t slot) {
  if (slot < 0 || slot >= object.classifier.batch())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("there is no slot {} in a batch of {}", slot, object.classifier.batch()));
}

}  // namespace

lenslet_status lenslet_classifier_create(lenslet_model* model, lenslet_card* card, const char* labels_file,
                                         const lenslet_plan_options* options, lenslet_classifier** classifier) {
  return guarded([&] {
    check_given(classifier, "classifier");
    *classifier = nullptr;
    const Model of = model_of(model);
    const auto by = Cards::get(card);
    std::optional<std::filesystem::path> labels;
    if (labels_file != nullptr) labels = labels_file;
    PlanOptions plan = plan_options_of(options);
    if (const std::int64_t fixed = bind_card(by->card, of).fixed_batch; fixed > 0) plan.batch = fixed;
    *classifier = Classifiers::add(std::make_shared<ClassifierObject>(of, by->card, labels, plan));
  });
}

lenslet_status lenslet_classifier_free(lenslet_classifier* classifier) {
  return guarded([&] { Classifiers::free(classifier); });
}

lenslet_status lenslet_classifier_describe(lenslet_classifier* classifier, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    const auto object = Classifiers::get(classifier);
    const std::lock_guard lock(object->mutex);
    const nlohmann::ordered_json made{{"batch", object->classifier.batch()},
                                      {"classes", object->classifier.classes()},
                                      {"device", object->classifier.plan().device}};
    *json = text_for_app(made.dump());
  });
}

lenslet_status lenslet_classifier_prepare(lenslet_classifier* classifier, const lenslet_picture* picture,
                                          int64_t slot) {
  return guarded([&] {
    const auto object = Classifiers::get(classifier);
    const Picture pixels = picture_of(picture, &object->classifier.card());
    const std::lock_guard lock(object->mutex);
    check_slot(*object, slot);
    object->classifier.prepare(pixels, slot);
  });
}

lenslet_status lenslet_classifier_run(lenslet_classifier* classifier) {
  return guarded([&] {
    const auto object = Classifiers::get(classifier);
    const std::lock_guard lock(object->mutex);
    object->classifier.run();
  });
}

lenslet_status lenslet_classifier_top(lenslet_classifier* classifier, int64_t slot, size_t capacity, int64_t* classes,
                                      float* probs, size_t* found) {
  return guarded([&] {
    const auto object = Classifiers::get(classifier);
    check_given(found, "found");
    *found = 0;
    const std::lock_guard lock(object->mutex);
    check_slot(*object, slot);
    for (const ClassResult& result : object->classifier.top(slot, capacity)) {
      classes[*found] = result.index;
      probs[(*found)++] = result.prob;
    }
  });
}

int lenslet_command(int argc, char** argv) { return tool::run_command(argc, argv); }
