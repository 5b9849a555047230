// detect MODEL.onnx PHOTO OUT.png: finds faces with UltraFace (version-RFB-320) and draws boxes around them.
#include <lenslet/runner.h>

#include <algorithm>
#include <cstdio>

#include "../picture.h"

namespace {

constexpr float least_score = 0.7f, most_overlap = 0.3f;

struct Face {
  float score, left, top, right, bottom;  // in pixels of the photo
  float area() const { return std::max(right - left, 0.0f) * std::max(bottom - top, 0.0f); }
};

// Intersection over union.
float overlap(const Face& a, const Face& b) {
  const Face both{0, std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right),
                  std::min(a.bottom, b.bottom)};
  const float either = a.area() + b.area() - both.area();
  return either > 0 ? both.area() / either : 0;
}

// Non-maximum suppression: of boxes that overlap, the best one stays.
std::vector<Face> best_of(std::vector<Face> faces) {
  std::sort(faces.begin(), faces.end(), [](const Face& a, const Face& b) { return a.score > b.score; });
  std::vector<Face> kept;
  for (const Face& face : faces)
    if (std::none_of(kept.begin(), kept.end(), [&](const Face& k) { return overlap(k, face) > most_overlap; }))
      kept.push_back(face);
  return kept;
}

void draw_box(Picture& photo, const Face& face) {
  const auto clamped = [](float value, std::int64_t size) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(value), 0, size - 1);
  };
  const std::int64_t left = clamped(face.left, photo.width), right = clamped(face.right, photo.width);
  const std::int64_t top = clamped(face.top, photo.height), bottom = clamped(face.bottom, photo.height);
  const std::int64_t line = 1 + std::min(photo.height, photo.width) / 200;
  for (std::int64_t y = top; y <= bottom; ++y)
    for (std::int64_t x = left; x <= right; ++x) {
      if (y - top >= line && bottom - y >= line && x - left >= line && right - x >= line) continue;
      std::uint8_t* const pixel = photo.at(y, x);
      pixel[0] = 40, pixel[1] = 255, pixel[2] = 40;
    }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: detect MODEL.onnx PHOTO OUT.png\n"), 2;
  Picture photo = read_picture(argv[2]);

  // How UltraFace was trained: the whole photo stretched to 320 x 240, (pixel - 127) / 128.
  lenslet::ImageSpec spec;
  spec.height = 240;
  spec.width = 320;
  spec.resize = lenslet::ImageSpec::Resize::stretch;
  spec.crop = lenslet::ImageSpec::Crop::none;
  spec.mean = {127, 127, 127};
  spec.std = {128, 128, 128};

  const lenslet::Model model = lenslet::Model::load(argv[1]);
  lenslet::Runner runner(model);
  runner.load_image(0, photo.view(), spec);
  const auto outputs = runner.run_loaded();
  if (outputs.size() != 2 || outputs[0].elems() * 2 != outputs[1].elems())
    return std::fprintf(stderr, "detect: %s: wanted outputs [1,N,2] (scores) and [1,N,4] (boxes)\n", argv[1]), 1;
  const auto scores = outputs[0].values<float>();  // of background and face
  const auto boxes = outputs[1].values<float>();   // left, top, right, bottom, of 0 to 1

  std::vector<Face> faces;
  const auto width = static_cast<float>(photo.width), height = static_cast<float>(photo.height);
  for (std::size_t i = 0; i < scores.size() / 2; ++i)
    if (scores[2 * i + 1] >= least_score)
      faces.push_back({scores[2 * i + 1], boxes[4 * i] * width, boxes[4 * i + 1] * height, boxes[4 * i + 2] * width,
                       boxes[4 * i + 3] * height});
  for (const Face& face : best_of(std::move(faces))) {
    std::printf("%5.1f%%  left %.0f top %.0f right %.0f bottom %.0f\n", double{100 * face.score}, double{face.left},
                double{face.top}, double{face.right}, double{face.bottom});
    draw_box(photo, face);
  }
  write_png(argv[3], photo);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "detect: %s\n", error.what()), 1;
}
