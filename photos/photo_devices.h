#pragma once
// Which Runners a PhotoClassifier has.

#include <vector>

#include "lenslet/photos.h"

namespace lenslet::photos {

/// GPUs first, in the order of the options. Error(invalid_argument) for no device or an unknown one, Error(device) for
/// one that cannot be used.
std::vector<PhotoRunners> photo_runners(const Model& model, const Card& card, const PhotoOptions& options);
bool is_gpu(const PhotoRunners& runners);
/// Threads that read and decode for them.
int decoders_for(const std::vector<PhotoRunners>& runners, const PhotoOptions& options);

}  // namespace lenslet::photos
