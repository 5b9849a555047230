// Boxes from outputs that Python ran, as `lenslet serve` does.
#include <cstdint>
#include <utility>
#include <vector>

#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "lenslet/c_api.h"
#include "photos/c_api/card.h"
#include "photos/c_api/detector.h"
#include "photos/c_api/picture.h"
#include "python/native/python.h"

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_python_prepare(lenslet_card* card, const lenslet_picture* picture, float* input, size_t count,
                                      int64_t* height, int64_t* width) {
  return guarded([&] {
    const Picture pixels = picture_of(picture);
    prepare(Cards::get(card)->card, pixels, input, count);
    *height = pixels.height;
    *width = pixels.width;
  });
}

lenslet_status lenslet_python_boxes(lenslet_model* model, lenslet_card* card, const lenslet_tensor* outputs,
                                    size_t output_count, int64_t height, int64_t width, double threshold, double iou,
                                    lenslet_detection* detections, size_t capacity, size_t* found) {
  return guarded([&] {
    const DetectOptions options = detect_options_of(threshold, iou, detections, capacity, found);
    std::vector<IoTensor> given;
    take_tensors(outputs, output_count, false, "outputs", given);
    std::vector<Tensor> tensors;
    for (IoTensor& each : given) {
      if (each.on_cuda) throw Error(ErrorKind::unsupported, "outputs on a CUDA device, which are read on the host");
      tensors.push_back(std::move(each.tensor));
    }
    give_detections(read_boxes(model_of(model), Cards::get(card)->card, tensors, height, width, options), {},
                    detections, found);
  });
}
